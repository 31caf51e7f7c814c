"""An update is the same, however its batch is cut."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.examples.tiny_run import SETTINGS
from torch import Tensor

from common.distributed import Processes
from common.learner import Learner, learning_rate
from common.tokenizer import PAD
from translation.batches import Batch, collate
from translation.examples import Example
from translation.presets import BASE, Config
from translation.training import TranslationLoss, compute_hidden

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


def gradients(batches: Sequence[Sequence[Example]], processes: Processes) -> list[Tensor]:
    torch.manual_seed(0)
    settings = replace(SETTINGS, dropout=0.0)
    model, loss = settings.build(20, 20).double(), TranslationLoss(0.1)
    learner = Learner(model, loss, average=0.5, processes=processes)
    learner.compute_gradient(batches)
    return [
        parameter.grad for parameter in learner.model.parameters() if parameter.grad is not None
    ]


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


@pytest.mark.slow
def test_compiled_code_gives_the_same_loss() -> None:
    model = replace(SETTINGS, dropout=0.0).build(20, 20).eval()
    batch = collate(SENTENCES)
    plain, compiled = TranslationLoss(0.1), TranslationLoss(0.1)
    compiled.compute_hidden = torch.compile(compute_hidden, backend="eager", dynamic=True)
    expected = plain.loss(model, *batch)
    model.train()  # only training uses the compiled code; without dropout, the mode changes nothing
    torch.testing.assert_close(compiled.loss(model, *batch), expected)


def rate(config: Config, step: int, done: float) -> float:
    """Compute the learning rate of a configuration."""
    rates = {"warmup_steps": config.warmup_steps, "d_model": config.d_model}
    return learning_rate(step, done, peak_rate=config.peak_rate, **rates)


def test_the_base_preset_follows_the_paper() -> None:
    assert rate(BASE, 4000, 0.3) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert rate(BASE, 16000, 0.3) == pytest.approx(512**-0.5 * 16000**-0.5)
