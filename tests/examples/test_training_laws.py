"""What a translator's training computes, computed again by hand from its files and updates."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.examples import by_hand
from tests.examples.proof_run import Proof, ProofRun, make_lines, reference
from tests.examples.recording import Update, check_clipped, recorded_updates
from tests.examples.tiny_run import SETTINGS, begin
from torch import Tensor

import common.training
from common.checkpoint import load_checkpoint
from translation import training as training_module
from translation.batches import Batch, Batches, collate
from translation.examples import Example, Examples
from translation.training import TranslationTask, TranslationTraining


@pytest.fixture(params=["paired", "single"])
def run(request: pytest.FixtureRequest, proof: Proof) -> ProofRun:
    """A training that reads two batches for an update, and one that reads one."""
    found: ProofRun = getattr(proof, request.param)
    return found


def epoch_groups(run: ProofRun, epoch: int) -> tuple[int, list[list[Example]]]:
    """Make the batches of an epoch; return their number, and the examples of each update."""
    settings = run.settings
    batches = Batches(
        run.encode("train"), batch_tokens=settings.batch_tokens, seed=run.seed, epoch=epoch
    )
    together = settings.accumulate
    groups = [batches[i : i + together] for i in range(0, len(batches), together)]
    return len(batches), [[example for batch in group for example in batch] for group in groups]


def test_the_corpus_of_the_proof_has_unequal_lengths_and_no_order(proof: Proof) -> None:
    for split in ("dev", "test"):
        lengths = [len(example.target) for example in proof.paired.encode(split)]
        assert len(lengths) > 3
        assert len(set(lengths)) > 2
        assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))
    counts = [epoch_groups(proof.paired, epoch)[0] for epoch in range(8)]
    assert any(count % 2 for count in counts)  # an epoch that ends with a batch on its own


def test_a_training_begins_with_the_fresh_weights_of_its_seed(run: ProofRun) -> None:
    for found, expected in zip(run.updates[0].before, run.model().parameters(), strict=True):
        assert torch.equal(found, expected)


def test_the_rate_rises_and_falls_with_every_update_and_the_last_is_above_zero(
    run: ProofRun,
) -> None:
    settings = run.settings
    expected: list[float] = []
    assert settings.epochs is not None
    for epoch in range(settings.epochs):
        count, groups = epoch_groups(run, epoch)
        for number in range(len(groups)):
            done = (epoch + number * settings.accumulate / count) / settings.epochs
            rise = (len(expected) + 1) / settings.warmup_steps
            expected.append(settings.peak_rate * min(rise, 1.0 - done))  # type: ignore[operator]
    rates = [update.rate for update in run.updates]
    assert rates == pytest.approx(expected, rel=1e-9)
    top = rates.index(max(rates))
    assert all(a < b for a, b in pairwise(rates[: top + 1]))
    assert all(a > b for a, b in pairwise(rates[top:]))
    assert 0.0 < rates[-1] < rates[top] / 8


def check_epoch(run: ProofRun, epoch: int) -> list[float]:
    """Compute an epoch's gradients and its loss by hand; return the norms before clipping."""
    model, total, tokens, norms = run.model(), 0.0, 0, []
    _, groups = epoch_groups(run, epoch)
    for update, examples in zip(run.epochs()[epoch], groups, strict=True):
        model = by_hand.with_weights(model, update.before)
        model.zero_grad()
        loss = torch.stack(
            [by_hand.sentence_loss(model, *each, run.settings.label_smoothing) for each in examples]
        ).sum()
        count = sum(len(target) + 1 for _, target in examples)
        (loss / count).backward()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        norms.append(check_clipped(update, gradient))
        total, tokens = total + float(loss.detach()), tokens + count
    assert run.rows[epoch]["train_loss"] == pytest.approx(total / tokens, rel=1e-5)
    return norms


def test_gradients_and_training_loss_are_those_of_all_real_tokens_with_their_ends(
    proof: Proof,
) -> None:
    norms = [
        *check_epoch(proof.single, 0),
        *(norm for epoch in (0, 2, 7) for norm in check_epoch(proof.paired, epoch)),
    ]
    assert min(norms) < 0.9  # so that both sides of the bound are seen
    assert max(norms) > 1.1


def validation_loss(run: ProofRun, weights: list[Tensor]) -> float:
    """Compute the loss per token of the validation sentences, ends included, one by one."""
    model = by_hand.with_weights(run.model(), weights)
    examples = run.encode("dev")
    with torch.no_grad():
        losses = [
            float(by_hand.sentence_loss(model, *each, run.settings.label_smoothing))
            for each in examples
        ]
    return sum(losses) / sum(len(target) + 1 for _, target in examples)


def test_the_validation_loss_is_that_of_the_averaged_weights_per_real_token(run: ProofRun) -> None:
    for row in run.rows:
        expected = validation_loss(run, run.averages[row["step"] - 1])
        assert row["validation_loss"] == pytest.approx(expected, rel=1e-5)
        raw = validation_loss(run, run.updates[row["step"] - 1].after)
        assert abs(raw - expected) > 1e-4  # so that the two can be told apart


def test_the_validation_loss_adds_up_all_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(examples: list[Example], batch_tokens: int) -> Iterator[Batch]:
        assert batch_tokens > 0
        for example in examples:
            yield collate([example])

    monkeypatch.setattr(training_module, "batches_of", one_by_one)
    training = begin(tmp_path / "run")
    sets = training.task.validation_set, training.task.train_set[:5]
    training.task.validation_set = Examples.of(each for some in sets for each in some)
    found = training.task.validation_loss(training.model)
    model = training.model.double()
    losses = [
        float(by_hand.sentence_loss(model, *each, SETTINGS.label_smoothing).detach())
        for each in training.task.validation_set
    ]
    expected = sum(losses) / sum(len(each.target) + 1 for each in training.task.validation_set)
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_validation_bleu_is_that_of_greedy_translations_in_the_corpuss_order(
    proof: Proof,
) -> None:
    run = proof.paired
    references = [reference(en) for _, en in make_lines()["dev"]]
    for row in run.rows[3:]:
        model = by_hand.with_weights(run.model(), run.averages[row["step"] - 1])
        outputs = [
            run.target.decode(by_hand.greedy(model, source)) for source, _ in run.encode("dev")
        ]
        expected = by_hand.bleu(outputs, references)
        assert row["validation_bleu"] == pytest.approx(expected, rel=1e-9)
        for wrong in (
            by_hand.bleu(references, outputs),
            by_hand.bleu(outputs, references[1:] + references[:1]),
            by_hand.bleu(outputs, references[::-1]),
        ):
            assert abs(wrong - expected) > 0.1


def train_with_losses(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    scores: list[float],
    patience: int,
) -> tuple[TranslationTraining, list[Update]]:
    """Train a tiny translator whose epochs are told these validation losses and BLEU scores."""
    given, scored = iter(losses), iter(scores)
    monkeypatch.setattr(TranslationTask, "validation_loss", lambda *_: next(given))
    monkeypatch.setattr(TranslationTask, "validation_bleu", lambda *_: next(scored))
    with recorded_updates() as recorded:
        training = begin(folder, replace(SETTINGS, epochs=len(losses), patience=patience))
        training.fit()
    (updates,) = recorded
    return training, updates


@pytest.mark.parametrize(
    ("scores", "losses", "patience", "best", "last"),
    [
        # Of equals, the first; and compared with the highest, not with the last.
        ([3.0, 4.0, 4.0, 3.5, 3.8], [1.0] * 5, 9, 2, 5),
        # A gain begins the count anew.
        ([2.0, 9.0, 3.0, 9.1, 1.0, 1.0, 9.9], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 2, 4, 6),
        ([4.0, 5.0, 5.0, 5.0], [2.0, 1.7, 1.5, 1.5], 9, 3, 4),  # of equal scores, the lower loss
        ([1.0, 1.0, 1.0, 1.0], [1.0] * 4, 2, 1, 3),  # an equal score is no gain
        ([5.0, 4.0, 4.0, 4.0, 6.0], [1.0, 0.9, 0.8, 0.7, 0.6], 2, 5, 5),  # a lower loss is one
        ([5.0, 4.0, 4.0, 4.5, 9.0], [1.0, 0.9, 0.95, 0.92, 0.5], 2, 1, 4),  # than all before
    ],
)
def test_the_best_epoch_is_saved_and_early_stopping_follows_the_patience(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float],
    losses: list[float],
    patience: int,
    best: int,
    last: int,
) -> None:
    training, updates = train_with_losses(tmp_path / "run", monkeypatch, losses, scores, patience)
    rows = training.run.read_metrics()
    assert [row["validation_bleu"] for row in rows] == scores[:last]
    step = rows[best - 1]["step"]
    path = by_hand.only_entry(training.run.best)
    assert path.name == f"step-{step:08d}"
    state = load_checkpoint(path).state
    assert state["validation_bleu"] == scores[best - 1]
    assert state["validation_loss"] == losses[best - 1]
    averages = by_hand.moving_average([each.after for each in updates], SETTINGS.average)
    by_hand.check_weights(by_hand.saved_weights(path, "model", training.model), averages[step - 1])


class Clock:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_a_plan_in_minutes_lets_the_rate_fall_with_the_clock_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(common.training, "time", SimpleNamespace(monotonic=clock.monotonic))
    settings = replace(SETTINGS, epochs=1, warmup_steps=3, patience=99)
    training = begin(tmp_path / "run", replace(settings, minutes=0.5))
    asked: list[float] = []
    update = training.learner.update

    def note(group: list[list[Example]], rate: float) -> Tensor:
        asked.append(clock.now)
        return update(group, rate)

    training.learner.update = note  # type: ignore[method-assign, assignment]
    with recorded_updates() as recorded:
        training.fit()
    (updates,) = recorded
    begun = 1001.0  # the first reading
    for step, (seen, made) in enumerate(zip(asked, updates, strict=True), start=1):
        fall = 1.0 - (seen - begun) / 30.0
        assert made.rate == pytest.approx(1e-2 * min(step / 3, fall), rel=1e-9)
    rows = training.run.read_metrics()
    assert len(rows) > 1  # the plan in epochs says one
    assert asked[-1] - begun < 30.0 <= rows[-1]["minutes"] * 60.0 < 40.0


def test_minutes_that_end_between_two_epochs_add_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(common.training, "time", SimpleNamespace(monotonic=clock.monotonic))
    training = begin(tmp_path / "run", replace(SETTINGS, minutes=5.0))
    save = training._save

    def save_slowly() -> None:
        save()
        clock.now += 400.0 if training.metrics else 0.0

    monkeypatch.setattr(training, "_save", save_slowly)
    training.fit()
    assert training.progress.epoch == len(training.metrics) == 1
    assert training.metrics[0]["minutes"] < 5.0  # the rest of the plan went by while it was saved
    again = begin(tmp_path / "run", replace(SETTINGS, minutes=5.0))
    assert again.resume()
    with recorded_updates() as recorded:
        again.fit()
    assert not any(recorded)
    assert again.run.read_metrics() == training.metrics


def test_the_speed_counts_target_tokens_with_their_ends_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(common.training, "time", SimpleNamespace(monotonic=clock.monotonic))
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=2))
    training.fit()
    tokens = sum(len(each.target) + 1 for each in training.task.train_set)
    rows = training.run.read_metrics()
    # The clock is read twice around an epoch's updates: at their beginning and at their end.
    assert [row["tokens_per_second"] for row in rows] == [tokens, tokens]


def test_steps_count_updates_through_all_epochs(run: ProofRun) -> None:
    assert run.settings.epochs is not None
    sizes = [len(epoch_groups(run, epoch)[1]) for epoch in range(run.settings.epochs)]
    assert [row["step"] for row in run.rows] == list(accumulate(sizes))
    assert [row["epoch"] for row in run.rows] == list(range(1, len(sizes) + 1))
