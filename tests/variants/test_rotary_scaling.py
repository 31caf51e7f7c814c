"""Scaled rotary frequencies, against their formulas and against transformers."""

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from transformer_blocks import (
    Llama3Scaling,
    PositionInterpolation,
    RotaryPositionalEncoding,
    YarnScaling,
)


@given(
    factor=st.floats(1.0, 64.0),
    length=st.integers(16, 100_000),
    low=st.floats(0.1, 8.0),
    more=st.floats(0.5, 60.0),
    truncate=st.booleans(),
    rotated=st.sampled_from([16, 32, 64]),
)
def test_frequencies_and_scores_are_scaled_as_by_transformers(
    factor: float, length: int, low: float, more: float, truncate: bool, rotated: int
) -> None:
    limits: dict[str, Any] = {"length": length, "low": low, "high": low + more}
    frequencies = 10000.0 ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    original = {"original_max_position_embeddings": length}
    for scaling, parameters in (
        (PositionInterpolation(factor), {"rope_type": "linear"}),
        (
            Llama3Scaling(factor, **limits),
            {"rope_type": "llama3", "low_freq_factor": low, "high_freq_factor": low + more}
            | original,
        ),
        (
            YarnScaling(factor, **limits, truncate=truncate),
            {"rope_type": "yarn", "beta_slow": low, "beta_fast": low + more, "truncate": truncate}
            | original,
        ),
    ):
        rope: dict[str, Any] = {"rope_theta": 10000.0, "factor": factor} | parameters
        config = transformers.LlamaConfig(head_dim=rotated, rope_parameters=rope)
        expected, of_scores = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
        found: Any = scaling
        torch.testing.assert_close(found(frequencies), expected.double(), rtol=1e-4, atol=0)
        given_factor = getattr(scaling, "attention_factor", 1.0)
        assert given_factor == pytest.approx(of_scores, rel=1e-12)


def test_yarn_multiplies_what_is_rotated_by_its_factor() -> None:
    scaling = YarnScaling(1.0, length=8, attention_factor=3.0)  # which changes no frequency
    scaled, plain = (
        RotaryPositionalEncoding(6, rotated=4, scaling=each) for each in (scaling, None)
    )
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    for name in ("transform_queries", "transform_keys"):
        found, expected = (getattr(each, name)(x, start=2) for each in (scaled, plain))
        torch.testing.assert_close(found[..., :4], 3.0 * expected[..., :4])
        assert torch.equal(found[..., 4:], x[..., 4:])


def test_queries_and_keys_are_rotated_with_the_scaled_frequencies() -> None:
    rotary = RotaryPositionalEncoding(6, scaling=lambda frequencies: frequencies.flip(0))
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    frequencies = 10000.0 ** (-torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64) / 6)
    angles = (3 + torch.arange(5))[:, None] * frequencies
    expected = torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.exp(1j * angles)
    for transform in (rotary.transform_queries, rotary.transform_keys):
        found = torch.view_as_complex(transform(x, start=3).unflatten(-1, (3, 2)))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 0.5}, "factor must be at least 1, got factor=0.5"),
        ({"low": 0.0}, "low must be above 0 and below high, got low=0.0 and high=4.0"),
        ({"low": 4.0}, "low must be above 0 and below high, got low=4.0 and high=4.0"),
    ],
)
def test_impossible_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    for scaling in (Llama3Scaling, YarnScaling):
        with pytest.raises(ValueError, match=message):
            scaling(**({"factor": 8.0, "length": 100, "high": 4.0} | arguments))
    if "factor" in arguments:
        with pytest.raises(ValueError, match=message):
            PositionInterpolation(**arguments)
