"""Step 4: why the scores are divided by the root of the width.

    python examples/ladder/step4_scale.py

A score is a sum of d products. If query and key hold random numbers of size one, so do the
products, and the sum of d of them has a standard deviation of sqrt(d). The wider the head, the
further the scores lie apart, until the softmax takes one key and nothing else. Then it hardly
learns: its gradient is w_i (1 - w_i) for its own score, and zero where a weight is 0 or 1.

Two measures, over 1,000 queries that look at 32 keys: the *entropy* of the weights, in nats
(ln 32 = 3.47 if all keys share alike, 0 if one takes all), and the size of the softmax's gradient,
the median over the queries.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from drawing import FOLDER, new_figure, save, tidy

QUERIES, KEYS = 1000, 32
WIDTHS = [4, 16, 64, 256, 1024]


class Measures(NamedTuple):
    """What the scores of one width come to."""

    spread: float
    entropy: float
    gradient: float


def measure(scores: Tensor) -> Measures:
    """Measure the weights that scores of shape (queries, keys) lead to."""
    weights = scores.softmax(dim=-1)
    entropy = -(weights * scores.log_softmax(dim=-1)).sum(dim=-1).mean()
    # The Jacobian of a softmax is diag(w) - w w^T; this is its norm for the query in the middle.
    jacobian = weights.diag_embed() - weights[:, :, None] * weights[:, None, :]
    gradient = jacobian.flatten(1).norm(dim=-1).median()
    return Measures(scores.std().item(), entropy.item(), gradient.item())


def main(folder: Path = FOLDER) -> None:
    """Print and draw the measures, width by width, with and without the scale."""
    torch.manual_seed(0)
    plain, scaled = [], []
    print("                  not divided                       divided by sqrt(d)")
    print("    d   sqrt(d)" + 2 * "  std of scores  entropy  gradient")
    for width in WIDTHS:
        scores = torch.randn(QUERIES, width) @ torch.randn(width, KEYS)
        plain.append(measure(scores))
        scaled.append(measure(scores / math.sqrt(width)))
        cells = [f"{width:5d}   {math.sqrt(width):7.1f}"]
        for each in (plain[-1], scaled[-1]):
            cells.append(f"{each.spread:13.2f}  {each.entropy:7.2f}  {each.gradient:8.4f}")
        print("  ".join(cells))
    print(
        f"""
All alike would be an entropy of ln {KEYS} = {math.log(KEYS):.2f}. Divided, a wide head starts as
open as a narrow one. Not divided, nothing is wrong yet at d = 4; but the wider the head, the more
queries have decided before they have learnt anything, and no gradient comes through to mend it."""
    )

    figure, (left, right) = new_figure(2)
    for axes, field, label in (
        (left, "entropy", "entropy of the weights (nats)"),
        (right, "gradient", "size of the softmax's gradient"),
    ):
        for results, name, style in ((plain, "not divided", "o--"), (scaled, "divided", "o-")):
            axes.plot(WIDTHS, [getattr(each, field) for each in results], style, label=name)
        axes.set_xscale("log", base=4)
        axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        axes.set_ylim(bottom=0.0)
        tidy(axes, x="width d of query and key", y=label)
    left.axhline(math.log(KEYS), color="grey", lw=1, ls=":")
    left.legend(frameon=False)
    save(figure, "step4", folder)


if __name__ == "__main__":
    main()
