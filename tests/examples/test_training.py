import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.examples.tiny_run import SETTINGS, begin

from translation.batches import Example, collate
from translation.checkpoint import latest_checkpoint
from translation.errors import UserError
from translation.presets import BASE, SMALL
from translation.tokenizer import PAD
from translation.training import Training, batch_loss, learning_rate
from translation.transformer import Transformer


def fingerprint(training: Training) -> str:
    """The SHA-256 of everything that a training goes on from, clocks left out."""
    checkpoint = latest_checkpoint(training.run.checkpoints)
    assert checkpoint is not None
    digest = hashlib.sha256()
    for group in sorted(checkpoint.tensors):
        for name, tensor in sorted(checkpoint.tensors[group].items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    state = checkpoint.state
    state["progress"].pop("seconds")
    digest.update(str(state["progress"]).encode() + state["random"]["cpu"].numpy().tobytes())
    for moments in state["optimizer"]["state"].values():
        for value in moments.values():
            digest.update(torch.as_tensor(value).numpy().tobytes())
    return digest.hexdigest()


def test_the_loss_of_real_tokens_equals_that_of_the_whole_batch_without_padding() -> None:
    model = SETTINGS.build(20, 20).eval()
    source, target, next_token = collate(
        [Example([5, 6, 7], [8, 9]), Example([5], [10, 11, 12, 13])]
    )
    loss, count = batch_loss(model, source, target, next_token, label_smoothing=0.1)
    logits = model(source, target)
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        next_token.flatten(),
        ignore_index=PAD,
        label_smoothing=0.1,
        reduction="sum",
    )
    assert count == 8
    torch.testing.assert_close(loss, expected)


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient() -> None:
    model = SETTINGS.build(20, 20)
    nothing = torch.full((2, 3), PAD)
    loss, count = batch_loss(model, nothing, nothing, nothing, label_smoothing=0.1)
    (loss / max(count, 1)).backward()
    assert float(loss.detach()) == count == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_the_rate_rises_to_its_peak_and_falls_to_zero() -> None:
    assert learning_rate(SMALL, 1, 0.0) == pytest.approx(1.2e-3 / 600)
    assert learning_rate(SMALL, 600, 0.0) == pytest.approx(1.2e-3)
    assert learning_rate(SMALL, 6000, 0.5) == pytest.approx(0.6e-3)
    assert learning_rate(SMALL, 12000, 1.0) == 0.0


def test_the_base_preset_follows_the_paper() -> None:
    assert learning_rate(BASE, 4000, 0.3) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert learning_rate(BASE, 16000, 0.3) == pytest.approx(512**-0.5 * 16000**-0.5)


def test_training_lowers_the_loss_and_writes_down_every_epoch(trained: Training) -> None:
    lines = trained.run.metrics.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert rows[-1]["validation_loss"] < rows[0]["validation_loss"]
    assert (trained.run.folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_best_weights_are_those_with_the_lowest_validation_loss(trained: Training) -> None:
    best = latest_checkpoint(trained.run.best)
    assert best is not None
    assert best.state["validation_loss"] == trained.progress.best_loss


def test_two_trainings_of_one_seed_are_equal_bit_for_bit(tmp_path: Path, trained: Training) -> None:
    again = begin(tmp_path / "again")
    again.fit()
    assert fingerprint(again) == fingerprint(trained)


def test_a_resumed_training_equals_one_that_never_stopped(
    tmp_path: Path, trained: Training
) -> None:
    folder = tmp_path / "run"
    first = begin(folder)
    loss, rate = first._train_epoch(time.monotonic())
    first._save = lambda: None  # type: ignore[method-assign]
    first._end_epoch(loss, rate, time.monotonic())  # killed before the first checkpoint ...
    first = begin(folder)
    assert not first.resume()
    loss, rate = first._train_epoch(time.monotonic())
    first._end_epoch(loss, rate, time.monotonic())
    loss, rate = first._train_epoch(time.monotonic())
    first._save = lambda: None  # type: ignore[method-assign]
    first._end_epoch(loss, rate, time.monotonic())  # ... and before the second
    second = begin(folder)
    torch.manual_seed(99)  # another process would be elsewhere in its random numbers
    assert second.resume()
    assert second.progress.epoch == 1
    second.fit()
    assert fingerprint(second) == fingerprint(trained)
    assert second.run.metrics.read_text(encoding="utf-8").count("\n") == 6


def test_training_stops_where_nothing_is_gained(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=50, patience=2))
    training.progress.best_loss = -1.0  # nobody gets below
    training.fit()
    assert training.progress.epoch == 2


def test_a_plan_in_minutes_ends_with_them(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=10**6, patience=10**6))
    training.minutes = 0.02
    training.fit()
    assert 1.2 <= training.progress.seconds < 60.0


def test_a_loss_that_is_no_number_stops_the_training_and_keeps_what_was_saved(
    tmp_path: Path,
) -> None:
    training = begin(tmp_path / "run")
    with torch.no_grad():
        next(training.model.output.parameters())[0, 0] = math.nan
    with pytest.raises(UserError, match="the loss is nan at step"):
        training.fit()
    assert latest_checkpoint(training.run.checkpoints) is None


def test_tied_embeddings_are_still_tied_after_a_resume(tmp_path: Path, trained: Training) -> None:
    config, model, _, _ = trained.run.load_best(torch.device("cpu"))
    assert config.settings.tie_embeddings
    assert isinstance(model, Transformer)
    assert model.output.weight is model.target_embedding.weight


def test_the_best_weights_are_restored_where_they_were_lost(
    tmp_path: Path, trained: Training
) -> None:
    shutil.copytree(trained.run.folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    training = begin(tmp_path / "run")
    assert training.resume()
    assert training.run.load_best(torch.device("cpu"))


def test_rows_that_are_no_metrics_are_dropped_on_resume(tmp_path: Path, trained: Training) -> None:
    shutil.copytree(trained.run.folder, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(whole + b'\xff\n{"epoch": 1}\n[]\n{"epoch": 7, "min')
    assert begin(tmp_path / "run").resume()
    assert metrics.read_bytes() == whole


def test_a_model_that_breaks_in_its_last_update_is_not_kept(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=1, peak_rate=1e30, warmup_steps=1))
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at step"):
        training.fit()
    assert latest_checkpoint(training.run.best) is None


SCRIPT = """
import sys
from pathlib import Path
import torch
from tests.examples.tiny_run import begin
torch.set_num_threads(1)
training = begin(Path(sys.argv[1]))
training.resume()
training.fit()
"""


@pytest.mark.slow
def test_killed_again_and_again_a_training_ends_with_the_same_bits(
    tmp_path: Path, trained: Training
) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'examples'}"}
    kills = 0
    for attempt in range(100):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "run")], env=environment
        )
        try:
            process.wait(timeout=2.0 + 0.15 * attempt)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills > 3
    assert process.returncode == 0
    assert fingerprint(begin(tmp_path / "run")) == fingerprint(trained)
