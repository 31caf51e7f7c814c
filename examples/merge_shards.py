"""Merge the parts of a sharded run's checkpoints into whole files, which other programs read.

    python examples/merge_shards.py runs/base

With ``--shard`` each process of a training writes its part of a checkpoint into files of its own,
such as ``model-00001-of-00008.safetensors``. All programs here read both forms, and a training can
be resumed from either by any number of processes. This program rewrites the best weights and all
checkpoints of a run as one file for each group of tensors, such as ``model.safetensors``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.folders import check_runs
from common.options import Parser
from common.program import run_program


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: merge(parse(arguments)))


def merge(options: argparse.Namespace) -> None:
    """Merge the parts of all checkpoints of the runs."""
    check_runs(options, train="python examples/translate.py train --shard")
    from common.checkpoint import merge_checkpoints  # only now: it imports torch
    from common.files import FolderLock

    for run in options.runs:
        with FolderLock(run):
            for folder in (run / "best", run / "checkpoints"):
                for path in merge_checkpoints(folder):
                    print(f"merged: {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
