"""Comparison of outputs, and changes of inputs: what all checks are made of."""

import ctypes
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from zlib import crc32

import torch
from torch import Tensor

from transformer_blocks._contracts import at_least

Tolerance = Annotated[float, at_least(0)]
SAMPLED = 64  # positions of which the deviations are measured


class NotTriedError(Exception):
    """A check cannot be run; the message is the reason."""


def measure_changes(
    first: Tensor, second: Tensor, tolerance: float | None, *, scales: Tensor | None = None
) -> Tensor:
    """Measure changes elementwise, in standard deviations of their feature in ``first``.

    Those within the tolerance, or within the rounding of a number much larger than the deviation,
    are zero. Infinities are equal to themselves, and NaN differs from every number.

    Args:
        first: Outputs, whose last dimension holds the features.
        second: Other outputs, of the same shape.
        tolerance: Largest change that is ignored; None depends on the dtype of ``first``.
        scales: Standard deviations that :func:`measure_scales` found in more outputs.

    Raises:
        NotTriedError: If the shapes differ.
    """
    if first.shape != second.shape:
        raise NotTriedError(
            f"outputs have other shapes: {tuple(first.shape)} and {tuple(second.shape)}"
        )
    rounding = 16 * epsilon(first)
    if tolerance is None:
        tolerance = max(1e-4, rounding)
    scales = measure_scales(first) if scales is None else scales
    if tolerance:
        sizes = to_float64(first).abs()
        scales = scales.maximum(sizes.where(sizes.isfinite(), 0.0) * (rounding / tolerance))
    changes = measure_differences(first, second) / scales
    return changes.masked_fill(changes <= tolerance, 0.0)


def measure_relative_differences(first: Tensor, second: Tensor) -> Tensor:
    """Measure the differences elementwise, relative to the largest number of their feature.

    A feature of small numbers is compared with the deviation of the others: see
    :func:`measure_scales`.
    """
    differences = measure_differences(first, second)
    both = torch.stack([to_float64(first), to_float64(second)])
    both = both.flatten(0, -2) if first.dim() > 1 else both.reshape(-1, 1)
    largest = both.where(both.isfinite(), 0.0).abs().amax(0)
    return differences / largest.maximum(measure_scales(both))


def measure_scales(x: Tensor) -> Tensor:
    """Measure the standard deviation of each feature, the last dimension, of outputs.

    One scale for all features would be that of the largest numbers, beside which errors in the
    others look like rounding: logits of impossible tokens are often -1e9. So each feature has its
    own. It is estimated from the median of the deviations from the median, 1 / 1.4826 of the
    standard deviation if these are normal (Hampel, 1974), which a few large numbers do not change.
    A feature that is constant, or deviates less than three quarters of the others, has a scale that
    one quarter of them do not exceed, as it was rounded together with them. If all features are
    constant, as in a single position, all numbers are one feature, as they are in one dimension.

    Returns:
        Positive numbers, of shape (size,), or (1,) for a tensor of less than two dimensions.
    """
    columns = x.flatten(0, -2) if x.dim() > 1 else x.reshape(-1, 1)
    columns = columns[:: 1 + len(columns) // SAMPLED]
    scales = _estimate_deviations(columns)
    if not scales.any():
        numbers = columns.reshape(-1, 1)
        scales = _estimate_deviations(numbers[:: 1 + len(numbers) // SAMPLED**2]).expand_as(scales)
    positive = scales[scales > 0]
    return scales.clamp(min=float(positive.quantile(0.25)) if len(positive) else 1e-30)


def _estimate_deviations(columns: Tensor) -> Tensor:
    """Estimate the standard deviation of each column; 0 if all numbers are equal, or infinite."""
    finite = to_float64(columns)
    finite = finite.where(finite.isfinite(), torch.nan)
    centres = finite.nanquantile(0.5, dim=0)
    deviations = (finite - centres).abs()
    is_rounding = deviations <= 16 * epsilon(columns) * centres.abs()
    deviations = deviations.where(~is_rounding, torch.nan)
    return 1.4826 * deviations.nanquantile(0.5, dim=0).nan_to_num(0.0)


def measure_differences(first: Tensor, second: Tensor) -> Tensor:
    """Measure the absolute differences elementwise, in float64.

    Infinities are equal to themselves, and NaN is infinitely far from every number.
    """
    first, second = to_float64(first), to_float64(second)
    differences = (second - first).abs().masked_fill(first == second, 0.0)
    return differences.nan_to_num(nan=torch.inf, posinf=torch.inf)


def is_valid(x: Tensor) -> Tensor:
    """Return which outputs are numbers, or the minus infinity of logits that are masked."""
    return ~(x.isnan() | x.isposinf())


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


def bytes_of(x: Tensor) -> bytes:
    """Return the bytes of a tensor, which are equal for equal values; without numpy."""
    content = x.detach().cpu().contiguous()
    return ctypes.string_at(content.data_ptr(), content.nbytes)


def perturb(original: Tensor, known: Tensor, seed: int) -> Tensor:
    """Perturb a tensor: add noise to vectors, or replace ids by others of ``known``.

    The noise depends on the vectors too, so that it cannot be drawn as they were: a norm removes
    the factor of x + x.

    Raises:
        NotTriedError: If ``known`` does not hold two different ids.
    """
    if original.is_floating_point():
        generator = torch.Generator().manual_seed(crc32(bytes_of(original)) + seed)
        deviation = float(known.float().std(correction=0)) or 1.0
        return original + deviation * torch.randn(original.shape, generator=generator).to(original)
    ids = known.unique()
    if len(ids) < 2:
        raise NotTriedError(f"inputs must hold at least two different ids, got {ids.tolist()} only")
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


def find_output(result: Any) -> Tensor | None:
    """Find the main output: logits, the last hidden state, or the first floating-point tensor."""
    if isinstance(result, Tensor):
        return result if result.is_floating_point() and result.dim() else None
    for name in ("logits", "last_hidden_state"):
        value = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
        if isinstance(value, Tensor):
            return value
    if dataclasses.is_dataclass(result):
        result = [getattr(result, field.name) for field in dataclasses.fields(result)]
    values = result.values() if isinstance(result, Mapping) else result
    if not isinstance(result, Mapping | tuple | list):
        return None
    found = (find_output(value) for value in values)
    return next((each for each in found if each is not None), None)
