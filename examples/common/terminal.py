"""Terminal: text, tables and the progress of a training, drawn by rich.

In a terminal, lines are broken to its width, and wide characters such as 猫 take two columns. A
pipe or a file receives plain text in whole lines.
"""

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

PARTS = 100_000  # of a plan
INTERVAL = 0.2  # seconds between two drawings of the bar

_bars: list[Progress] = []  # the one that is drawn


def say(text: str | Text | Table, *, file: TextIO | None = None, style: str = "") -> None:
    """Print a text or a table at once, on the standard output or another stream.

    Args:
        text: What to print; without markup.
        file: The stream.
        style: A style of rich, such as "bold".
    """
    stream = sys.stdout if file is None else file
    console = _bars[0].console if _bars and stream.isatty() else Console(file=stream)
    if not console.is_terminal:
        console.width = 10_000  # of a table, which is never broken
    console.print(
        text,
        style=style,
        soft_wrap=not console.is_terminal,
        markup=False,
        emoji=False,
        highlight=False,
    )
    console.file.flush()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int) -> Table:
    """Make a table: the first columns hold ``words`` and are left-aligned, the others numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, name in enumerate(header):
        made.add_column(Text(name), justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in "1 pair" and "1,200 batches"."""
    return f"{number:,} {noun}{('es' if noun.endswith('tch') else 's') * (number != 1)}"


@contextmanager
def progress_bar(*, is_shown: bool = True) -> Iterator[Progress]:
    """Draw a progress bar if the standard error is a terminal, and remove it at the end."""
    bar = Progress(
        TaskProgressColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        disable=not (is_shown and sys.stderr.isatty()),
        expand=True,
    )
    with bar:
        if not bar.disable:
            _bars.append(bar)
        try:
            yield bar
        finally:
            _bars.clear()


class LogHandler(logging.Handler):
    """Prints messages of the log on the standard error, above the bar of a training."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        say(self.format(record), file=sys.stderr)


class Display:
    """What a training shows: a bar of its whole plan, and a row of a table for each validation.

    In a terminal the bar is the last line; below each row of the table stands what the model now
    generates from a fixed example::

        epoch  train loss  valid loss  valid BLEU  minutes  best
            1       3.063       1.288      85.912    0.512     *
               昨夜、妹はタクシーに乗りました。 → My younger sister took a taxi last night.
         46% ━━━━━━━━━━         epoch 2 of 4  loss 1.209  9,284 tokens/s  0:00:58 left

    It is a context manager, which removes the bar at its end. A pipe receives the table alone.

    Args:
        place: What names a row of the table, "epoch" or "step".
        is_shown: Whether this process shows anything, as only the first of several does.
    """

    def __init__(self, place: str, *, is_shown: bool = True) -> None:
        self.place, self.is_shown, self._has_header, self._drawn = place, is_shown, False, 0.0
        self._end = ExitStack()

    def __enter__(self) -> "Display":
        self._bar = self._end.enter_context(progress_bar(is_shown=self.is_shown))
        return self

    def __exit__(self, *error: object) -> None:
        self._end.close()

    @property
    def is_terminal(self) -> bool:
        """Whether a sample would be printed."""
        return self.is_shown and sys.stdout.isatty()

    def update(self, done: float, text: str) -> None:
        """Show now and then which part of the plan is done, from 0 to 1, and a text."""
        if time.monotonic() - self._drawn >= INTERVAL:
            self._drawn = time.monotonic()
            parts = int(PARTS * done)
            if not self._bar.tasks:  # what is done already takes no time now
                self._bar.add_task(text, total=PARTS, completed=parts)
            self._bar.update(self._bar.task_ids[0], completed=parts, description=text, refresh=True)

    def report(self, row: Mapping[str, Any], *, is_best: bool, sample: str = "") -> None:
        """Print the metrics of a validation, and what the model generates now.

        Args:
            row: The line of ``metrics.jsonl``.
            is_best: Whether the validation is the best one so far.
            sample: What the model generates, if anything.
        """
        names = [self.place, "train_loss", *(each for each in row if each.startswith("valid"))]
        titles = [name.replace("validation", "valid").replace("_", " ") for name in names]
        titles = [*(title.replace("bleu", "BLEU") for title in titles), "minutes", "best"]
        cells = [f"{row[name]:{'d' if name == self.place else '.3f'}}" for name in names]
        cells += [f"{row['minutes']:.1f}", "*" if is_best else ""]
        if not self._has_header:
            say("")
            say(_aligned(titles, titles), style="bold")
        self._has_header = True
        say(_aligned(cells, titles), style="green" if is_best else "")
        if sample:
            say(f"       {' '.join(sample.split())}")


def _aligned(cells: Sequence[str], titles: Sequence[str]) -> str:
    widths = [max(len(title), 6) for title in titles]
    return "  ".join(map(str.rjust, cells, widths)).rstrip()
