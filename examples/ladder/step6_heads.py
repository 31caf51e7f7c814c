"""Step 6: several heads.

    python examples/ladder/step6_heads.py

A softmax gives one mixture. Whoever needs two things gets them stirred together, and cannot tell
which came from where. Several heads, each with a part of the width, look at several places at once
and keep the answers apart.

The task of step 3 with two friends: tell the colour of the first, and of the second. One head may
find both; but half red and half blue is the same, whichever friend is the red one. (It could take
more of one than of the other. Yet the linear map that follows can only tell which is more.)
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import MultiHeadAttention

ITEMS, COLOURS, FRIENDS = 6, 4, 2
WIDTH = 32  # 6 for the name, 2 * 6 for the friends, 4 for the colour; the rest is room for answers
NAMES = "ABCDEF"


def sentences(count: int) -> tuple[Tensor, Tensor]:
    """Make items, (count, ITEMS, WIDTH), and the colours of their friends, (count, ITEMS, 2)."""
    names = torch.rand(count, ITEMS).argsort(dim=-1)
    lots = torch.rand(count, ITEMS, ITEMS) + 2 * F.one_hot(names, ITEMS)  # nobody draws oneself
    friends = lots.argsort(dim=-1)[..., :FRIENDS]
    colours = torch.randint(COLOURS, (count, ITEMS))
    x = torch.zeros(count, ITEMS, WIDTH)
    x[..., :ITEMS] = F.one_hot(names, ITEMS)
    x[..., ITEMS : 3 * ITEMS] = F.one_hot(friends, ITEMS).flatten(2)
    x[..., 3 * ITEMS : 3 * ITEMS + COLOURS] = F.one_hot(colours, COLOURS)
    colour_of = colours.gather(1, names.argsort(dim=-1))  # by name
    return x, colour_of[:, None, :].expand(-1, ITEMS, -1).gather(2, friends)


def told(answer: Tensor) -> Tensor:
    """Read both colours out of an answer. Shape (B, L, 2, COLOURS)."""
    return answer[..., : FRIENDS * COLOURS].unflatten(-1, (FRIENDS, COLOURS))


def train(layer: MultiHeadAttention, steps: int = 800) -> float:
    """Learn the task; return which part of the colours is right at last."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        x, right = sentences(64)
        loss = F.cross_entropy(told(layer(x, x, x)).flatten(0, 2), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, right = sentences(1000)
    return (told(layer(x, x, x)).argmax(-1) == right).float().mean().item()


def main(folder: Path = FOLDER) -> None:
    """Train layers of the same size with 1, 2 and 4 heads."""
    print("heads   width of a head   parameters   colours told right")
    layers = {}
    for heads in (1, 2, 4):
        torch.manual_seed(0)
        layer = layers[heads] = MultiHeadAttention(WIDTH, heads)
        size = sum(parameter.numel() for parameter in layer.parameters())
        print(f"{heads:5d} {WIDTH // heads:14d} {size:15d} {train(layer):15.2f}")
    print(
        """
The same number of weights, cut into heads. One head finds both friends but stirs their colours: it
is right where both have the same, a quarter of the time, and tosses a coin elsewhere, which makes
1/4 + 3/4 * 1/2 = 0.625. Two heads keep them apart. Two more have nothing left to find."""
    )

    x, _ = sentences(1)
    names = [NAMES[n] for n in x[0, :, :ITEMS].argmax(-1).tolist()]
    friends = x[0, :, ITEMS : 3 * ITEMS].unflatten(-1, (FRIENDS, ITEMS)).argmax(-1).tolist()
    rows = [
        f"{name}: {NAMES[first]}, {NAMES[second]}"
        for name, (first, second) in zip(names, friends, strict=True)
    ]
    figure, axes = new_figure(3)
    tables = [layers[1].attention_weights(x, x)[0, 0], *layers[2].attention_weights(x, x)[0]]
    titles = ["one head", "two heads: the first", "two heads: the second"]
    for panel, table, title in zip(axes, tables, titles, strict=True):
        heat_map(panel, table, rows=rows, columns=names, title=title)
    axes[0].set_ylabel("item: its two friends")
    save(figure, "step6", folder)


if __name__ == "__main__":
    main()
