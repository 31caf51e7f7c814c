"""Comparison of outputs, and changes of inputs: what all checks are made of."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from transformer_blocks._contracts import at_least

Tolerance = Annotated[float, at_least(0)]


def measure_changes(
    first: Tensor, second: Tensor, tolerance: float | None, *, deviation: float | None = None
) -> Tensor:
    """Measure changes elementwise, in standard deviations of ``first``, or in a given one.

    Those within the tolerance for rounding are zero. Infinities are equal to themselves, and NaN
    differs from every number.

    Raises:
        ValueError: If the shapes differ.
    """
    if first.shape != second.shape:
        raise ValueError(
            f"function must return outputs of one shape, got {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    rounding = 16 * epsilon(first)
    if tolerance is None:
        tolerance = max(1e-4, rounding)
    scale = measure_deviation(first) if deviation is None else deviation
    if tolerance:  # numbers may be much larger than their deviation
        scale = max(scale, find_largest(first) * rounding / tolerance)
    sizes = measure_differences(first, second) / scale
    return sizes.masked_fill(sizes <= tolerance, 0.0)


def measure_differences(first: Tensor, second: Tensor) -> Tensor:
    """Measure the absolute differences elementwise, in float64.

    Infinities are equal to themselves, and NaN is infinitely far from every number.
    """
    first, second = to_float64(first), to_float64(second)
    differences = (second - first).abs().masked_fill(first == second, 0.0)
    return differences.nan_to_num(nan=torch.inf, posinf=torch.inf)


def find_largest(*tensors: Tensor) -> float:
    """Return the largest finite absolute value; 0 if there is none."""
    numbers = torch.cat([to_float64(x).flatten() for x in tensors])
    finite = numbers[numbers.isfinite()]
    return float(finite.abs().max()) if len(finite) else 0.0


def measure_deviation(x: Tensor) -> float:
    """Measure the standard deviation of the finite numbers of a tensor."""
    x = to_float64(x)
    finite = x[x.isfinite()]
    return max(float(finite.std(correction=0)), 1e-12) if len(finite) else 1.0


def describe(size: float) -> str:
    """Format a change, for example "by 0.3 standard deviations"."""
    if math.isinf(size):
        return "to a number that is not finite"
    return f"by {size:.2g} standard deviations"


def to_float64(x: Tensor) -> Tensor:
    """Convert a tensor to float64 on the CPU: some GPUs have no float64."""
    return x.cpu().double()


def epsilon(x: Tensor) -> float:
    """Return the rounding error of the dtype of ``x``; that of float32 for integers."""
    return torch.finfo(x.dtype if x.is_floating_point() else torch.float32).eps


def perturb(original: Tensor, known: Tensor, seed: int) -> Tensor:
    """Perturb a tensor: add noise to vectors, or replace ids by others of ``known``.

    Raises:
        ValueError: If ``known`` does not hold two different ids.
    """
    if original.is_floating_point():
        generator = torch.Generator().manual_seed(seed)
        deviation = float(known.float().std(correction=0)) or 1.0
        return original + deviation * torch.randn(original.shape, generator=generator).to(original)
    ids = known.unique()
    if len(ids) < 2:
        raise ValueError(f"x must hold at least two different ids, got {ids.tolist()} only")
    following = torch.searchsorted(ids, original.contiguous()) + 1
    return ids[following % len(ids)]


def find_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists and mappings, also in nested ones."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from find_tensors(list(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from find_tensors(each)


def find_instability(first: Tensor, second: Tensor, tolerance: float | None) -> str | None:
    """Describe why outputs cannot be compared: NaN, or different outputs of two equal calls.

    Raises:
        ValueError: If the outputs are empty, or have no values.
    """
    if not first.numel() or first.is_meta:
        what = "tensors on the meta device" if first.is_meta else f"shape {tuple(first.shape)}"
        raise ValueError(f"function must return numbers to compare, got {what}")
    if bool(first.isnan().any()):
        return "the output holds NaN"
    if bool(measure_changes(first, second, tolerance).any()):
        return "two equal calls differ: function must be deterministic, as in evaluation mode"
    return None
