"""Step 3: learned questions, keys and values.

    python examples/ladder/step3_projections.py

A word plays three parts: it asks, it is found, and it says something. One vector cannot be good at
all three, so a layer learns a map for each: W^Q, W^K, W^V, and W^O for the answer.

The task: each item has a name, a colour, and a friend, whose colour it must tell. Its question is
its friend's name; the friend is found by *its own* name, and hands over its colour. All of it
stands in one vector, so without maps an item is most like itself, and finds no one else.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import SingleHeadAttention

ITEMS, COLOURS = 6, 4
WIDTH = 2 * ITEMS + COLOURS  # name, friend, colour: a one for what is meant, zeros besides
NAMES = "ABCDEF"


def sentences(count: int) -> tuple[Tensor, Tensor]:
    """Make items in random order, (count, ITEMS, WIDTH), and the colours of their friends."""
    names = torch.rand(count, ITEMS).argsort(dim=-1)
    friends = (names + torch.randint(1, ITEMS, (count, ITEMS))) % ITEMS  # anyone but oneself
    colours = torch.randint(COLOURS, (count, ITEMS))
    x = torch.cat(
        [F.one_hot(names, ITEMS), F.one_hot(friends, ITEMS), F.one_hot(colours, COLOURS)], dim=-1
    ).float()
    place_of_friend = (names[:, None, :] == friends[:, :, None]).int().argmax(dim=-1)
    return x, colours.gather(1, place_of_friend)


def told(answer: Tensor) -> Tensor:
    """Read the colour out of an answer: the last numbers are its scores. Shape (B, L, COLOURS)."""
    return answer[..., -COLOURS:]


def accuracy(answer: Tensor, right: Tensor) -> float:
    """Say which part of the answers is right."""
    return (told(answer).argmax(-1) == right).float().mean().item()


def train(layer: SingleHeadAttention, steps: int = 200) -> None:
    """Learn the four maps by gradient descent."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x, right = sentences(64)
        loss = F.cross_entropy(told(layer(x, x, x)).flatten(0, 1), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (1, 25, 50, 100, 200):
            print(f"  step {step:3d}: loss {loss.item():.3f}")


def main(folder: Path = FOLDER) -> None:
    """Learn to ask the friend; then ask the same layer from outside."""
    torch.manual_seed(0)
    x, right = sentences(500)
    raw = (x @ x.transpose(-2, -1)).softmax(-1) @ x
    print(f"A colour is guessed with {1 / COLOURS:.2f}. Right answers:")
    print(f"  raw vectors, no maps:   {accuracy(raw, right):.2f}")
    layer = SingleHeadAttention(WIDTH)
    print(f"  four maps, not trained: {accuracy(layer(x, x, x), right):.2f}")
    before = layer.attention_weights(x[:1], x[:1])[0, 0]
    train(layer)
    print(f"  four maps, trained:     {accuracy(layer(x, x, x), right):.2f}")
    after = layer.attention_weights(x[:1], x[:1])[0, 0]

    # Self-attention passed one sequence three times. Source-target attention asks with another one:
    # here with questions that have a friend's name and nothing else.
    questions = torch.zeros(500, ITEMS, WIDTH)
    questions[:, :, ITEMS : 2 * ITEMS] = torch.eye(ITEMS)
    colour_of = x[:, :, -COLOURS:].argmax(-1).gather(1, x[:, :, :ITEMS].argmax(-1).argsort(-1))
    found = accuracy(layer(questions, x, x), colour_of)
    print(f"\nThe same layer, asked from outside 'which colour has A, B, C ...?': {found:.2f}")

    names = [NAMES[place] for place in x[0, :, :ITEMS].argmax(-1).tolist()]
    friends = [NAMES[place] for place in x[0, :, ITEMS : 2 * ITEMS].argmax(-1).tolist()]
    rows = [f"{name} asks {friend}" for name, friend in zip(names, friends, strict=True)]
    figure, panels = new_figure(2, width=4.6)
    for axes, weights, title in zip(panels, (before, after), ("before", "after"), strict=True):
        heat_map(axes, weights, rows=rows, columns=names, title=f"{title} training")
    save(figure, "step3", folder)


if __name__ == "__main__":
    main()
