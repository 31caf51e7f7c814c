"""Two friends: the task of chapter 6, in which a query needs two values.

Each item has a name, a colour and the names of two friends, and must return the colour of the first
friend and that of the second.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks import MultiHeadAttention

ITEMS, COLOURS, FRIENDS = 6, 4, 2
D_MODEL = 32  # 6 for the name, 2 * 6 for the friends, 4 for the colour; the others are zero


def make_batch(count: int) -> tuple[Tensor, Tensor]:
    """Make sequences of items in random order, and the colours of their two friends.

    Args:
        count: Number of sequences, B.

    Returns:
        Item vectors, of shape (B, ITEMS, D_MODEL), and target colours, of shape (B, ITEMS, 2).
    """
    names = torch.rand(count, ITEMS).argsort(dim=-1)
    order = torch.rand(count, ITEMS, ITEMS) + 2 * F.one_hot(names, ITEMS)  # the item itself is last
    friends = order.argsort(dim=-1)[..., :FRIENDS]
    colours = torch.randint(COLOURS, (count, ITEMS))
    x = torch.zeros(count, ITEMS, D_MODEL)
    x[..., :ITEMS] = F.one_hot(names, ITEMS)
    x[..., ITEMS : 3 * ITEMS] = F.one_hot(friends, ITEMS).flatten(2)
    x[..., 3 * ITEMS : 3 * ITEMS + COLOURS] = F.one_hot(colours, COLOURS)
    colour_of = colours.gather(1, names.argsort(dim=-1))  # by name
    return x, colour_of[:, None, :].expand(-1, ITEMS, -1).gather(2, friends)


def colour_logits(output: Tensor) -> Tensor:
    """Return the first features of an output, the logits of both colours: (B, L, 2, COLOURS)."""
    return output[..., : FRIENDS * COLOURS].unflatten(-1, (FRIENDS, COLOURS))


def train(layer: MultiHeadAttention, steps: int = 800) -> float:
    """Train a layer; return its accuracy on new sequences."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        x, target = make_batch(64)
        loss = F.cross_entropy(colour_logits(layer(x, x, x)).flatten(0, 2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, target = make_batch(1000)
    return (colour_logits(layer(x, x, x)).argmax(-1) == target).float().mean().item()


@torch.no_grad()
def measure_friends(layer: MultiHeadAttention) -> tuple[Tensor, Tensor]:
    """Measure a layer of one head on new items whose two friends have different colours.

    Args:
        layer: The layer.

    Returns:
        Mean attention weight of the first and of the second friend, and the accuracy of their
        colours, each of shape (2,).
    """
    x, target = make_batch(1000)
    differ = target[..., 0] != target[..., 1]
    right = (colour_logits(layer(x, x, x)).argmax(-1) == target)[differ].float().mean(0)
    position_of = x[..., :ITEMS].argmax(-1).argsort(-1)  # by name
    friends = x[..., ITEMS : 3 * ITEMS].unflatten(-1, (FRIENDS, ITEMS)).argmax(-1)
    keys = position_of[:, None, :].expand(-1, ITEMS, -1).gather(2, friends)
    weights = layer.attention_weights(x, x)[:, 0].gather(2, keys)
    return weights[differ].mean(0), right
