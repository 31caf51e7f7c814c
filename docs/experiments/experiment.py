"""Recording: how every experiment of this folder runs and writes its results.

An experiment is a program with one documented command. It trains with fixed seeds on one thread and
counts updates instead of minutes, so that its results do not depend on the load of the machine. The
``seconds`` are those of the processor.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "examples"))  # the programs' packages

from common.files import write_atomically

FOLDER = Path(__file__).parent / "results"
DIGITS = 4


def positive(text: str) -> int:
    """Read a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def new_parser(description: str | None, *, seeds: Sequence[int]) -> argparse.ArgumentParser:
    """Make a parser with the options of every experiment.

    Args:
        description: The docstring of the program.
        seeds: The seeds that the experiment uses by default.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, formatter_class=formatter, allow_abbrev=False
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(seeds), help=f"seeds (default: {seeds})"
    )
    parser.add_argument(
        "--output", type=Path, default=FOLDER, help="folder of the results (default: beside it)"
    )
    return parser


def rounded(value: Any) -> Any:
    """Round every float inside lists and dictionaries to four significant digits.

    Example:
        >>> rounded({"loss": [0.0171234, 11.1549]})
        {'loss': [0.01712, 11.15]}
    """
    if isinstance(value, dict):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


class Experiment:
    """One run of an experiment: its command, its clock and its file.

    Args:
        command: The documented command, which gives the same results.
        options: The options of the command line, with ``seeds`` and ``output``.
    """

    def __init__(self, command: str, options: argparse.Namespace) -> None:
        self.command, self.seeds, self.folder = command, options.seeds, options.output
        self.begin = time.process_time()

    def write(self, name: str, settings: dict[str, Any], results: dict[str, Any]) -> Path:
        """Write ``NAME.json``, and return its path.

        Args:
            name: Name of the experiment.
            settings: Sizes and rates of the experiment.
            results: Figures and curves; floats are rounded to four significant digits.
        """
        content = {
            "command": self.command,
            "seeds": self.seeds,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "seconds": round(time.process_time() - self.begin),
            "settings": settings,
            "results": results,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path: Path = self.folder / f"{name}.json"
        write_atomically(path, f"{to_json(rounded(content))}\n".encode())
        return path


def to_json(value: Any, indent: str = "") -> str:
    """Write JSON with each list of numbers on one line.

    Example:
        >>> print(to_json({"loss": [0.5, 0.25], "seed": 1}))
        {
         "loss": [0.5, 0.25],
         "seed": 1
        }
    """
    inner = f"{indent} "
    if isinstance(value, dict) and value:
        items = [f"{inner}{json.dumps(key)}: {to_json(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        items = [inner + to_json(each, inner) for each in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def run_single_threaded(work: Callable[[], None]) -> None:
    """Run an experiment on one thread, so that its sums have the same order on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        work()
    finally:
        torch.set_num_threads(before)
