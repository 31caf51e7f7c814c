"""Additive attention against a loop, as a layer, and under the mask rule."""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from tests.blocks.reference import Array, attention_loop, to_numpy
from tests.blocks.test_attention import TOLERANCE, Case, cases, every_dtype
from torch import Tensor

from transformer_blocks import (
    AdditiveAttention,
)


def options_of(case: Case) -> dict[str, Any]:
    return case.options() | {"scale": 1.0 if case.scale is None else case.scale}


def loop(
    attention: AdditiveAttention, tensors: tuple[Tensor, ...], **options: Any
) -> tuple[Array, Array]:
    vectors = to_numpy(attention.vector)

    def score(query: Array, key: Array, head: int) -> float:
        return sum(
            float(v) * float(np.tanh(q + k))
            for v, q, k in zip(vectors[head], query, key, strict=True)
        )

    return attention_loop(*tensors, score=score, **options)


@every_dtype
@given(case=cases())
def test_it_equals_the_loop(dtype: torch.dtype, case: Case) -> None:
    tensors = case.tensors(dtype)
    attention = AdditiveAttention(case.d_k, case.heads).to(dtype)
    output, weights = attention(*tensors, **case.options())
    expected_output, expected_weights = loop(attention, tensors, **options_of(case))
    assert output.dtype == weights.dtype == dtype
    atol = TOLERANCE[dtype]
    np.testing.assert_allclose(to_numpy(output), expected_output, rtol=0, atol=atol)
    np.testing.assert_allclose(to_numpy(weights), expected_weights, rtol=0, atol=atol)
    assert (to_numpy(weights)[expected_weights == 0.0] == 0.0).all()
