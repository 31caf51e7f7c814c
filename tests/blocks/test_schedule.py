"""The Noam learning-rate schedule."""

import math

import pytest
import torch
from torch import nn

from transformer_blocks import noam_rate, noam_schedule


@pytest.mark.parametrize("step", [1, 2, 99, 100, 101, 5000])
@pytest.mark.parametrize("d_model", [16, 512])
def test_the_rate_is_equation_three(step: int, d_model: int) -> None:
    increasing, decreasing = step / 100**1.5, 1 / math.sqrt(step)
    expected = (increasing if step < 100 else decreasing) / math.sqrt(d_model)
    assert noam_rate(step, d_model=d_model, warmup_steps=100) == pytest.approx(expected, rel=1e-14)


def test_the_default_warm_up_is_the_papers() -> None:
    assert noam_rate(7, d_model=512) == noam_rate(7, d_model=512, warmup_steps=4000)


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)


def test_update_n_uses_the_rate_of_step_n_times_the_optimizers_own() -> None:
    optimizer = _optimizer()
    schedule = noam_schedule(optimizer, d_model=16, warmup_steps=3)
    for step in range(1, 8):
        expected = 0.5 * noam_rate(step, d_model=16, warmup_steps=3)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-14)
        optimizer.step()
        schedule.step()


def test_a_schedule_resumes_where_it_was_saved() -> None:
    optimizer = _optimizer()
    schedule = noam_schedule(optimizer, d_model=16, warmup_steps=3)
    for _ in range(5):
        optimizer.step()
        schedule.step()
    fresh = _optimizer()
    resumed = noam_schedule(fresh, d_model=16, warmup_steps=3)
    fresh.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    for each in (optimizer, schedule, fresh, resumed):
        each.step()
    assert fresh.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert fresh.param_groups[0]["lr"] == 0.5 * noam_rate(7, d_model=16, warmup_steps=3)
