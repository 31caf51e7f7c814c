"""Tables: text of one-letter marks under words of any script, and HTML for notebooks."""

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from shutil import get_terminal_size
from textwrap import wrap

WIDTHS = 80, 120  # columns of a printed table: at least and at most


def align_columns(
    marks: Sequence[Sequence[str]], *, queries: Sequence[str], keys: Sequence[str]
) -> str:
    """Format a table of one-letter marks under column labels of any width."""
    margin = max((_display_width(label) for label in queries), default=0)
    lines = [_pad("", margin) + "  " + " ".join(keys)]
    for label, row in zip(queries, marks, strict=True):
        cells = (_pad(mark, _display_width(key)) for mark, key in zip(row, keys, strict=True))
        lines.append(_pad(label, margin) + "  " + " ".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def find_width() -> int:
    """Return the columns of the terminal, within the limits of a table."""
    columns = get_terminal_size().columns if sys.stdout.isatty() else 0
    return min(max(columns, WIDTHS[0]), WIDTHS[1])


def text_table(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Format rows as lines, in columns, of which the last one is wrapped at a width."""
    widths = [max(map(_display_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for *cells, last in rows:
        start = "".join(_pad(cell, size + 2) for cell, size in zip(cells, widths, strict=False))
        line, indent = (start + last).rstrip(), " " * len(start)
        lines += wrap(line, width, subsequent_indent=indent) if width and line else [line]
    return lines


def html_table(summary: str, rows: Iterable[Iterable[str]]) -> str:
    """Format lines of text, and the rows of a table below them, as HTML for a notebook."""
    cell = '<td style="text-align: left">'
    lines = (f"<tr>{''.join(f'{cell}{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<pre>{escape(summary)}</pre><table>{''.join(lines)}</table>"


def _display_width(text: str) -> int:
    """Count the terminal columns of ``text``; kanji and kana take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _display_width(text))
