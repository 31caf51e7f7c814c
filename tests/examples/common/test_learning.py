"""An update is that of the paper, and the same, however its batch is cut."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.examples.tiny_run import SETTINGS
from torch import Tensor, nn

from common.distributed import Processes
from common.tokenizer import PAD
from common.training import Learner, average_weights, learning_rate
from translation.batches import Batch, Example
from translation.presets import BASE
from translation.training import TranslationLoss

SENTENCES = [
    Example([5, 6, 7], [8, 9]),
    Example([5], [10, 11, 12, 13]),
    Example([6, 9, 9, 12], [7]),
    Example([4, 5], [4, 5, 6]),
    Example([8], []),
]


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient() -> None:
    model = SETTINGS.build(20, 20)
    nothing = torch.full((2, 3), PAD)
    batch = Batch(nothing, nothing, nothing, torch.zeros(0, dtype=torch.int64))
    loss = TranslationLoss(0.1).loss(model, *batch)
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def make_learner(processes: Processes | None = None) -> Learner:
    torch.manual_seed(0)
    model = replace(SETTINGS, dropout=0.0).build(20, 20).double()
    return Learner(model, TranslationLoss(0.1), average=0.5, processes=processes)


def gradients(batches: Sequence[Sequence[Example]], processes: Processes) -> list[Tensor]:
    learner = make_learner(processes)
    learner.compute_gradient(batches)
    return [each.grad for each in learner.model.parameters() if each.grad is not None]


@pytest.mark.parametrize("size", [1, 2])
def test_several_batches_give_the_gradient_of_one(size: int) -> None:
    one = gradients([SENTENCES], Processes())
    cut = [SENTENCES[i : i + size] for i in range(0, len(SENTENCES), size)]
    for found, expected in zip(gradients(cut, Processes()), one, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 7])
def test_the_mean_over_processes_is_the_gradient_of_one(count: int) -> None:
    batches = [[sentence] for sentence in SENTENCES]
    shares = [gradients(batches, Processes(number, count)) for number in range(count)]
    for expected, *found in zip(gradients([SENTENCES], Processes()), *shares, strict=True):
        torch.testing.assert_close(torch.stack(found).mean(0), expected, rtol=0, atol=1e-12)


def test_the_losses_of_all_processes_add_up_to_that_of_one() -> None:
    """A process without a batch computes one, for the gradients, whose loss does not count."""
    batches = [[sentence] for sentence in SENTENCES]
    count = len(batches) + 2
    losses = [
        make_learner(Processes(rank, count)).compute_gradient(batches) for rank in range(count)
    ]
    whole = make_learner().compute_gradient([SENTENCES])
    torch.testing.assert_close(torch.stack(losses).sum(), whole.to(losses[0].dtype))


def test_the_average_forgets_the_initial_weights_soon_and_is_slow_later() -> None:
    """Its decay is (1 + n) / (10 + n) after n updates, and never more than the given one."""
    model = nn.Linear(1, 1, bias=False).double()
    for decay in (0.1, 0.3, 0.9):
        moving = average_weights(model, decay)
        expected = 0.0
        for count, value in enumerate((5.0, 1.0, -2.0, 4.0)):
            nn.init.constant_(model.weight, value)
            moving.update_parameters(model)
            weight = min(decay, (1 + count) / (10 + count)) if count else 0.0  # the first: a copy
            expected = weight * expected + (1 - weight) * value
            assert moving.module.state_dict()["weight"].item() == pytest.approx(expected)


def test_the_base_preset_follows_the_paper() -> None:
    assert learning_rate(BASE, 4000, 0.3) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert learning_rate(BASE, 16000, 0.3) == pytest.approx(512**-0.5 * 16000**-0.5)


def test_the_rate_is_the_smaller_one_of_rise_and_fall() -> None:
    config = replace(BASE, peak_rate=1.0, warmup_steps=10)
    for step, done, expected in ((5, 0.2, 0.5), (5, 0.7, 0.3), (10, 0.1, 0.9), (50, 1.0, 0.0)):
        assert learning_rate(config, step, done) == pytest.approx(expected)
