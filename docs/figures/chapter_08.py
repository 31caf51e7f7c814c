"""Figures of chapter 8: a layer that trains."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from style import (
    INK,
    ORANGE,
    curves,
    figure,
    figure_of,
    new_figure,
)
from transformer_blocks import (
    PostNorm,
    PreNorm,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
    noam_rate,
)
from transformer_blocks.inspection import ablate


class Sorter(nn.Module):
    """The model of the chapter: 12 layers that sort 8 symbols."""

    def __init__(self, residual: Callable[..., Residual]) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(8, 32)
        self.positions = SinusoidalPositionalEncoding(32)
        self.encoder = build_encoder(
            num_layers=12, d_model=32, num_heads=4, d_ff=128, dropout=0.0, residual=residual
        )
        self.output = nn.Linear(32, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute logits: (B, 8) to (B, 8, 8)."""
        return self.output(self.encoder(self.positions(self.embedding(tokens))))


def _without_norm(d_model: int, dropout: float) -> Residual:
    """Return a residual connection without normalisation."""
    return PostNorm(d_model, dropout=dropout, norm=nn.Identity())


def _gradient_norms(residual: Callable[..., Residual], *, has_residuals: bool) -> list[float]:
    """Compute log10 of the norm of each layer's gradient before training, as the chapter does."""
    torch.manual_seed(0)
    model = Sorter(residual)
    names = [name for name, part in model.named_modules() if isinstance(part, Residual)]
    tokens = torch.randint(8, (64, 8))
    with nullcontext() if has_residuals else ablate(model, residuals=names):
        logits = model(tokens).flatten(0, 1)
        F.cross_entropy(logits, tokens.sort(dim=1).values.flatten()).backward()
    gradients = [
        torch.cat([w.grad.flatten() for w in layer.parameters() if w.grad is not None])
        for layer in model.encoder.layers
    ]
    return [gradient.norm().log10().item() for gradient in gradients]


def gradients_of_stacks() -> dict[str, Any]:
    """Compute the gradients of four stacks; that of the first depends much on rounding."""
    return {
        "norms": {
            "residual only": _gradient_norms(_without_norm, has_residuals=True),
            "post-norm": _gradient_norms(PostNorm, has_residuals=True),
            "pre-norm": _gradient_norms(PreNorm, has_residuals=True),
            "neither": _gradient_norms(_without_norm, has_residuals=False),
        }
    }


@figure_of(gradients_of_stacks)
def layer_gradients(norms: dict[str, list[float]]) -> Figure:
    """Draw the gradient norm of each layer at initialisation, for four stacks."""
    made = new_figure(6.4, 3.0)
    axes = made.subplots()
    for name, logarithms in norms.items():
        axes.plot(range(1, 13), [10**each for each in logarithms], label=name)
    axes.set_yscale("log")
    axes.set_xticks(range(1, 13))
    curves(axes, x="layer", y="norm of the gradient")
    made.legend(loc="outside right center")
    return made


@figure
def learning_rate() -> Figure:
    """Draw the learning rate of the base model."""
    made = new_figure(6.4, 2.2)
    axes = made.subplots()
    steps = [1, *range(500, 100_001, 500)]
    rates = [1e4 * noam_rate(step, d_model=512) for step in steps]
    axes.plot(steps, rates, marker="")
    axes.plot(4000, 1e4 * noam_rate(4000, d_model=512), color=ORANGE, marker="o", markersize=6)
    axes.annotate(
        "step 4,000: 0.0007",
        (4000, 1e4 * noam_rate(4000, d_model=512)),
        (9000, 6.6),
        color=INK,
        va="center",
    )
    axes.set_ylim(0)
    axes.set_xticks(range(0, 100_001, 20_000), [f"{step:,}" for step in range(0, 100_001, 20_000)])
    curves(axes, x="step", y="rate in 1/10,000")
    return made
