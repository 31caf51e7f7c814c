"""Step 5: masks, and how to detect a leak.

    python examples/ladder/step5_masks.py

An autoregressive model is trained on whole sequences: at each position it predicts the next token.
But the next token is among the keys. Unless a *causal mask* hides it, the model copies it instead
of predicting it. Its training loss becomes small, but in decoding, where the next token does not
exist yet, it fails.

The sequences here are independent uniform random numbers, so that no model can predict the next
one: without a leak, the loss cannot fall below ln 8 = 2.08.
"""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drawing import FOLDER, new_figure, save, tidy
from transformer_blocks import (
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
    causal_mask,
    format_mask,
    padding_mask,
)

VOCABULARY_SIZE, LENGTH = 8, 10


class LanguageModel(nn.Module):
    """Predicts the next token after each token, with or without a causal mask.

    The model consists of the library's blocks. Heads are the topic of step 6, positions of step 7.

    Args:
        causal: Whether to mask future positions.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = TokenEmbedding(VOCABULARY_SIZE, 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.layers = build_encoder(num_layers=1, d_model=32, num_heads=4, d_ff=64, dropout=0.0)
        self.output = nn.Linear(32, VOCABULARY_SIZE)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of each next token: (B, L) to (B, L, VOCABULARY_SIZE)."""
        x = self.positions(self.embedding(tokens))
        return self.output(self.layers(x, causal=self.causal))


def train(model: LanguageModel, steps: int = 500) -> list[float]:
    """Train on random sequences; return the loss of every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY_SIZE, (64, LENGTH + 1))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def decoding_loss(model: LanguageModel) -> float:
    """Return the loss of predicting the sixth token from the first five, as in decoding."""
    tokens = torch.randint(VOCABULARY_SIZE, (2000, 6))
    return F.cross_entropy(model(tokens[:, :5])[:, -1], tokens[:, 5]).item()


@torch.no_grad()
def change_of_earlier_outputs(model: LanguageModel) -> float:
    """Change the last token; return the largest change of the outputs before it."""
    tokens = torch.randint(VOCABULARY_SIZE, (1, LENGTH))
    before = model(tokens)[:, :-1]
    tokens[0, -1] = (tokens[0, -1] + 1) % VOCABULARY_SIZE
    return (model(tokens)[:, :-1] - before).abs().max().item()


def main(folder: Path = FOLDER) -> None:
    """Print padding and causal masks, then train with and without the causal mask."""
    torch.manual_seed(0)
    words = ["a", "cat", "sleeps", "<pad>"]
    padding = padding_mask(torch.tensor([[5, 6, 7, 0]]))[0, 0]  # (1, 4): the same for all queries
    print("A padding mask hides the padding from every query (x: masked). The padding has a query,")
    print("too, but its output is never used.\n")
    print(format_mask(padding.expand(4, 4), queries=words, keys=words))
    print("\nA causal mask hides later tokens.\n")
    print(format_mask(causal_mask(4), queries=words, keys=words))
    print("\nBoth masks, combined by `|`:\n")
    print(format_mask(padding | causal_mask(4), queries=words, keys=words))

    print(f"\nRandom numbers from {VOCABULARY_SIZE}: without a leak, the loss is at least ", end="")
    print(f"ln {VOCABULARY_SIZE} = {math.log(VOCABULARY_SIZE):.2f}.")
    print("                        training loss   decoding loss   change of earlier outputs")
    curves = {}
    for name, causal in (("without a mask", False), ("with the causal mask", True)):
        model = LanguageModel(causal=causal)
        curves[name] = train(model)
        print(
            f"  {name:20s} {curves[name][-1]:14.2f} {decoding_loss(model):15.2f} "
            f"{change_of_earlier_outputs(model):20.1e}"
        )
    print(
        f"""
The first model has learnt to copy the next token. Its remaining loss is a tenth of the minimum,
because the last of {LENGTH} tokens has no next one among the keys. In decoding there is nothing to
copy, and its loss exceeds that of a uniform guess. The last column is a test for your own models:
without a leak, it is zero up to rounding."""
    )

    figure, (axes,) = new_figure(1, width=5.5)
    for name, losses in curves.items():
        axes.plot(losses, label=name)
    axes.axhline(math.log(VOCABULARY_SIZE), color="grey", ls=":", label="minimum without a leak")
    axes.set_ylim(bottom=0.0)
    tidy(axes, x="step", y="training loss (nats)")
    axes.legend(frameon=False)
    save(figure, "step5", folder)


if __name__ == "__main__":
    main()
