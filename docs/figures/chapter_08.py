"""Figures of chapter 8: a layer that trains."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    arrow,
    box,
    canvas,
    curves,
    figure,
    figure_of,
    new_figure,
    note,
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

SUBLAYERS = [("attention", BLUE), ("feed-\nforward", ORANGE)] * 2


@figure
def residual_stream() -> Figure:
    """Draw the residual streams of two layers, with post-norm and with pre-norm."""
    made, axes = canvas(10, 6.9)
    note(axes, 0.15, 0.3, "post-norm (the paper)", color=INK, size=11, ha="left")
    note(axes, 0.15, 3.55, "pre-norm", color=INK, size=11, ha="left")
    _stream(axes, 2.7, is_pre_norm=False)
    _stream(axes, 6.4, is_pre_norm=True)
    return made


def _stream(axes: Axes, y: float, *, is_pre_norm: bool) -> None:
    """Draw one residual stream with four sublayers above it."""
    note(axes, 0.25, y, "x", color=INK, size=11)
    top = y - (2.4 if is_pre_norm else 1.9)
    start = 0.5  # of the next piece of the stream
    for number, (name, color) in enumerate(SUBLAYERS):
        x = 0.8 + 2.15 * number
        plus = x + 1.05
        if is_pre_norm:
            arrow(axes, (x, y), (x, y - 0.5))
            _norm(axes, x, y - 0.72)
            arrow(axes, (x, y - 0.95), (x, top + 0.82))
        else:
            arrow(axes, (x, y), (x, top + 0.82))
        box(axes, x - 0.55, top, 1.3, 0.8, name, color=color, alpha=0.35, size=9)
        axes.plot(
            [x + 0.75, plus, plus], [top + 0.4, top + 0.4, y - 0.5], color=MUTED, lw=1.2, marker=""
        )
        arrow(axes, (plus, y - 0.5), (plus, y - 0.16))
        _line(axes, start, plus - 0.15, y)
        axes.plot(plus, y, color="none", marker="o", markersize=11, markeredgecolor=GREEN)
        note(axes, plus, y, "+", color=INK, size=11)
        start = plus + 0.15
        if not is_pre_norm or number == len(SUBLAYERS) - 1:
            _line(axes, start, plus + 0.27, y)
            _norm(axes, plus + 0.62, y)
            start = plus + 0.97
    _line(axes, start, 9.6, y)
    arrow(axes, (9.4, y), (9.9, y), color=GREEN, width=3)


def _line(axes: Axes, start: float, end: float, y: float) -> None:
    """Draw a piece of a residual stream."""
    axes.plot([start, end], [y, y], color=GREEN, lw=4, marker="", solid_capstyle="butt")


def _norm(axes: Axes, x: float, y: float) -> None:
    """Draw a layer normalisation, given its centre."""
    box(axes, x - 0.35, y - 0.22, 0.7, 0.44, "norm", color=PURPLE, alpha=0.4, size=8.5)


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
