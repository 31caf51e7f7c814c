"""Step 7: positions.

    python examples/ladder/step7_positions.py

Attention by itself knows no order. Shuffle the words, and it gives the same answers, shuffled: to
it they are a set, not a sentence. So each place adds a vector of its own to the word that stands
there: the paper's are waves, fast ones and slow ones, so that no two places look alike and near
places look similar (section 3.5).

The task: somewhere among other words stand a cat and a dog; is the cat the first of the two?
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

CAT, DOG, WORDS, LENGTH, WIDTH = 0, 1, 10, 8, 32


def sentences(count: int) -> tuple[Tensor, Tensor]:
    """Make sentences, (count, LENGTH), and say whether the cat stands before the dog, (count,)."""
    tokens = torch.randint(2, WORDS, (count, LENGTH))
    places = torch.rand(count, LENGTH).argsort(dim=-1)[:, :2]  # two different ones
    tokens.scatter_(1, places, torch.tensor([CAT, DOG]).expand(count, 2))
    return tokens, (places[:, 0] < places[:, 1]).long()


class Judge(nn.Module):
    """Reads a sentence with one encoder layer and answers yes or no."""

    def __init__(self, positions: nn.Module) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(WORDS, WIDTH)
        self.positions = positions
        self.encoder = build_encoder(num_layers=1, d_model=WIDTH, num_heads=4, d_ff=64, dropout=0.0)
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score no and yes: (B, L) to (B, 2)."""
        return self.output(self.encoder(self.positions(self.embedding(tokens))).mean(dim=1))


def train(model: Judge, steps: int = 500) -> list[float]:
    """Learn who stands first; return the share of right answers of every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    right = []
    for _ in range(steps):
        tokens, answer = sentences(128)
        scores = model(tokens)
        loss = F.cross_entropy(scores, answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append((scores.argmax(-1) == answer).float().mean().item())
    return right


def main(folder: Path = FOLDER) -> None:
    """Shuffle, then train with and without positions, then draw the waves."""
    curves = {}
    print("                     change when shuffled   who stands first, told right")
    for name, positions in (
        ("without positions", nn.Identity()),
        ("with positions", SinusoidalPositionalEncoding(WIDTH)),
    ):
        torch.manual_seed(0)
        model = Judge(positions)
        tokens, _ = sentences(1)
        shuffled = tokens[:, torch.randperm(LENGTH)]
        with torch.no_grad():
            change = (model(shuffled) - model(tokens)).abs().max().item()
        curves[name] = train(model)
        last = sum(curves[name][-50:]) / 50
        print(f"  {name:18s} {change:15.1e} {last:25.2f}")
    print(
        """
Without positions, a sentence and its words in any order are one and the same (what changes is
rounding), and training cannot do better than a coin."""
    )

    table = sinusoidal_table(64, WIDTH).float()
    figure, (waves, near, learnt) = new_figure(3)
    waves.imshow(table.numpy(), cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    waves.set_title("the waves: a row for each position", fontsize=10)
    waves.set_xlabel("feature")
    waves.set_ylabel("position")
    for position in (8, 32):
        likeness = table @ table[position] / (WIDTH / 2)
        near.plot(likeness.numpy(), label=f"with position {position}")
    near.set_title("likeness of two positions (their dot product)", fontsize=10)
    tidy(near, x="position", y=f"dot product / {WIDTH // 2}")
    near.legend(frameon=False)
    for name, right in curves.items():
        smooth = [sum(right[end - 20 : end]) / 20 for end in range(20, len(right) + 1)]
        learnt.plot(range(20, len(right) + 1), smooth, label=name)
    learnt.set_title("who stands first?", fontsize=10)
    learnt.set_ylim(0.4, 1.02)
    tidy(learnt, x="step", y="right answers, mean of 20 steps")
    learnt.legend(frameon=False)
    save(figure, "step7", folder)


if __name__ == "__main__":
    main()
