"""Rotary positional encoding: rotations by complex numbers, and scores that know the distance."""

import numpy as np
import pytest
import torch
from tests.blocks.reference import Array, to_numpy
from torch import Tensor

from transformer_blocks import RotaryPositionalEncoding


def rotate(x: Tensor, start: int, base: float) -> Tensor:
    """Multiply pairs of numbers, as complex numbers, by powers of e (equation 12 of the paper)."""
    pairs: Array = to_numpy(x)[..., 0::2] + 1j * to_numpy(x)[..., 1::2]
    d_k, length = x.shape[-1], x.shape[-2]
    for i in range(d_k // 2):
        theta = base ** (-2 * i / d_k)
        for position in range(length):
            pairs[..., position, i] *= np.exp(1j * (start + position) * theta)
    rotated = np.stack((pairs.real, pairs.imag), axis=-1).reshape(x.shape)
    return torch.from_numpy(rotated)


@pytest.mark.parametrize(("length", "start", "base"), [(7, 0, 1e4), (3, 4, 1e4), (1, 6, 500.0)])
def test_queries_and_keys_are_rotated_as_complex_numbers(
    length: int, start: int, base: float
) -> None:
    x = torch.randn(2, 3, length, 6, dtype=torch.float64)
    rotary, expected = RotaryPositionalEncoding(6, base=base), rotate(x, start, base)
    for transform in (rotary.transform_queries, rotary.transform_keys):
        torch.testing.assert_close(transform(x, start=start), expected, rtol=0, atol=1e-12)


def test_of_partial_rotary_positions_the_first_elements_alone_are_rotated() -> None:
    x, partly = (
        torch.randn(2, 3, 5, 10, dtype=torch.float64),
        RotaryPositionalEncoding(10, rotated=4),
    )
    for transform in (partly.transform_queries, partly.transform_keys):
        found = transform(x, start=2)
        expected = rotate(x[..., :4], 2, 10000.0)  # with the frequencies of four elements
        torch.testing.assert_close(found[..., :4], expected, rtol=0, atol=1e-12)
        assert torch.equal(found[..., 4:], x[..., 4:])
    for rotated in (3, 12):
        with pytest.raises(
            ValueError, match="rotated must be even and at most d_k=10, got rotated="
        ):
            RotaryPositionalEncoding(10, rotated=rotated)


def test_positions_are_exact_in_half_precision() -> None:
    x = torch.ones(1, 1, 4001, 2)
    expected = RotaryPositionalEncoding(2).transform_keys(x, start=0)
    found = RotaryPositionalEncoding(2).transform_keys(x.bfloat16(), start=0)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("base", [0.5, -1.0, 1e-300, float("inf"), float("nan")])
def test_a_base_whose_frequencies_overflow_is_refused(base: float) -> None:
    with pytest.raises(ValueError, match=r"^base must be (at least 1|finite), got base="):
        RotaryPositionalEncoding(4, base=base)
