"""Figures of chapter 3: queries, keys, values."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    SKY,
    arrow,
    box,
    canvas,
    figure,
    figure_of,
    new_figure,
    note,
    weight_table,
)
from transformer_blocks import SingleHeadAttention

TOKENS = ["猫", "魚", "食べ"]
X = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
W_Q = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 2, 0]])
W_K = torch.eye(3)
W_V = torch.diag(torch.tensor([1.0, 1, 0]))


def vector(numbers: torch.Tensor) -> str:
    """Write a vector, with as few decimals as possible."""
    return "(" + ", ".join(f"{number:g}" for number in numbers.tolist()) + ")"


@figure
def three_roles() -> Figure:
    """Draw the projections of one vector, and attention with its query."""
    made, axes = canvas(10, 7.0)
    token = 2
    query, keys, values = X[token] @ W_Q, X @ W_K, X @ W_V
    weights = (keys @ query).softmax(0)
    output = weights @ values

    note(axes, 1.25, 0.72, "vector of 食べ", color=INK, size=10.5)
    box(axes, 0.5, 1.05, 1.5, 0.6, vector(X[token]))
    roles = [
        ("Q", query, SKY, "query: which tokens 食べ needs"),
        ("K", keys[token], ORANGE, "key: which queries find 食べ"),
        ("V", values[token], GREEN, "value: what 食べ gives to them"),
    ]
    for row, (name, projected, color, role) in enumerate(roles):
        y = 0.45 + 0.9 * row
        arrow(axes, (2.1, 1.35), (3.85, y))
        offset = (-0.3, -0.2, 0.3)[row]
        note(axes, 3.0, (1.35 + y) / 2 + offset, f"$W^{name}$", color=INK, size=11)
        box(axes, 3.95, y - 0.3, 1.5, 0.6, vector(projected), color=color, alpha=0.4)
        note(axes, 5.7, y, role, color=INK, size=10, ha="left")

    columns = {"key": 1.9, "score": 3.9, "weight": 5.85, "value": 7.5}
    for name, x in columns.items():
        note(axes, x, 3.75, name, color=INK, size=10.5)
    box(axes, 3.15, 2.85, 1.5, 0.55, vector(query), color=SKY, alpha=0.4)
    note(axes, 2.95, 3.12, "query of 食べ", color=INK, size=10.5, ha="right")
    for row, (word, key, weight, value) in enumerate(
        zip(TOKENS, keys, weights.tolist(), values, strict=True)
    ):
        y = 4.35 + 0.85 * row
        note(axes, 0.6, y, word, color=INK, size=11)
        box(axes, columns["key"] - 0.75, y - 0.3, 1.5, 0.6, vector(key), color=ORANGE, alpha=0.4)
        arrow(axes, (2.7, y), (3.5, y))
        box(axes, columns["score"] - 0.35, y - 0.3, 0.7, 0.6, f"{key @ query:g}")
        arrow(axes, (4.3, y), (5.0, y))
        box(axes, 5.05, y - 0.3, 1.6, 0.6, color=PANEL)
        box(axes, 5.05, y - 0.3, 1.6 * weight, 0.6, color=BLUE, alpha=0.45)
        note(axes, columns["weight"], y, f"{weight:.3f}", color=INK, size=10)
        box(axes, columns["value"] - 0.7, y - 0.3, 1.4, 0.6, vector(value), color=GREEN, alpha=0.4)
        arrow(axes, (8.25, y), (8.6, 5.2 + 0.15 * (row - 1)))
    text = ",\n".join(f"{number:.2f}" for number in output.tolist())
    box(axes, 8.65, 4.6, 1.2, 1.2, f"({text})", color=GREEN, alpha=0.55)
    note(axes, 9.25, 4.3, "output", color=INK, size=10.5)
    note(axes, 2.9, 6.7, "1. dot products")
    note(axes, 5.3, 6.7, "2. softmax")
    note(axes, 8.0, 6.7, "3. weighted sum")
    return made


def make_batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make sequences of six items, and the colours of the items' friends."""
    names = torch.rand(count, 6).argsort(dim=-1)
    friends = (names + torch.randint(1, 6, (count, 6))) % 6
    colours = torch.randint(4, (count, 6))
    parts = [F.one_hot(names, 6), F.one_hot(friends, 6), F.one_hot(colours, 4)]
    place = (names[:, None, :] == friends[:, :, None]).int().argmax(dim=-1)
    return torch.cat(parts, dim=-1).float(), colours.gather(1, place)


def train(layer: SingleHeadAttention, steps: int = 200) -> SingleHeadAttention:
    """Train a layer as the chapter does."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(steps):
        x, target = make_batch(64)
        loss = F.cross_entropy(layer(x, x, x)[..., 12:].flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


def weights_of_friends() -> dict[str, Any]:
    """Compute the weights of an untrained layer, one with a shared matrix, and a trained one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, _ = make_batch(1)
        layers = [SingleHeadAttention(16, scale=1.0, bias=False) for _ in range(3)]
        layers[1].key_projection = layers[1].query_projection
        for layer in layers[1:]:
            train(layer)
    return {
        "names": x[0, :, :6].argmax(-1).tolist(),
        "friends": x[0, :, 6:12].argmax(-1).tolist(),
        "tables": [layer.attention_weights(x, x)[0, 0].tolist() for layer in layers],
    }


@figure_of(weights_of_friends)
def friends(
    names: list[int], friends: list[int], tables: Sequence[Sequence[Sequence[float]]]
) -> Figure:
    """Draw the weights of an untrained layer, of one with a shared matrix, and of a trained one."""
    keys = ["ABCDEF"[name] for name in names]
    queries = [f"{'ABCDEF'[n]} → {'ABCDEF'[f]}" for n, f in zip(names, friends, strict=True)]
    titles = ["before training", "trained, $W^Q = W^K$", "trained"]
    made = new_figure(6.4, 2.5)
    for axes, weights, title in zip(made.subplots(1, 3), tables, titles, strict=True):
        weight_table(axes, weights, queries=queries, keys=keys, title=title, show_numbers=False)
        for row, friend in enumerate(friends):
            corner = (names.index(friend) - 0.5, row - 0.5)
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor="none", edgecolor=ORANGE, lw=2, clip_on=False)
            )
    return made
