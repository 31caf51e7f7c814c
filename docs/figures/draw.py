"""The figures of the book, ``docs/learn/figures/NAME.svg``; ``pictures.py`` draws them.

The functions that draw are in ``chapter_NN.py``, in the order of the chapters. Figures that show no
numbers of a computation, but boxes and arrows, are edited in their files.
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "_ext"))

import style  # noqa: E402

FIGURES = HERE.parent / "learn" / "figures"
BY_HAND = {
    *("map", "prologue", "split_heads", "wrong_split", "residual_stream", "paths"),
    *("teacher_forcing", "merges", "shift", "beam_tree", "cache", "side_by_side"),
    "online_softmax",
}


def load() -> list[str]:
    """Import the files that draw, and list the names of all figures."""
    for path in sorted(HERE.glob("chapter_*.py")):
        import_module(path.stem)
    return list(style.FIGURES)
