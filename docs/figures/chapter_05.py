"""Figures of chapter 5: masks."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    curves,
    figure,
    figure_of,
    new_figure,
    weight_table,
)
from transformer_blocks import SingleHeadAttention, attention_weights, causal_mask, padding_mask
from transformer_blocks.inspection import explain_mask

WORDS = ["猫", "は", "魚", "を", "食べ", "ます", "。", "pad"]
TOKENS = torch.tensor([[11, 12, 13, 14, 15, 16, 17, 0]])
VOCABULARY, LENGTH = 8, 10


def mask_table(
    axes: Axes, mask: Tensor, title: str, *, queries: list[str], keys: list[str]
) -> None:
    """Draw a mask of shape (L, S): masked positions are hatched, the others shaded."""
    weight_table(
        axes,
        (~mask).float().mul(0.35).tolist(),
        queries=queries,
        keys=keys,
        masked=mask.tolist(),
        title=title,
        show_numbers=False,
    )


@figure
def three_masks() -> Figure:
    """Draw the padding mask, the causal mask, both, and the weights of equal scores."""
    made = new_figure(6.4, 6.2)
    panels = made.subplots(2, 2).flatten()
    padding = padding_mask(TOKENS)[0, 0].expand(8, 8)
    masks = {
        "padding mask": padding,
        "causal mask": causal_mask(8),
        "padding | causal": padding | causal_mask(8),
    }
    for axes, (title, mask) in zip(panels, masks.items(), strict=False):
        mask_table(axes, mask, title, queries=WORDS, keys=WORDS)
    both = masks["padding | causal"]
    zeros = torch.zeros(1, 1, 8, 4)
    weights = attention_weights(zeros, zeros, mask=both)[0, 0]
    weight_table(
        panels[3],
        weights.tolist(),
        queries=WORDS,
        keys=WORDS,
        masked=both.tolist(),
        title="weights of equal scores",
        show_numbers=False,
    )
    for row, weight in enumerate(weights[:, 0].tolist()):
        panels[3].text(7.65, row, f"{weight:.2f}", color=MUTED, size=8.5, ha="left", va="center")
    for axes in panels[::2]:
        axes.set_ylabel("query")
    return made


@figure
def alignment() -> Figure:
    """Draw causal masks of two queries and five keys, aligned to either corner."""
    made = new_figure(6.4, 1.9)
    panels = made.subplots(1, 2)
    top_left = torch.ones(2, 5, dtype=torch.bool).triu(1)
    masks = {
        "bottom right: this library": causal_mask(2, 5),
        "top left: is_causal=True of torch": top_left,
    }
    for axes, (title, mask) in zip(panels, masks.items(), strict=True):
        mask_table(axes, mask, title, queries=["3", "4"], keys=list("01234"))
        axes.set_xlabel("position of the key")
    panels[0].set_ylabel("position\nof the query")
    return made


@figure
def mask_painter() -> Figure:
    """Draw the mask that the painter shows first, with its warnings."""
    made = new_figure(4.4, 4.3)
    axes = made.subplots()
    mask = padding_mask(TOKENS)[0, 0] | causal_mask(8)
    mask_table(axes, mask, "", queries=WORDS, keys=WORDS)
    axes.set_ylabel("query")
    warnings = explain_mask(mask).warnings
    text = "\n".join(f"warning: {each}" for each in warnings) or "no warning"
    axes.text(3.5, 8.0, text, color=INK, ha="center", va="center", size=10)
    return made


def predict(layer: SingleHeadAttention, tokens: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the logits of each next token, as in the chapter, and the attention weights."""
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    parts = [F.one_hot(tokens, VOCABULARY), F.one_hot(positions, LENGTH)]
    x = torch.cat(parts, dim=-1).float()
    weights = layer.attention_weights(x, x, causal=causal)
    return layer(x, x, x, causal=causal)[..., :VOCABULARY], weights


def train(*, causal: bool, steps: int = 300) -> tuple[SingleHeadAttention, list[float]]:
    """Train the chapter's model, and return it with the loss of each step."""
    torch.manual_seed(0)
    layer = SingleHeadAttention(VOCABULARY + LENGTH)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (64, LENGTH + 1))
        logits, _ = predict(layer, tokens[:, :-1], causal=causal)
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return layer, losses


def losses_and_weights() -> dict[str, Any]:
    """Compute the losses with and without a causal mask, and the weights of the model without."""
    leaking, leaking_losses = train(causal=False)
    _, masked_losses = train(causal=True)
    tokens = torch.randint(VOCABULARY, (500, LENGTH))
    with torch.no_grad():
        weights = predict(leaking, tokens, causal=False)[1].mean(dim=(0, 1))
    return {
        "masked": masked_losses[::10],
        "leaking": leaking_losses[::10],
        "weights": weights.tolist(),
    }


@figure_of(losses_and_weights)
def leak(masked: list[float], leaking: list[float], weights: Sequence[Sequence[float]]) -> Figure:
    """Draw the losses with and without a causal mask, and the weights of the model without."""
    made = new_figure(6.4, 3.0)
    left, right = made.subplots(1, 2, width_ratios=(1.25, 1))
    for losses, color, marker in ((masked, BLUE, "o"), (leaking, ORANGE, "s")):
        left.plot(range(0, 300, 10), losses, color=color, marker=marker, markevery=5)
    left.axhline(math.log(VOCABULARY), color=MUTED, ls=":", lw=1.2)
    left.text(295, 2.2, "causal mask: ln 8 = 2.08", ha="right", color=INK, size=9)
    left.text(295, 0.42, "no mask", ha="right", color=INK, size=9)
    left.set_ylim(0, 2.5)
    curves(left, x="update", y="training loss")
    names = [str(position) for position in range(LENGTH)]
    weight_table(right, weights, queries=names, keys=names, show_numbers=False)
    right.set_xlabel("no mask: position of the key")
    right.set_ylabel("position of the query")
    return made
