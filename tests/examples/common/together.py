"""A program that tests start in several processes: it trains, saves and resumes in all of them."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.examples.tiny_run import SETTINGS, begin

from common import plots
from common.distributed import Processes, join_processes
from common.program import run_program

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}:{ROOT / 'src'}"}


def train(
    folder: Path,
    processes: Processes,
    *,
    epochs: int = 6,
    save_steps: int = 2,
    dropout: float = 0.0,
    victim: int = -1,
    is_exact: bool = False,
    **options: Any,
) -> None:
    """Train, in double precision if it is to be exact; the victim dies once."""
    if is_exact:
        torch.set_default_dtype(torch.float64)
    settings = replace(SETTINGS, dropout=dropout, epochs=epochs)
    processes.broadcast(lambda: begin(folder, settings).run and None)
    options |= {"processes": processes, "save_steps": save_steps}
    training = begin(folder, settings, **options)
    training.resume()
    learner = training.learner
    update = learner.update

    def update_or_die(*arguments: Any) -> Any:
        died = folder / "died"
        if processes.rank == victim and training.progress.step == 8 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return update(*arguments)

    learner.update = update_or_die  # type: ignore[assignment]
    training.fit()


def resume_and_save(folder: Path, processes: Processes) -> None:
    training = begin(folder, processes=processes)
    assert training.resume()
    training._save()


def work(folder: str, what: str, options: str) -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    plots.as_png = lambda figure: b""  # to draw one takes longer than an epoch
    with join_processes(torch.device("cpu")) as processes:
        globals()[what](Path(folder), processes, **json.loads(options))


def main() -> int:
    """Be one of torchrun's processes, or two processes that are imported once."""
    if "RANK" in os.environ:
        return run_program(lambda: work(*sys.argv[1:]))
    import torch._dynamo  # which optimisers import  # noqa: F401

    child = os.fork()
    os.environ["RANK"] = "0" if child else "1"
    status = run_program(lambda: work(*sys.argv[1:]))
    return status or (os.waitpid(child, 0)[1] if child else 0)


def command(folder: Path, what: Any, **options: object) -> Sequence[str]:
    """Return the arguments by which Python starts one of the processes."""
    return [__file__, str(folder), what.__name__, json.dumps(options)]


if __name__ == "__main__":
    sys.exit(main())
