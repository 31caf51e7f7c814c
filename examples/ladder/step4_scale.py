"""Step 4: why the scores are divided by sqrt(d).

    python examples/ladder/step4_scale.py

A score is a sum of d products. If the components of query and key are independent random numbers
with mean 0 and variance 1, so are the products, and the score has a standard deviation of sqrt(d)
(section 3.2.1 of the paper). With growing d, the scores lie further apart, until the softmax
saturates: one weight is almost 1, the others almost 0. Then its gradient vanishes, because the
derivative of a weight w_i by its own score is w_i (1 - w_i). Dividing the scores by sqrt(d) keeps
their standard deviation at 1.

Two measures, for 1,000 queries and 32 keys: the *entropy* of the weights, in nats (ln 32 = 3.47 if
all weights are equal, 0 if one is 1), and the norm of the softmax's Jacobian, the median over the
queries.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from drawing import FOLDER, new_figure, save, tidy

QUERIES, KEYS = 1000, 32
SIZES = [4, 16, 64, 256, 1024]


class Measures(NamedTuple):
    """Measures of the scores for one head size.

    Attributes:
        deviation: Standard deviation of the scores.
        entropy: Mean entropy of the weights, in nats.
        gradient: Median norm of the softmax's Jacobian.
    """

    deviation: float
    entropy: float
    gradient: float


def measure(scores: Tensor) -> Measures:
    """Measure scores of shape (queries, keys) and the weights that follow from them."""
    weights = scores.softmax(dim=-1)
    entropy = -(weights * scores.log_softmax(dim=-1)).sum(dim=-1).mean()
    # The Jacobian of a softmax is diag(w) - w w^T.
    jacobian = weights.diag_embed() - weights[:, :, None] * weights[:, None, :]
    gradient = jacobian.flatten(1).norm(dim=-1).median()
    return Measures(scores.std().item(), entropy.item(), gradient.item())


def main(folder: Path = FOLDER) -> None:
    """Print and draw the measures for several head sizes, unscaled and scaled."""
    torch.manual_seed(0)
    unscaled, scaled = [], []
    print("                  unscaled                          divided by sqrt(d)")
    print("    d   sqrt(d)" + 2 * "  std of scores  entropy  gradient")
    for size in SIZES:
        scores = torch.randn(QUERIES, size) @ torch.randn(size, KEYS)
        unscaled.append(measure(scores))
        scaled.append(measure(scores / math.sqrt(size)))
        cells = [f"{size:5d}   {math.sqrt(size):7.1f}"]
        for each in (unscaled[-1], scaled[-1]):
            cells.append(f"{each.deviation:13.2f}  {each.entropy:7.2f}  {each.gradient:8.4f}")
        print("  ".join(cells))
    print(
        f"""
Equal weights would have an entropy of ln {KEYS} = {math.log(KEYS):.2f}. Scaled, the measures hardly
depend on d. Unscaled, the entropy falls with d. The Jacobian's norm is largest at d = 16 and then
falls: the larger d, the more queries have saturated weights before training has begun, and almost
no gradient to change them."""
    )

    figure, (left, right) = new_figure(2)
    for axes, field, label in (
        (left, "entropy", "entropy of the weights (nats)"),
        (right, "gradient", "norm of the softmax's Jacobian"),
    ):
        for results, name, style in ((unscaled, "unscaled", "o--"), (scaled, "scaled", "o-")):
            axes.plot(SIZES, [getattr(each, field) for each in results], style, label=name)
        axes.set_xscale("log", base=4)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.set_ylim(bottom=0.0)
        tidy(axes, x="head size d", y=label)
    left.axhline(math.log(KEYS), color="grey", lw=1, ls=":")
    left.legend(frameon=False)
    save(figure, "step4", folder)


if __name__ == "__main__":
    main()
