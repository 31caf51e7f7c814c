"""Figures of chapter 5: masks."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from style import BLUE, INK, MUTED, ORANGE, curves, figure_of, new_figure, weight_table
from transformer_blocks import SingleHeadAttention

VOCABULARY, LENGTH = 8, 10


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
