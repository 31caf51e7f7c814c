"""Several processes, started by torchrun as a user would, learn what one learns."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.common.test_checkpoint import stored
from tests.examples.common.test_training import fingerprint
from tests.examples.common.together import (
    ENVIRONMENT,
    ROOT,
    command,
    resume_and_save,
    train,
)
from tests.examples.tiny_run import SETTINGS, TranslationTraining, begin

from common import distributed
from common.checkpoint import Checkpoint, latest_checkpoint
from common.distributed import join_processes
from common.program import run_program

RENDEZVOUS = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234"}


def torchrun(count: int, program: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Start several processes of a program, and wait for them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
    command += [*options, "--standalone", "--", *program]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def last_checkpoint(folder: Path) -> Checkpoint:
    checkpoint = latest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint


@dataclass
class Together:
    """What two processes have printed and written."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, port: str) -> Together:
    """Let two processes work together, which know of each other what torchrun tells them."""
    folder = tmp_path_factory.mktemp("together")
    environment = ENVIRONMENT | RENDEZVOUS | {"MASTER_PORT": port}
    del environment["RANK"]
    done = subprocess.run(
        [sys.executable, *command(folder, train, epochs=1, is_exact=True)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Together(folder, done.stdout)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train in this process, with two batches an update."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    settings = replace(SETTINGS, dropout=0.0, accumulate=2, epochs=1)
    try:
        training = begin(tmp_path_factory.mktemp("alone") / "run", settings)
        training.fit()
    finally:
        torch.set_default_dtype(default)
    return training.run.folder


def test_two_processes_learn_what_one_learns_from_two_batches_an_update(
    together: Together, alone: Path
) -> None:
    assert together.printed.count("train loss") == 1  # one process speaks
    folder = together.folder
    two, one = last_checkpoint(folder), last_checkpoint(alone)
    assert two.step == one.step == 4  # seven batches: the last update has but one
    for key, tensor in one.tensors["model"].items():
        # The gradient of a key's bias is nothing but rounding, which Adam blows up.
        tolerance = 1e-8 if key.endswith("key_projection.bias") else 1e-10
        torch.testing.assert_close(two.tensors["model"][key], tensor, rtol=0, atol=tolerance)
    for of_two, of_one in zip(metrics(folder), metrics(alone), strict=True):
        for key in ("train_loss", "validation_loss"):
            assert of_two[key] == pytest.approx(of_one[key], abs=1e-6)


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def join_by(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> int:
    """Join the processes that an environment tells of; return the exit status of the program."""
    for name in (*RENDEZVOUS, "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def work() -> None:
        with join_processes(torch.device("cpu")):
            raise AssertionError("nobody is there")

    return run_program(work)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        *((name, None, f"environment variable {name} expected") for name in RENDEZVOUS),
        *((name, "first", "invalid literal for int") for name in ("RANK", "MASTER_PORT")),
    ],
)
def test_an_environment_that_torchrun_does_not_make_is_refused(
    name: str,
    value: str | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = {**RENDEZVOUS, name: value}
    given = {each: text for each, text in environment.items() if text is not None}
    assert join_by(monkeypatch, given) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: cannot join the processes that torchrun's RANK, WORLD_SIZE")
    assert reason in line


def test_processes_that_never_come_are_waited_for_in_bounded_time(
    port: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(milliseconds=300))
    assert join_by(monkeypatch, RENDEZVOUS | {"RANK": "1", "MASTER_PORT": port}) == 2
    said = capfd.readouterr().err
    assert "error: cannot join the processes that torchrun's RANK" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "said", "picture"),
    [
        ("translate", "--epochs 2 --vocabulary 80", "in 2 processes", "attention.png"),
        ("generate_text", "--steps 8 --vocabulary 60 --d-model 16", "Written:", "loss.png"),
    ],
)
def test_a_program_trains_in_two_processes_of_which_one_speaks(
    tmp_path: Path, files: list[str], program: str, options: str, said: str, picture: str
) -> None:
    folder = tmp_path / "run"
    data = files if program == "translate" else ["--text", files[3]]
    command = [str(ROOT / "examples" / f"{program}.py"), "train", *data, "--run", str(folder)]
    command += options.split()
    done = torchrun(2, command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(said) == 1
    assert (folder / picture).exists()
    again = torchrun(2, command)
    assert again.returncode != 0
    assert "holds a run; resume it with --resume" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_where_one_process_is_killed_all_stop_and_it_is_named(tmp_path: Path, victim: int) -> None:
    done = torchrun(
        2, command(tmp_path / "run", train, victim=victim)
    )  # raises if the other one waits for it
    assert done.returncode != 0
    cause = done.stderr[done.stderr.index("Root Cause") :]
    assert f"local_rank: {victim}" in cause
    assert "exitcode  : -9" in cause
    assert last_checkpoint(tmp_path / "run").step == 6


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_training_that_torchrun_restarts_ends_as_one_that_nothing_happened_to(
    tmp_path: Path, victim: int
) -> None:
    killed = command(tmp_path / "run", train, victim=victim, snapshots=True, dropout=0.2)
    restarted = torchrun(2, killed, "--max-restarts", "1")
    assert restarted.returncode == 0, restarted.stderr
    assert (tmp_path / "run" / "died").exists()
    undisturbed = torchrun(2, command(tmp_path / "calm", train, dropout=0.2))
    assert undisturbed.returncode == 0, undisturbed.stderr
    found, expected = (
        fingerprint(begin(tmp_path / name, replace(SETTINGS, dropout=0.2)))
        for name in ("run", "calm")
    )
    assert found == expected


@pytest.mark.slow
def test_any_number_of_processes_resumes_from_the_same_bits(
    tmp_path: Path, trained: TranslationTraining
) -> None:
    folder = Path(shutil.copytree(trained.run.folder, tmp_path / "run"))
    expected = contents(folder)
    for count in (2, 4, 3, 1):
        done = torchrun(count, command(folder, resume_and_save))
        assert done.returncode == 0, done.stderr
        assert contents(folder) == expected


def contents(folder: Path) -> object:
    """Return the newest checkpoint of a run, without its clock."""
    checkpoint = last_checkpoint(folder)
    del checkpoint.state["progress"]["seconds"]
    return checkpoint.step, stored(checkpoint.tensors), checkpoint.state
