"""Table 1 of the paper, measured: self-attention beside recurrent and convolutional layers.

    python examples/paper/table1.py

Section 4 compares four kinds of layers, each of which maps a sequence of n vectors of size d to
another one. Here each layer is a function of a tensor of shape (1, n, d), and three numbers are
measured:

- *complexity*: the floating-point operations of the layer, as ``torch.utils.flop_counter`` counts
  them; one multiplication and one addition are two operations.
- *sequential operations*: the longest chain of matrix products of which each needs the result of
  the one before, read from the graph that autograd records.
- *maximum path length*: the number of layers, or of recurrent steps, until the last output depends
  on the first input. That input is replaced by NaN, and the outputs that become NaN are found.

The layers are those of the table: attention without its projections, since the table's n^2 d is the
cost of the scores and of the weighted sums alone.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_blocks import scaled_dot_product_attention

Layer = Callable[[Tensor], Tensor]


class Measured(NamedTuple):
    """The three numbers of a layer.

    Attributes:
        operations: Number of floating-point operations.
        sequential: Number of matrix products in the longest chain.
        path: Maximum path length, in layers or recurrent steps.
    """

    operations: int
    sequential: int
    path: int


def self_attention(x: Tensor) -> Tensor:
    """Attend from every position to every position, without projections."""
    x = x.unsqueeze(1)  # one head: (1, 1, n, d)
    output, _ = scaled_dot_product_attention(x, x, x)
    return output.squeeze(1)


def restricted_self_attention(x: Tensor, *, neighbours: int) -> Tensor:
    """Attend from every position to the ``neighbours`` positions around it (an odd number, r)."""
    length = x.shape[1]
    positions = torch.arange(length)[:, None] + torch.arange(neighbours) - neighbours // 2  # (n, r)
    outside = (positions < 0) | (positions >= length)
    keys = x[0, positions.clamp(0, length - 1)].unsqueeze(1)  # (n, 1, r, d): one batch row a query
    queries = x[0, :, None, None]  # (n, 1, 1, d)
    output, _ = scaled_dot_product_attention(queries, keys, keys, mask=outside[:, None, None])
    return output.reshape(x.shape)


class Recurrent(nn.Module):
    """A recurrent layer: each state is computed from an input and the state before it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(d, d)
        self.state_projection = nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the states of all positions, one after another."""
        state = torch.zeros_like(x[:, 0])
        states = []
        for position in range(x.shape[1]):
            inputs = self.input_projection(x[:, position])
            state = (inputs + self.state_projection(state)).tanh()
            states.append(state)
        return torch.stack(states, dim=1)


class Convolutional(nn.Module):
    """A convolutional layer: each output is computed from k inputs, the last at its own position.

    Args:
        d: Size of the vectors.
        width: k, the number of inputs of an output.
        dilation: Distance between two neighbouring inputs of an output.
    """

    def __init__(self, d: int, *, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.reach = (width - 1) * dilation
        self.convolution = nn.Conv1d(d, d, width, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve over the positions, with zeros before the first one."""
        padded = F.pad(x.transpose(1, 2), (self.reach, 0))  # (1, d, reach + n)
        convolved: Tensor = self.convolution(padded).transpose(1, 2)
        return convolved


def count_operations(layer: Layer, n: int, d: int) -> int:
    """Count the floating-point operations of a layer for a sequence of n vectors of size d."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        layer(torch.randn(1, n, d))
    return counter.get_total_flops()


def count_sequential(layer: Layer, n: int, d: int) -> int:
    """Count the matrix products in the longest chain of which each needs the one before."""
    longest: dict[object, int] = {None: 0}
    pending = [layer(torch.randn(1, n, d, requires_grad=True)).grad_fn]
    while pending:  # depth first, without recursion
        node = pending[-1]
        before = [] if node is None else [following for following, _ in node.next_functions]
        if unknown := [each for each in before if each not in longest]:
            pending += unknown
            continue
        pending.pop()
        is_product = node is not None and any(
            name in node.name() for name in ("MmBackward", "BmmBackward", "ConvolutionBackward")
        )
        longest[node] = max((longest[each] for each in before), default=0) + is_product
    return max(longest.values())


def dependent_positions(layer: Layer, n: int, d: int) -> Tensor:
    """Find the outputs of a layer that depend on the first input, of shape (n,).

    A NaN takes the place of that input: whatever is computed from it is NaN, too.
    """
    x = torch.randn(1, n, d)
    x[:, 0] = torch.nan
    with torch.no_grad():
        return layer(x).isnan().all(-1)[0]


def layers_until_connected(layer_of: Callable[[int], Layer], n: int, d: int) -> int:
    """Count the layers until the last output depends on the first input.

    Args:
        layer_of: Makes the layer with this index, from 0.
        n: Number of positions.
        d: Size of the vectors.
    """
    layers: list[Layer] = []

    def stack(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    while not layers or not dependent_positions(stack, n, d)[-1]:
        layers.append(layer_of(len(layers)))
    return len(layers)


def measure(layer_of: Callable[[int], Layer], n: int, d: int) -> Measured:
    """Measure layers of one kind; the arguments are those of :func:`layers_until_connected`."""
    layer = layer_of(0)
    return Measured(
        count_operations(layer, n, d),
        count_sequential(layer, n, d),
        layers_until_connected(layer_of, n, d),
    )


def measure_recurrent(n: int, d: int) -> Measured:
    """Measure a recurrent layer; its path length is the number of states that the signal passes."""
    layer = Recurrent(d)
    operations, sequential, _ = measure(lambda index: layer, n, d)
    return Measured(operations, sequential, int(dependent_positions(layer, n, d).sum()))


RESTRICTED = partial(restricted_self_attention, neighbours=5)
ROWS: dict[str, Callable[[int, int], Measured]] = {
    "self-attention": lambda n, d: measure(lambda index: self_attention, n, d),
    "recurrent": measure_recurrent,
    "convolutional, k = 3": lambda n, d: measure(lambda index: Convolutional(d, width=3), n, d),
    "convolutional, k = 3, dilated": lambda n, d: measure(
        lambda index: Convolutional(d, width=3, dilation=3**index), n, d
    ),
    "restricted, r = 5": lambda n, d: measure(lambda index: RESTRICTED, n, d),
}
"""The rows of the table; convolutions with contiguous and with dilated kernels."""


def main() -> None:
    """Print the measured table for two lengths and two sizes."""
    torch.manual_seed(0)
    print(f"{'layer':<30} {'n':>3} {'d':>3} {'operations':>12} {'sequential':>10} {'path':>5}")
    for name, measure in ROWS.items():
        for n, d in ((32, 64), (64, 64), (32, 128)):
            operations, sequential, path = measure(n, d)
            print(f"{name:<30} {n:>3} {d:>3} {operations:>12,} {sequential:>10} {path:>5}")


if __name__ == "__main__":
    main()
