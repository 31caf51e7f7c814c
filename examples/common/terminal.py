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
OUTPUT = "output"
"""The label of the line of a sample that is printed after every validation."""
SampleLines = Sequence[tuple[str, str]]
"""The lines of a sample, each with its label; one of them is :data:`OUTPUT`."""


_bars: list[Progress] = []  # the one that is drawn


def say(
    text: str | Text | Table, *, file: TextIO | None = None, style: str = "", is_cut: bool = False
) -> None:
    """Print a text or a table at once, on the standard output or another stream.

    Args:
        text: What to print; without markup.
        file: The stream.
        style: A style of rich, such as "bold".
        is_cut: Whether a terminal shows one line, cut to its width, instead of several.
    """
    stream = sys.stdout if file is None else file
    console = _bars[0].console if _bars and stream.isatty() else Console(file=stream)
    if not console.is_terminal:
        console.width = 10_000  # of a table, which is never broken
    console.print(
        text,
        style=style,
        no_wrap=is_cut or None,
        overflow="ellipsis" if is_cut else None,
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
            1       3.063       1.288        85.9      0.5     *
               source     昨夜、妹はタクシーに乗りました。
               output     My younger sister took a taxi last night.
               reference  My younger sister rode the taxi last night.
         46% ━━━━━━━━━━         epoch 2 of 4  loss 1.209  9,284 tokens/s  0:00:58 left

    It is a context manager, which removes the bar at its end. A pipe receives the table alone.

    Args:
        title: The name of the model, above the table.
        unit: The name of the targets, such as "tokens".
        by_steps: Whether the rows of the table are named by updates instead of epochs.
        is_shown: Whether this process shows anything, as only the first of several does.

    Attributes:
        loss: The training loss that the bar shows, if there is one.
    """

    def __init__(self, title: str, unit: str, *, by_steps: bool, is_shown: bool = True) -> None:
        self.title, self.unit, self.is_shown = title, unit, is_shown
        self.place = "step" if by_steps else "epoch"
        self.loss: float | None = None
        self._first, self._begun, self._drawn = 0, 0.0, 0.0
        self._is_sampled = self._has_header = False
        self._bar: Progress | None = None
        self._end = ExitStack()

    def __enter__(self) -> "Display":
        self._bar = self._end.enter_context(progress_bar(is_shown=self.is_shown))
        return self

    def __exit__(self, *error: object) -> None:
        self._end.close()

    @property
    def shows_samples(self) -> bool:
        """Whether a sample would be printed."""
        return self.is_shown and sys.stdout.isatty()

    def begin(self, targets: int) -> None:
        """Measure the speed of the updates from here on, where so many targets were read."""
        self._first, self._begun = targets, time.monotonic()

    def speed(self, targets: int) -> float:
        """Compute the number of targets per second, now that so many were read."""
        return (targets - self._first) / max(time.monotonic() - self._begun, 1e-9)

    def update(self, targets: int, done: float, place: str) -> None:
        """Show the place now and then.

        Args:
            targets: Number of targets read so far.
            done: The part of the plan that is done, from 0 to 1.
            place: Its name, such as "epoch 2 of 4".
        """
        if time.monotonic() - self._drawn >= INTERVAL:
            self.show(targets, done, place)

    def show(self, targets: int, done: float, place: str) -> None:
        """Show the place at once."""
        self._drawn = time.monotonic()
        loss = "---" if self.loss is None else f"{self.loss:.3f}"
        text = f"{place}  loss {loss}  {self.speed(targets):,.0f} {self.unit}/s"
        if self._bar is not None:
            parts = int(PARTS * done)
            if not self._bar.tasks:  # what is done already takes no time now
                self._bar.add_task(text, total=PARTS, completed=parts)
            self._bar.update(self._bar.task_ids[0], completed=parts, description=text, refresh=True)

    def report(
        self,
        row: Mapping[str, Any],
        figures: Mapping[str, float],
        *,
        is_best: bool,
        sample: SampleLines = (),
    ) -> None:
        """Print the metrics of a validation, and what the model generates now.

        Args:
            row: The line of ``metrics.jsonl``.
            figures: The metrics that the task computed.
            is_best: Whether the validation is the best one so far.
            sample: What the model generates; only its output is printed again and again.
        """
        cells = {self.place: f"{row[self.place]:d}", "train loss": f"{row['train_loss']:.3f}"}
        for name, value in figures.items():
            title = name.replace("validation_", "valid ").replace("bleu", "BLEU")
            cells[title] = f"{value:.{1 if title.endswith('BLEU') else 3}f}"
        cells |= {"minutes": f"{row['minutes']:.1f}", "best": "*" if is_best else ""}
        widths = [max(len(name), 6 if name == "step" else 0) for name in cells]
        if not self._has_header:
            say(f"\n{self.title}" if self.title else "")
            say(_aligned([*cells], widths), style="bold")
        self._has_header = True
        say(_aligned([*cells.values()], widths), style="green" if is_best else "")
        labels = max((len(label) for label, _ in sample), default=0)
        for label, words in sample:
            if label == OUTPUT or not self._is_sampled:
                line = f"       {label:{labels}}  {' '.join(words.split())}".rstrip()
                say(line, is_cut=True)
        self._is_sampled = self._is_sampled or bool(sample)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(map(str.rjust, cells, widths)).rstrip()
