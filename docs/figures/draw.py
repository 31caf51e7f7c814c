"""Draw the figures of the book.

    python docs/figures/draw.py [NAME ...]

writes ``docs/learn/figures/NAME.svg`` for each figure, or for the named ones. The functions that
draw are in ``chapter_NN.py``, in the order of the chapters.
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "_ext"))

import style  # noqa: E402

FIGURES = HERE.parent / "learn" / "figures"


def load() -> list[str]:
    """Import the files that draw, and list the names of all figures."""
    for path in sorted(HERE.glob("chapter_*.py")):
        import_module(path.stem)
    return list(style.FIGURES)


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    known = load()
    for name in sys.argv[1:] or known:
        (FIGURES / f"{name}.svg").write_text(style.as_svg(name), encoding="utf-8")
