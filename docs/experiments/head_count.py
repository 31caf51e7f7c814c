"""Heads: one, two and four heads on a task that needs two values for each query.

    python docs/experiments/head_count.py

The task is that of chapter 6: every item has a name, a colour and the names of two friends, and a
query must return the colour of each friend. A head returns one weighted sum of values, to which a
linear output projection is applied. How well can a single head do, and what does a trained one do?

Let the weights be a for the first friend and 1 - a for the second, and let the values be the
colours. The logits of an answer are then linear in a * colour_1 + (1 - a) * colour_2.

- With a > 1/2, the larger component is the colour of the first friend: answer 1 is always right.
- Answer 2 is linear in the same vector. For two colours x and y, the cases (x, y) and (y, x) are
  two points between (x, x) and (y, y), the first of them nearer to (x, x). If answer 2 is right in
  both, x wins against y at the point nearer to (y, y), and the reverse; by linearity, x then wins
  at (y, y) and y at (x, x), where answer 2 is wrong. Besides, for any third colour z at most one of
  (z, x) and (z, y) is right: in the first, the value of z must favour x over y, and in the second y
  over x. So two right cases cost more than they gain: at best, answer 2 is right in the 4 cases
  (x, x) and in one of each (x, y) and (y, x), which is 10 of 16 cases, 0.625.

The best mean accuracy of such a head is (1 + 0.625) / 2 = 0.8125, and ``best_single_head`` reaches
it: a bias that is larger than the difference of the weights decides between the two colours. Equal
weights, or all weight on one friend, reach 0.625. The bound holds if the weights depend on the role
of an item (first or second friend) and the values on its colour. A head that also treats the names
differently can exceed it: ``accuracy_with_names`` is 0.90625.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from experiment import Experiment, new_parser, positive, run_single_threaded
from transformer_blocks import MultiHeadAttention

COMMAND = "python docs/experiments/head_count.py"
HEADS = (1, 2, 4)
ITEMS, COLOURS, FRIENDS = 6, 4, 2
D_MODEL = 32  # 6 for the name, 2 * 6 for the friends, 4 for the colour; the others are zero
COLOUR = slice(3 * ITEMS, 3 * ITEMS + COLOURS)
SPREAD, CONCENTRATED = 0.25, 0.75


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


def train(layer: MultiHeadAttention, steps: int) -> None:
    """Train a layer."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        x, target = make_batch(64)
        loss = F.cross_entropy(colour_logits(layer(x, x, x)).flatten(0, 2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def positions_of_friends(x: Tensor) -> Tensor:
    """Find the positions of both friends of every item: (B, L, D_MODEL) to (B, L, 2)."""
    names = x[..., :ITEMS].argmax(-1)  # (B, L)
    friends = x[..., ITEMS : 3 * ITEMS].unflatten(-1, (FRIENDS, ITEMS)).argmax(-1)  # (B, L, 2)
    return names.argsort(-1)[:, None, :].expand(-1, ITEMS, -1).gather(2, friends)


@torch.no_grad()
def measure(layer: MultiHeadAttention, *, seed: int, sequences: int = 2000) -> dict[str, Any]:
    """Measure accuracy, loss and attention weights of a layer on new sequences.

    A head *attends to both* friends if each has a weight above 0.25, and *to one* if one has a
    weight above 0.75.
    """
    torch.manual_seed(seed)
    x, target = make_batch(sequences)
    logits = colour_logits(layer(x, x, x))
    right = (logits.argmax(-1) == target).float()  # (B, L, 2)
    differ = target[..., 0] != target[..., 1]
    positions = positions_of_friends(x)[:, None].expand(-1, layer.num_heads, -1, -1)
    weights = layer.attention_weights(x, x).gather(3, positions)  # (B, H, L, 2)
    return {
        "accuracy": right.mean().item(),
        "accuracy_of_each_friend": right.mean((0, 1)).tolist(),
        "accuracy_if_colours_differ": right[differ].mean(0).tolist(),
        "loss": F.cross_entropy(logits.flatten(0, 2), target.flatten()).item(),
        "mean_weight_of_each_friend": weights.mean((0, 2)).tolist(),  # by head
        "attends_to_both": (weights.amin(-1) > SPREAD).float().mean((0, 2)).tolist(),
        "attends_to_one": (weights.amax(-1) > CONCENTRATED).float().mean((0, 2)).tolist(),
    }


@torch.no_grad()
def best_single_head() -> MultiHeadAttention:
    """Build the head of the bound: weights 0.55 and 0.45, and a bias that orders the colours."""
    layer = MultiHeadAttention(D_MODEL, 1)
    for parameter in layer.parameters():
        parameter.zero_()
    scale = D_MODEL**0.5
    names = torch.eye(ITEMS)
    high = 30.0
    low = high - torch.tensor(0.55 / 0.45).log().item()  # softmax of both: 0.55 and 0.45
    layer.key_projection.weight[:ITEMS, :ITEMS] = names
    layer.query_projection.weight[:ITEMS, ITEMS : 2 * ITEMS] = scale * high * names
    layer.query_projection.weight[:ITEMS, 2 * ITEMS : 3 * ITEMS] = scale * low * names
    layer.value_projection.weight[:4, COLOUR] = torch.eye(4)
    layer.output_projection.weight[:4, :4] = torch.eye(4)
    layer.output_projection.weight[4:8, :4] = torch.eye(4)
    # Steps of 0.12 exceed 0.55 - 0.45; in sum they are below 0.45, so no absent colour wins.
    layer.output_projection.bias[4:8] = 0.12 * torch.arange(4.0)
    return layer


def accuracy_with_names() -> float:
    """Compute the accuracy of a head whose values and bias depend on the names, in float64.

    The weights of the friends differ by a factor close to 1. For answer 2, the value of an item is
    scaled by its name, so that a later name in the alphabet wins; the query's own value, with a
    small constant weight, adds a bias that depends on the name of its first friend.
    """
    step, right, cases = 1e-7, 0, 0
    scale = [math.exp(step * 8**name) for name in range(ITEMS)]
    weight = 1 / (1 + math.exp(-0.05 * step))
    for first, second in itertools.permutations(range(ITEMS), 2):
        for colours in itertools.product(range(COLOURS), repeat=FRIENDS):
            answers = [[0.0] * COLOURS, [0.6 * step * 8**first * k for k in range(COLOURS)]]
            for friend, part, colour in zip(
                (first, second), (weight, 1 - weight), colours, strict=True
            ):
                answers[0][colour] += part
                answers[1][colour] += part * scale[friend]
            right += sum(
                max(range(COLOURS), key=answer.__getitem__) == colour
                for answer, colour in zip(answers, colours, strict=True)
            )
            cases += FRIENDS
    return right / cases


def main(arguments: Sequence[str] | None = None) -> None:
    """Train layers with 1, 2 and 4 heads and several seeds, and record what they do."""
    parser = new_parser(__doc__, seeds=range(5))
    parser.add_argument("--updates", type=positive, default=800)
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    results: dict[str, Any] = {
        "best_single_head": measure(best_single_head(), seed=1_000_000),
        "accuracy_with_names": accuracy_with_names(),
    }
    for heads in HEADS:
        runs = []
        for seed in options.seeds:
            torch.manual_seed(seed)
            layer = MultiHeadAttention(D_MODEL, heads)
            train(layer, options.updates)
            runs.append({"seed": seed, **measure(layer, seed=1_000_000 + seed)})
            print(f"{heads} heads, seed {seed}: accuracy {runs[-1]['accuracy']:.4f}", flush=True)
        accuracies = [run["accuracy"] for run in runs]
        results[f"heads_{heads}"] = {
            "accuracy_mean": mean(accuracies),
            "accuracy_spread": stdev(accuracies) if len(accuracies) > 1 else 0.0,
            "runs": runs,
        }
    settings = {"updates": options.updates, "d_model": D_MODEL, "items": ITEMS}
    print(experiment.write("head_count", settings, results))


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
