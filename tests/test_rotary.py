"""Rotary positions against complex numbers, and the law they are made for."""

import numpy as np
import pytest
import torch
from tests.reference import Array, attention_loop, to_numpy
from torch import Tensor

from transformer_blocks import RotaryPositionalEncoding, scaled_dot_product_attention


def turn(x: Tensor, first: int, base: float) -> Tensor:
    """Each pair of numbers as a complex one, times a power of e (equation 12 of the paper)."""
    pairs: Array = to_numpy(x)[..., 0::2] + 1j * to_numpy(x)[..., 1::2]
    width, length = x.shape[-1], x.shape[-2]
    for i in range(width // 2):
        theta = base ** (-2 * i / width)
        for place in range(length):
            pairs[..., place, i] *= np.exp(1j * (first + place) * theta)
    turned = np.stack((pairs.real, pairs.imag), axis=-1).reshape(x.shape)
    return torch.from_numpy(turned)


@pytest.mark.parametrize(("length", "base"), [(7, 10000.0), (3, 10000.0), (1, 500.0)])
def test_it_turns_as_complex_numbers_do_and_then_mixes(length: int, base: float) -> None:
    query = torch.randn(2, 3, length, 6, dtype=torch.float64)
    key, value = torch.randn(2, 2, 3, 7, 6, dtype=torch.float64).unbind()
    rotary = RotaryPositionalEncoding(6, base=base, attention_function=scaled_dot_product_attention)
    mask = torch.rand(length, 7) < 0.3
    mixed, weights = rotary(query, key, value, mask=mask, causal=True)
    turned = turn(query, 7 - length, base), turn(key, 0, base)
    expected = attention_loop(*turned, value, mask=mask, causal=True)
    for found, right in zip((mixed, weights), expected, strict=True):
        np.testing.assert_allclose(to_numpy(found), right, rtol=0, atol=1e-12)


def test_a_score_knows_the_distance_and_not_the_place() -> None:
    rotary = RotaryPositionalEncoding(8)
    one_query, one_key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).unbind()
    query, key = rotary.prepare(one_query.expand(1, 1, 50, 8), one_key.expand(1, 1, 50, 8))
    scores = (query @ key.transpose(-2, -1))[0, 0]
    for distance in range(-49, 50):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-12)
    assert scores[0].std() > 0.1  # and it does know the distance


def test_lengths_stay() -> None:
    rotary = RotaryPositionalEncoding(8)
    x = torch.randn(2, 3, 100, 8)
    query, key = rotary.prepare(x, x)
    torch.testing.assert_close(query.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(query[:, :, 0], x[:, :, 0])  # the first stands still
    assert torch.equal(query, key)


def test_positions_are_exact_in_low_precision() -> None:
    x = torch.ones(1, 1, 4001, 2)
    expected, _ = RotaryPositionalEncoding(2).prepare(x, x)
    low = x.bfloat16()
    found, _ = RotaryPositionalEncoding(2).prepare(low, low)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("d_k", [0, -2, 3])
def test_a_width_that_makes_no_pairs_is_refused(d_k: int) -> None:
    with pytest.raises(ValueError, match=f"d_k.*got d_k={d_k}"):
        RotaryPositionalEncoding(d_k)


@pytest.mark.parametrize(("query", "key"), [((4, 6), (4, 6)), ((5, 8), (4, 8))])
def test_shapes_that_do_not_fit_are_named(query: tuple[int, int], key: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"with L <= S, got \(1, 1, "):
        RotaryPositionalEncoding(8).prepare(torch.ones(1, 1, *query), torch.ones(1, 1, *key))


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan")])
def test_a_base_that_is_not_positive_is_refused(base: float) -> None:
    with pytest.raises(ValueError, match="base must be positive"):
        RotaryPositionalEncoding(4, base=base)
