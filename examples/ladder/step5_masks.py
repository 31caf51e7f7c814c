"""Step 5: what masks are for, and how a leak looks.

    python examples/ladder/step5_masks.py

A model that writes is trained on whole sentences: at each word it guesses the next. The next word
stands right there, among the keys. Unless it is hidden, the model does not learn to guess; it
learns to look. Its loss falls wonderfully, and when it has to write by itself it is lost.

To show it beyond doubt, the sentences here are dice: nobody can guess the next number, so an honest
loss cannot fall below ln 8 = 2.08.
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

SIDES, LENGTH = 8, 10


class Writer(nn.Module):
    """Scores the next number after each number, with or without a mask.

    A small model from the library's blocks; heads are step 6, positions step 7. Here it is
    ``causal`` that matters.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = TokenEmbedding(SIDES, 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.layers = build_encoder(num_layers=1, d_model=32, num_heads=4, d_ff=64, dropout=0.0)
        self.output = nn.Linear(32, SIDES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score: (B, L) to (B, L, SIDES)."""
        x = self.positions(self.embedding(tokens))
        return self.output(self.layers(x, causal=self.causal))


def train(model: Writer, steps: int = 500) -> list[float]:
    """Guess each next number of random sentences; return the loss of every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        dice = torch.randint(SIDES, (64, LENGTH + 1))
        logits = model(dice[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), dice[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def loss_while_writing(model: Writer) -> float:
    """Guess the sixth number when only five are written yet."""
    dice = torch.randint(SIDES, (2000, 6))
    return F.cross_entropy(model(dice[:, :5])[:, -1], dice[:, 5]).item()


@torch.no_grad()
def change_of_earlier_outputs(model: Writer) -> float:
    """Rewrite the last number; measure how much the outputs before it change."""
    dice = torch.randint(SIDES, (1, LENGTH))
    before = model(dice)[:, :-1]
    dice[0, -1] = (dice[0, -1] + 1) % SIDES
    return (model(dice)[:, :-1] - before).abs().max().item()


def main(folder: Path = FOLDER) -> None:
    """Show both masks, then the leak, then its cure."""
    torch.manual_seed(0)
    words = ["a", "cat", "sleeps", "<pad>"]
    padding = padding_mask(torch.tensor([[5, 6, 7, 0]]))[0, 0]  # (1, 4): the same for all queries
    print("Padding: nobody may read a word that is not there. The row of <pad> asks all the same;")
    print("its answer is never used. (x: hidden)\n")
    print(format_mask(padding.expand(4, 4), queries=words, keys=words))
    print("\nCausal: no word may read a later one.\n")
    print(format_mask(causal_mask(4), queries=words, keys=words))
    print("\nBoth, joined by `|`:\n")
    print(format_mask(padding | causal_mask(4), queries=words, keys=words))

    print(f"\nDice of {SIDES} sides: an honest loss is ln {SIDES} = {math.log(SIDES):.2f} or more.")
    print("                        loss in training   while writing   change of earlier outputs")
    curves = {}
    for name, causal in (("without a mask", False), ("with the causal mask", True)):
        model = Writer(causal=causal)
        curves[name] = train(model)
        print(
            f"  {name:20s} {curves[name][-1]:16.2f} {loss_while_writing(model):16.2f} "
            f"{change_of_earlier_outputs(model):20.1e}"
        )
    print(
        f"""
The first has learnt to look at the answer. What is left of its loss is a tenth of ln {SIDES}, since
of {LENGTH} numbers only the last cannot see the next. When it has to write, there is nothing to
look at, and it does worse than a guess. The last column is the test for your own models: it must
be zero, up to rounding."""
    )

    figure, (axes,) = new_figure(1, width=5.5)
    for name, losses in curves.items():
        axes.plot(losses, label=name)
    axes.axhline(math.log(SIDES), color="grey", ls=":", label="the best an honest model can do")
    axes.set_ylim(bottom=0.0)
    tidy(axes, x="step", y="loss (nats)")
    axes.legend(frameon=False)
    save(figure, "step5", folder)


if __name__ == "__main__":
    main()
