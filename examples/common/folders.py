"""Folders: the runs that there are, found without torch."""

import argparse
from pathlib import Path

from common.errors import UserError

RUNS = Path("runs")
"""The folder in which runs are looked for."""


def check_runs(options: argparse.Namespace, *, train: str) -> None:
    """Raise unless there are the runs that a command line names, or any if it names none.

    This needs no torch, whose import takes longer than all else that such a command does.

    Args:
        options: The command line, with ``run`` or ``runs``.
        train: The command that trains a run, for the error message.

    Raises:
        UserError: If a folder holds no run; the message lists those in ``RUNS``.
    """
    found = [str(file.parent) for file in sorted(RUNS.glob("*/config.json"))]
    for folder in options.runs if hasattr(options, "runs") else [options.run]:
        if folder is None and not found:
            raise UserError(no_run(train))
        if folder is not None and not (folder / "config.json").is_file():
            several = ", ".join(found[:9]) + ", ..." * (len(found) > 9)
            others = f"the runs in {RUNS}/ are {several}; " * bool(found)
            raise UserError(
                f"{folder} holds no run (no config.json); {others}train one with {train}"
            )


def no_run(train: str) -> str:
    """Say that no run was found, and how to train one."""
    return (
        f"{RUNS}/ holds no trained run of this program; train one with {train}, or name one with "
        "--run"
    )
