"""Terminal: the width of a terminal, the width of text in it, and colours."""

import os
import shutil
import unicodedata
from typing import TextIO

DEFAULT, LEAST = 80, 40  # columns
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


def width() -> int:
    """Return the number of columns of the terminal: 80 for a pipe or a file, at least 40.

    The environment variable ``COLUMNS`` has precedence.
    """
    return max(LEAST, shutil.get_terminal_size((DEFAULT, 24)).columns)


def limit(stream: TextIO) -> int | None:
    """Return the width of a terminal; None for a pipe or a file, which keeps whole lines."""
    return width() if stream.isatty() else None


def colour(text: str, name: str, stream: TextIO) -> str:
    """Colour a text if the stream is a terminal that shows colours, and return it.

    A pipe or a file receives no colours, nor does a terminal with ``TERM=dumb`` or ``NO_COLOR``
    (https://no-color.org).

    Args:
        text: The text.
        name: "bold", "dim", "red", "green", "yellow", "blue" or "cyan".
        stream: The stream that the text will be written to.

    Example:
        >>> import io
        >>> colour("loss", "red", io.StringIO())  # not a terminal
        'loss'
    """
    code = _CODES[name]
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\033[{code}m{text}\033[0m" if has_colours and stream.isatty() else text


def cells(text: str) -> int:
    """Count the columns that a text takes in a terminal: two for each East Asian wide character.

    Example:
        >>> cells("cat"), cells("猫"), cells("e\u0301")  # the last one: e and an accent on it
        (3, 2, 1)
    """
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in "1 pair" and "1,200 batches"."""
    return f"{number:,} {noun}{('es' if noun.endswith('tch') else 's') * (number != 1)}"


def wrap(text: str, columns: int, indent: str = "") -> list[str]:
    """Break a line between words into lines of at most ``columns``; longer words stay whole.

    Args:
        text: The line; its own indentation is kept.
        columns: Number of columns of a line.
        indent: What the lines after the first begin with, besides that indentation.

    Example:
        >>> wrap("a cat drinks milk", 10, indent="  ")
        ['a cat', '  drinks', '  milk']
    """
    own = text[: len(text) - len(text.lstrip())]
    words = text.split()
    lines = [own + "".join(words[:1])]
    for word in words[1:]:
        line = f"{lines[-1]} {word}"
        if cells(line) <= columns:
            lines[-1] = line
        else:
            lines.append(own + indent + word)
    return lines


def fit(text: str, stream: TextIO) -> str:
    """Break the lines of a text to the width of a terminal; a pipe or a file keeps whole lines."""
    columns = limit(stream)
    if columns is None:
        return text
    lines = (
        [line] if cells(line) <= columns else wrap(line, columns, indent="  ")
        for line in text.split("\n")
    )
    return "\n".join(line for broken in lines for line in broken)
