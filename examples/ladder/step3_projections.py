"""Step 3: learned queries, keys and values.

    python examples/ladder/step3_projections.py

In self-attention, one vector serves as query, as key and as value. These are three different roles,
so a layer learns a linear projection for each, W^Q, W^K and W^V, and a fourth, W^O, for the output.

The task: each item has a name, a colour, and the name of a friend, and must return its friend's
colour. The query should be the friend's name, the key the item's *own* name, and the value its
colour. One vector holds all three. Without projections, an item's vector is most similar to itself,
and attends mostly to itself.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from drawing import FOLDER, heat_map, new_figure, save
from transformer_blocks import SingleHeadAttention

ITEMS, COLOURS = 6, 4
D_MODEL = 2 * ITEMS + COLOURS  # name, friend and colour, each one-hot
NAMES = "ABCDEF"


def make_batch(count: int) -> tuple[Tensor, Tensor]:
    """Make sequences of items in random order, and the colours of their friends.

    Args:
        count: Number of sequences, B.

    Returns:
        Item vectors, of shape (B, ITEMS, D_MODEL), and target colours, of shape (B, ITEMS).
    """
    names = torch.rand(count, ITEMS).argsort(dim=-1)
    friends = (names + torch.randint(1, ITEMS, (count, ITEMS))) % ITEMS  # never the item itself
    colours = torch.randint(COLOURS, (count, ITEMS))
    x = torch.cat(
        [F.one_hot(names, ITEMS), F.one_hot(friends, ITEMS), F.one_hot(colours, COLOURS)], dim=-1
    ).float()
    position_of_friend = (names[:, None, :] == friends[:, :, None]).int().argmax(dim=-1)
    return x, colours.gather(1, position_of_friend)


def colour_logits(output: Tensor) -> Tensor:
    """Return the last features of an output, the logits of its colour: (B, L, COLOURS)."""
    return output[..., -COLOURS:]


def accuracy(output: Tensor, target: Tensor) -> float:
    """Return the share of colours that are predicted correctly."""
    return (colour_logits(output).argmax(-1) == target).float().mean().item()


def train(layer: SingleHeadAttention, steps: int = 200) -> None:
    """Learn the four projections by gradient descent."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x, target = make_batch(64)
        loss = F.cross_entropy(colour_logits(layer(x, x, x)).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (1, 25, 50, 100, 200):
            print(f"  step {step:3d}: loss {loss.item():.3f}")


def main(folder: Path = FOLDER) -> None:
    """Train the projections; then use the same layer for cross-attention."""
    torch.manual_seed(0)
    x, target = make_batch(500)
    unprojected = (x @ x.transpose(-2, -1)).softmax(-1) @ x
    print(f"Accuracy, where a random guess has {1 / COLOURS:.2f}:")
    print(f"  no projections:        {accuracy(unprojected, target):.2f}")
    layer = SingleHeadAttention(D_MODEL)
    print(f"  untrained projections: {accuracy(layer(x, x, x), target):.2f}")
    before = layer.attention_weights(x[:1], x[:1])[0, 0]
    train(layer)
    print(f"  trained projections:   {accuracy(layer(x, x, x), target):.2f}")
    after = layer.attention_weights(x[:1], x[:1])[0, 0]

    # Self-attention takes queries, keys and values from one sequence. Cross-attention takes the
    # queries from another: here from vectors that hold a friend's name and nothing else.
    queries = torch.zeros(500, ITEMS, D_MODEL)
    queries[:, :, ITEMS : 2 * ITEMS] = torch.eye(ITEMS)
    colour_of = x[:, :, -COLOURS:].argmax(-1).gather(1, x[:, :, :ITEMS].argmax(-1).argsort(-1))
    found = accuracy(layer(queries, x, x), colour_of)
    print(
        "\nThe same layer in cross-attention, with the queries A, B, C ... from another sequence:"
    )
    print(f"  accuracy: {found:.2f}")

    names = [NAMES[index] for index in x[0, :, :ITEMS].argmax(-1).tolist()]
    friends = [NAMES[index] for index in x[0, :, ITEMS : 2 * ITEMS].argmax(-1).tolist()]
    labels = [f"{name}, friend of {friend}" for name, friend in zip(names, friends, strict=True)]
    figure, panels = new_figure(2, width=4.6)
    for axes, weights, title in zip(panels, (before, after), ("before", "after"), strict=True):
        heat_map(axes, weights, queries=labels, keys=names, title=f"{title} training")
    save(figure, "step3", folder)


if __name__ == "__main__":
    main()
