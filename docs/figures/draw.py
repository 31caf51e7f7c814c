"""The figures of the book, ``docs/learn/figures/NAME.svg``; ``pictures.py`` draws them.

The functions that draw are in ``chapter_NN.py``, in the order of the chapters. Figures of boxes
and arrows, of masks and of dials, which show no result of a training, are edited in their files.
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "_ext"))

import style  # noqa: E402

FIGURES = HERE.parent / "learn" / "figures"
BY_HAND = {
    *("map", "prologue", "one_query", "three_roles", "three_masks", "alignment", "mask_painter"),
    *("split_heads", "wrong_split", "dials", "rotation", "residual_stream", "paths"),
    *("three_attentions", "teacher_forcing", "merges", "shift", "beam_tree", "cache"),
    *("side_by_side", "online_softmax", "experts", "dot_product", "speculative"),
}


def load() -> list[str]:
    """Import the files that draw, and list the names of all figures."""
    for path in sorted(HERE.glob("chapter_*.py")):
        import_module(path.stem)
    return list(style.FIGURES)
