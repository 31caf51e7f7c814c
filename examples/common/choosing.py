"""Choosing: the run that a command uses if the command line names none."""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.checkpoint import latest_checkpoint
from common.errors import UserError
from common.files import is_locked
from common.folders import RUNS, no_run
from common.run import AnyConfig, Run
from common.terminal import fit


def choose_run(
    folder: Path | None, kind: type[AnyConfig], *, train: str, parts: Sequence[str] = ()
) -> Run[AnyConfig]:
    """Return the run that ``--run`` names, or else the latest trained one, and print its name.

    A run is skipped if it is of another program, damaged, not trained yet, or being trained.

    Args:
        folder: The folder that the command line names; None to choose one.
        kind: The configuration of the program's runs.
        train: The command that trains a run, for the error message.
        parts: The folders within a run that have weights of their own, besides the run itself.

    Raises:
        UserError: If ``folder`` is None and there is no trained run.
    """
    if folder is not None:
        return Run(folder, kind)
    found = [Run(file.parent, kind) for file in sorted(RUNS.glob("*/config.json"))]
    trained = [(time, run) for run in found if (time := _trained_at(run)) is not None]
    trained.sort(key=lambda each: each[0])
    while trained:
        _, run = trained[-1]
        if _has_weights(run, parts):
            others = f" (latest of {len(trained)}; choose with --run)" if len(trained) > 1 else ""
            print(fit(f"run: {run.folder}{others}", sys.stderr), file=sys.stderr, flush=True)
            return run
        trained.pop()
    raise UserError(no_run(train))


def _trained_at(run: Run[AnyConfig]) -> float | None:
    """Return when a run was trained; None if it is of another program, or is being trained."""
    try:
        run.read_config()
        if is_locked(run.folder):
            return None
        return max(each.stat().st_mtime for each in run.best.glob("step-*"))
    except (OSError, UserError, ValueError):  # ValueError: there are no weights yet
        return None


def _has_weights(run: Run[AnyConfig], parts: Sequence[str]) -> bool:
    """Return whether the tokenizers and the best weights of a run are undamaged."""
    try:
        config = run.read_config()
        run.load_tokenizers(config)
        for best in (run.best, *(run.folder / part / "best" for part in parts)):
            checkpoint = latest_checkpoint(best)
            if checkpoint is None:
                return False
            config.check_trained(checkpoint, file=run.config_file)
    except (OSError, UserError):
        return False
    return True
