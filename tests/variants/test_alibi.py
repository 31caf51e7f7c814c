"""ALiBi against a loop, and its slopes against those of the paper."""

import math

import numpy as np
import pytest
import torch
from tests.blocks.reference import Array, attention_loop, to_numpy, with_position

from transformer_blocks import ALiBi, alibi_slopes


def test_the_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [1 / 2**n for n in range(1, 9)]  # section 3
    sixteen = [2 ** (-n / 2) for n in range(1, 17)]
    assert alibi_slopes(16).tolist() == pytest.approx(sixteen, rel=1e-15)


@pytest.mark.parametrize("heads", [1, 3, 5, 6, 7, 12])
def test_other_numbers_of_heads_have_slopes_of_both_neighbouring_powers_of_two(heads: int) -> None:
    slopes = alibi_slopes(heads).tolist()
    lower = 2 ** math.floor(math.log2(heads))
    assert slopes[:lower] == alibi_slopes(lower).tolist()
    assert slopes[lower:] == alibi_slopes(2 * lower)[::2].tolist()[: heads - lower]
    assert len(set(slopes)) == heads


@pytest.mark.parametrize("length", [7, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_the_loop(length: int, causal: bool) -> None:
    query = torch.randn(2, 3, length, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, 3, 7, 4, dtype=torch.float64).unbind()
    mask = torch.rand(2, 1, length, 7) < 0.3
    output, weights = ALiBi(3)(query, key, value, mask=mask, causal=causal)
    slopes = alibi_slopes(3).tolist()

    def score(query: Array, key: Array, head: int) -> float:
        return float(query[:-1] @ key[:-1]) / 2.0 - slopes[head] * abs(query[-1] - key[-1])

    expected = attention_loop(
        *(with_position(query, 7 - length), with_position(key, 0), value),
        mask=mask,
        causal=causal,
        scale=1.0,
        score=score,
    )
    for found, right in zip((output, weights), expected, strict=True):
        np.testing.assert_allclose(to_numpy(found), right, rtol=0, atol=1e-12)


def test_another_number_of_heads_is_refused() -> None:
    x = torch.randn(1, 3, 5, 4)
    with pytest.raises(ValueError, match=r"query must have shape \(B, 2, L, d_k\), got \(1, 3"):
        ALiBi(2)(x, x, x)
    with pytest.raises(ValueError, match="num_heads"):
        ALiBi(0)


def test_more_queries_than_keys_have_no_positions() -> None:
    query, key = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="no more queries than keys, got L=4 and S=3"):
        ALiBi(2)(query, key, key)
