"""Figures of chapter 7: the words of a trained embedding."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import COLORS, MUTED, arrow, figure_of, new_figure

GROUPS = {
    "people": "doctor teacher student singer actor child",
    "animals": "cat dog bird rabbit",
    "numbers": "two three four five six seven",
    "colours": "red blue white black",
    "verbs, past": "ate drank bought wrote sang made",
    "verbs, -s": "eats drinks plays writes sings makes",
}
SHOWN = "eat:ate buy:bought write:wrote sing:sang go:went teach:taught"


def coordinates() -> dict[str, Any]:
    """Train the chapter's translator, and project the rows of some words on two directions."""
    chapter = definitions("07_embeddings", until="def count_found")
    table = chapter["train_translator"]().target_embedding.weight.detach()
    ids = chapter["ids_of_words"]
    chosen = table[[ids[word] for group in GROUPS.values() for word in group.split()]]
    _, _, axes = torch.linalg.svd(chosen - chosen.mean(dim=0), full_matrices=False)
    points = ((chosen - chosen.mean(dim=0)) @ axes[:2].T).tolist()
    first, second = torch.tensor(chapter["regular"]).T
    past = (table[second] - table[first]).mean(dim=0)
    past = past / past.norm()
    verbs = [pair.split(":") for pair in SHOWN.split()]
    rows = table[torch.tensor([[ids[word] for word in pair] for pair in verbs])]  # (verbs, 2, d)
    means = rows.mean(dim=1)
    rest = means - (means @ past)[:, None] * past
    _, _, other = torch.linalg.svd(rest - rest.mean(dim=0), full_matrices=False)
    lines = torch.stack([rows @ past, rows @ other[0]], dim=-1).tolist()
    return {"points": points, "lines": lines}


@figure_of(coordinates)
def word_map(points: list[list[float]], lines: list[list[list[float]]]) -> Figure:
    """Draw groups of words, and irregular verbs along the direction of the regular ones."""
    made = new_figure(6.8, 3.9)
    left, right = made.subplots(1, 2)
    axes: Axes
    places = iter(points)
    for (name, group), color in zip(GROUPS.items(), COLORS, strict=False):
        words = group.split()
        x, y = zip(*(next(places) for _ in words), strict=True)
        left.plot(x, y, ls="", color=color, label=name)
    left.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=2)
    left.set_title("groups of words")
    for (start, end), pair in zip(lines, SHOWN.split(), strict=True):
        first, second = pair.split(":")
        arrow(right, (start[0], start[1]), (end[0], end[1]), color=COLORS[0], width=1.2)
        right.text(start[0] - 0.03, start[1], first, ha="right", va="center", size=9)
        right.text(end[0] + 0.03, end[1], second, ha="left", va="center", size=9)
    right.set_title("present to past")
    right.set_xlabel("along the direction of the regular verbs")
    x, y = zip(*(point for line in lines for point in line), strict=True)
    right.set_xlim(min(x) - 0.5, max(x) + 0.6)
    right.set_ylim(min(y) - 0.15, max(y) + 0.15)
    for axes in (left, right):
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color(MUTED)
    return made
