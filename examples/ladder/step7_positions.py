"""Step 7: positional encoding.

    python examples/ladder/step7_positions.py

Self-attention is permutation-equivariant: if the tokens of its input are permuted, its outputs are
the same vectors, permuted. The order carries no information. A *positional encoding* adds to each
token's embedding a vector that depends on its position. The paper's vectors are sines and cosines
of many wavelengths, so that all positions differ and near positions are similar (section 3.5).

The task: a sequence contains a cat and a dog among other words; does the cat come first?
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drawing import FOLDER, new_figure, save, tidy
from transformer_blocks import (
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
    sinusoidal_table,
)

CAT, DOG, VOCABULARY_SIZE, LENGTH, D_MODEL = 0, 1, 10, 8, 32


def make_batch(count: int) -> tuple[Tensor, Tensor]:
    """Make random sequences with one cat and one dog.

    Args:
        count: Number of sequences, B.

    Returns:
        Token ids, of shape (B, LENGTH), and target classes, of shape (B,): 1 if the cat comes
        first, else 0.
    """
    tokens = torch.randint(2, VOCABULARY_SIZE, (count, LENGTH))
    positions = torch.rand(count, LENGTH).argsort(dim=-1)[:, :2]  # two different positions
    tokens.scatter_(1, positions, torch.tensor([CAT, DOG]).expand(count, 2))
    return tokens, (positions[:, 0] < positions[:, 1]).long()


class Classifier(nn.Module):
    """Classifies a sequence by the mean output of one encoder layer.

    Args:
        positions: The positional encoding.
    """

    def __init__(self, positions: nn.Module) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY_SIZE, D_MODEL)
        self.positions = positions
        self.encoder = build_encoder(
            num_layers=1, d_model=D_MODEL, num_heads=4, d_ff=64, dropout=0.0
        )
        self.output = nn.Linear(D_MODEL, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of both classes: (B, L) to (B, 2)."""
        return self.output(self.encoder(self.positions(self.embedding(tokens))).mean(dim=1))


def train(model: Classifier, steps: int = 500) -> list[float]:
    """Train a classifier; return its accuracy in every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    accuracies = []
    for _ in range(steps):
        tokens, target = make_batch(128)
        logits = model(tokens)
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracies.append((logits.argmax(-1) == target).float().mean().item())
    return accuracies


def main(folder: Path = FOLDER) -> None:
    """Permute a sequence, train with and without positions, and draw the positional encoding."""
    curves = {}
    print("                     change by a permutation   accuracy")
    for name, positions in (
        ("without positions", nn.Identity()),
        ("with positions", SinusoidalPositionalEncoding(D_MODEL)),
    ):
        torch.manual_seed(0)
        model = Classifier(positions)
        tokens, _ = make_batch(1)
        permuted = tokens[:, torch.randperm(LENGTH)]
        with torch.no_grad():
            change = (model(permuted) - model(tokens)).abs().max().item()
        curves[name] = train(model)
        last = sum(curves[name][-50:]) / 50
        print(f"  {name:18s} {change:18.1e} {last:13.2f}")
    print(
        """
Without positions, all permutations of a sequence have the same output, up to rounding. The cat
comes first in half of them, so the expected accuracy is 1/2, whatever the training."""
    )

    table = sinusoidal_table(64, D_MODEL).float()
    figure, (encoding, similarity, training) = new_figure(3)
    encoding.imshow(table.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    encoding.set_title("positional encoding", fontsize=10)
    encoding.set_xlabel("feature")
    encoding.set_ylabel("position")
    for position in (8, 32):
        products = table @ table[position] / (D_MODEL / 2)
        similarity.plot(products.numpy(), label=f"with position {position}")
    similarity.set_title("similarity of two positions", fontsize=10)
    tidy(similarity, x="position", y=f"dot product / {D_MODEL // 2}")
    similarity.legend(frameon=False)
    for name, accuracies in curves.items():
        ends = range(20, len(accuracies) + 1)
        training.plot(ends, [sum(accuracies[end - 20 : end]) / 20 for end in ends], label=name)
    training.set_title("does the cat come first?", fontsize=10)
    training.set_ylim(0.4, 1.02)
    tidy(training, x="step", y="accuracy, mean of 20 steps")
    training.legend(frameon=False)
    save(figure, "step7", folder)


if __name__ == "__main__":
    main()
