"""The Noam learning-rate schedule."""

import math

import pytest

from transformer_blocks import noam_rate


@pytest.mark.parametrize("step", [1, 2, 99, 100, 101, 5000])
@pytest.mark.parametrize("d_model", [16, 512])
def test_the_rate_is_equation_three(step: int, d_model: int) -> None:
    increasing, decreasing = step / 100**1.5, 1 / math.sqrt(step)
    expected = (increasing if step < 100 else decreasing) / math.sqrt(d_model)
    assert noam_rate(step, d_model=d_model, warmup_steps=100) == pytest.approx(expected, rel=1e-14)


def test_the_default_warm_up_is_the_papers() -> None:
    assert noam_rate(7, d_model=512) == noam_rate(7, d_model=512, warmup_steps=4000)
