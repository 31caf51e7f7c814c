"""Several processes, started by torchrun as a user would, learn what one learns."""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from tests.examples.test_checkpoint import assert_same
from tests.examples.test_training import fingerprint
from tests.examples.tiny_run import SETTINGS, begin

from common import distributed
from common.checkpoint import Checkpoint, latest_checkpoint
from common.distributed import join_processes
from common.program import run_program
from translation.training import TranslationTraining

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import torch
from tests.examples.tiny_run import SETTINGS, begin
from common import plots
from common.distributed import join_processes
from common.program import run_program

plots.as_png = lambda figure: b""  # to draw one takes longer than an epoch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
folder, dropout, victim = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
sharded = sys.argv[4] == "sharded"

def work():
    with join_processes(torch.device("cpu")) as processes:
        train(processes)

def train(processes):
    settings = replace(SETTINGS, dropout=dropout)
    processes.broadcast(lambda: begin(folder, settings).run and None)
    training = begin(folder, settings, processes=processes, save_steps=2, sharded=sharded)
    training.resume()
    update = training.learner.update

    def update_or_die(*arguments):
        died = folder / "died"
        if processes.rank == victim and training.progress.step == 8 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return update(*arguments)

    training.learner.update = update_or_die
    training.fit()
    if sharded:
        learner = training.learner
        held = [*learner.model.parameters(), *learner.moving.parameters()]
        held += [state["exp_avg"] for state in learner.optimizer.state.values()]
        parts = sum(each.to_local().numel() for each in held)
        print(f"holds {parts / sum(each.numel() for each in held):.1f}")

sys.exit(run_program(work))
"""


def torchrun(
    folder: Path, *options: str, dropout: float = 0.0, victim: int = -1, sharded: bool = False
) -> subprocess.CompletedProcess[str]:
    """Start two processes with a tiny training, and wait for them."""
    script = folder.with_suffix(".py")
    script.write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *options]
    command += ["--standalone", "--", str(script), str(folder), str(dropout), str(victim)]
    command += ["sharded" if sharded else "copied"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def last_checkpoint(folder: Path) -> Checkpoint:
    checkpoint = latest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint


@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_processes_learn_what_one_learns_from_two_batches_an_update(
    tmp_path: Path, sharded: bool
) -> None:
    done = torchrun(tmp_path / "two", sharded=sharded)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("holds 0.5") == (2 if sharded else 0)
    assert done.stdout.count("epoch   6") == 1  # one process speaks
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        alone = begin(tmp_path / "one", replace(SETTINGS, dropout=0.0, accumulate=2))
        alone.fit()
    finally:
        torch.set_default_dtype(default)
    two, one = last_checkpoint(tmp_path / "two"), last_checkpoint(tmp_path / "one")
    random = two.tensors["random"]
    assert not torch.equal(random["0.cpu"], random["1.cpu"])  # other random numbers for dropout
    assert two.step == one.step == 6 * 4  # seven batches: the last update has but one
    for name, tensor in one.tensors["model"].items():
        # The gradient of a key's bias is nothing but rounding, which Adam blows up.
        tolerance = 1e-8 if name.endswith("key_projection.bias") else 1e-10
        torch.testing.assert_close(two.tensors["model"][name], tensor, rtol=0, atol=tolerance)
    two_rows, one_rows = (
        (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        for name in ("two", "one")
    )
    losses = [[row.split(",")[2:4] for row in rows if row] for rows in (two_rows, one_rows)]
    for of_two, of_one in zip(*losses, strict=True):
        numbers = [[float(text.split(":")[1]) for text in each] for each in (of_two, of_one)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)


ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234"}


def join_by(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> int:
    """Join the processes that an environment tells of; return the exit status of the program."""
    for name in (*ENVIRONMENT, "LOCAL_RANK"):
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
        *((name, None, f"environment variable {name} expected") for name in ENVIRONMENT),
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
    environment = {**ENVIRONMENT, name: value}
    given = {each: text for each, text in environment.items() if text is not None}
    assert join_by(monkeypatch, given) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: cannot join the processes that torchrun's RANK, WORLD_SIZE")
    assert reason in line


@pytest.mark.parametrize("number", ["0", "1"])
def test_processes_that_never_come_are_waited_for_in_bounded_time(
    number: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "START_TIMEOUT", timedelta(milliseconds=300))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    assert join_by(monkeypatch, ENVIRONMENT | {"RANK": number, "MASTER_PORT": port}) == 2
    said = capfd.readouterr().err
    assert "error: cannot join the processes that torchrun's RANK" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_program_trains_in_two_processes(tmp_path: Path, files: list[str]) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "--", str(ROOT / "examples" / "translate.py"), "train", *files]
    command += ["--run", str(folder), "--epochs", "2", "--vocabulary", "80"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in 2 processes") == 1
    assert done.stdout.count("Test sentences, none of which is in the training data") == 1
    assert (folder / "attention.png").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode != 0
    assert "holds a run; resume it with --resume" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_where_one_process_is_killed_all_stop_and_it_is_named(tmp_path: Path, victim: int) -> None:
    done = torchrun(tmp_path / "run", victim=victim)  # raises if the other one waits for it
    assert done.returncode != 0
    cause = done.stderr[done.stderr.index("Root Cause") :]
    assert f"local_rank: {victim}" in cause
    assert "exitcode  : -9" in cause
    assert last_checkpoint(tmp_path / "run").step == 6


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "sharded"), [(0, False), (1, False), (1, True)])
def test_a_training_that_torchrun_restarts_ends_as_one_that_nothing_happened_to(
    tmp_path: Path, victim: int, sharded: bool
) -> None:
    restarted = torchrun(
        tmp_path / "run",
        *("--max-restarts", "1"),
        dropout=0.2,
        victim=victim,
        sharded=sharded,
    )
    assert restarted.returncode == 0, restarted.stderr
    assert (tmp_path / "run" / "died").exists()
    undisturbed = torchrun(tmp_path / "calm", dropout=0.2, sharded=sharded)
    assert undisturbed.returncode == 0, undisturbed.stderr
    found, expected = (
        fingerprint(begin(tmp_path / name, replace(SETTINGS, dropout=0.2)))
        for name in ("run", "calm")
    )
    assert found == expected


RESUME_AND_SAVE = """
import sys
from pathlib import Path
import torch
from tests.examples.tiny_run import begin
from common.distributed import join_processes

with join_processes(torch.device("cpu")) as processes:
    training = begin(Path(sys.argv[1]), processes=processes, sharded=processes.world_size > 1)
    assert training.resume()
    training._save()
"""


@pytest.mark.slow
def test_any_number_of_processes_resumes_from_the_same_bits(
    tmp_path: Path, trained: TranslationTraining
) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "run"
    script.write_text(RESUME_AND_SAVE, encoding="utf-8")
    shutil.copytree(trained.run.folder, folder)
    expected = contents(folder)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}:{ROOT / 'src'}"}
    for count in (2, 4, 3, 1):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
        command += ["--standalone", "--", str(script), str(folder)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert_same(contents(folder), expected)


def contents(folder: Path) -> object:
    """Return the newest checkpoint of a run, without clocks and random states of processes."""
    checkpoint = last_checkpoint(folder)
    del checkpoint.tensors["random"], checkpoint.state["progress"]["seconds"]
    return checkpoint.step, checkpoint.tensors, checkpoint.state
