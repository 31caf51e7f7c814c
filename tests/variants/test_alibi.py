"""ALiBi against a loop, and its slopes against those of the paper."""

import math

import pytest
from tests.blocks.reference import assert_equals_loop_with_biases

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


@pytest.mark.parametrize("length", [12, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_the_loop(length: int, causal: bool) -> None:
    slopes = alibi_slopes(3).tolist()
    assert_equals_loop_with_biases(
        ALiBi(3), lambda distance, head: -slopes[head] * abs(distance), length, causal=causal
    )
