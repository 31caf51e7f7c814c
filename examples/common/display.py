"""Display: what a training shows, a progress bar of its whole plan and a table of its validations.

In a terminal the bar is the last line; each validation adds a row to the table above it, and under
the row what the model now generates from a fixed example::

    epoch  training loss  validation loss  validation BLEU  minutes  best
        1          3.063            1.288             85.9      0.5     *
           source     昨夜、妹はタクシーに乗りました。
           output     My younger sister took a taxi last night.
           reference  My younger sister rode the taxi last night.
     46% |██████        |  epoch 2 of 4  loss 1.209  9,284 tokens/s  00:58 left

Where the output goes to a file or a pipe, each validation is one line that names all its metrics.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from common.terminal import cells, colour, width

INTERVAL = 0.1  # seconds between two drawings of the bar
BAR = "{percentage:3.0f}% |{bar}|  {desc}  {remaining} left"
INDENT = "       "  # of a sample
OUTPUT = "output"
"""The label of the line of a sample that is printed after every validation."""

Sample = Sequence[tuple[str, str]]
"""The lines of a sample, each with its label; one of them is :data:`OUTPUT`."""


class Display:
    """What a training shows of its progress; a context manager that removes the bar at its end.

    Attributes:
        loss: The training loss that the bar shows, if there is one.

    Args:
        title: The name of the model, above the table and in every line of a log.
        unit: The name of the targets, such as "tokens".
        by_steps: Whether the rows of the table are named by updates instead of epochs.
        is_shown: Whether this process shows anything, as only the first of several does.
    """

    def __init__(self, title: str, unit: str, *, by_steps: bool, is_shown: bool = True) -> None:
        self.title, self.unit, self.by_steps, self.is_shown = title, unit, by_steps, is_shown
        self._table: _Table | None = None
        self._is_sampled = False
        self._bar: tqdm[Any] | None = None
        self._end = ExitStack()
        self.loss: float | None = None
        self._targets = 0  # since the beginning of the updates
        self._begun = self._drawn = 0.0

    def __enter__(self) -> "Display":
        self._end.enter_context(logging_redirect_tqdm())  # messages above the bar
        return self

    def __exit__(self, *error: object) -> None:
        self._end.close()

    @property
    def shows_samples(self) -> bool:
        """Whether a sample would be printed."""
        return self.is_shown and sys.stdout.isatty()

    # The bar

    def begin(self) -> None:
        """Measure the speed of the updates from here on."""
        self._targets, self._begun = 0, time.monotonic()

    def update(self, targets: int, done: float, place: str) -> None:
        """Note an update; now and then, draw the bar.

        Args:
            targets: The number of targets of the update.
            done: The part of the plan that is done, from 0 to 1.
            place: The place in the plan, such as "epoch 2 of 4".
        """
        self._targets += targets
        if time.monotonic() - self._drawn >= INTERVAL:
            self.show(done, place)

    def show(self, done: float, place: str) -> None:
        """Draw the bar; the time left is that of the whole plan at the mean speed so far."""
        if not (self.is_shown and sys.stderr.isatty()):
            return
        if self._bar is None:
            self._bar = tqdm(
                *(None, self.title),
                1.0,
                initial=done,
                leave=False,
                dynamic_ncols=True,
                bar_format=BAR,
            )
            self._end.enter_context(self._bar)
        self._drawn = time.monotonic()
        speed = self._targets / max(self._drawn - self._begun, 1e-9)
        loss = "---" if self.loss is None else f"{self.loss:.3f}"
        self._bar.n = done
        self._bar.set_description_str(f"{place}  loss {loss}  {speed:,.0f} {self.unit}/s")

    # The validations

    def report(
        self,
        row: Mapping[str, Any],
        figures: Mapping[str, float],
        *,
        is_best: bool,
        sample: Sample | None = None,
    ) -> None:
        """Print the metrics of a validation, and what the model generates now.

        Args:
            row: The line of ``metrics.jsonl``.
            figures: The metrics that the task computed.
            is_best: Whether the validation loss is the lowest so far.
            sample: What the model generates; only its output is printed again and again.
        """
        if sys.stdout.isatty():
            with tqdm.external_write_mode(sys.stdout):  # above the bar
                self._print_row(row, figures, is_best=is_best)
                self._print_sample(sample or ())
        else:
            named = "  ".join(f"{_words(name)} {x:.3f}" for name, x in figures.items())
            print(
                f"{self.title}{'  ' if self.title else ''}epoch {row['epoch']:3d}  "
                f"step {row['step']:6d}  training loss {row['train_loss']:.3f}  "
                f"{named}  {row[f'{self.unit}_per_second']:6.0f} {self.unit}/s  "
                f"{row['minutes']:5.1f} min{'  *' if is_best else ''}",
                flush=True,
            )

    def _print_row(
        self, row: Mapping[str, Any], figures: Mapping[str, float], *, is_best: bool
    ) -> None:
        if self._table is None:
            place = "step" if self.by_steps else "epoch"
            self._table = _Table(place, list(figures), columns=width())
            heading = f"\n{self.title}" if self.title else ""
            print(f"{heading}\n{self._table.header}")
        print(self._table.format(row, is_best=is_best), flush=True)

    def _print_sample(self, sample: Sample) -> None:
        labels = max((len(label) for label, _ in sample), default=0)
        room = width() - 1 - len(f"{INDENT}{'':{labels}}  ")
        for label, text in sample:
            if label == OUTPUT or not self._is_sampled:
                print(f"{INDENT}{label:{labels}}  {cut(' '.join(text.split()), room)}".rstrip())
        sys.stdout.flush()
        self._is_sampled = self._is_sampled or bool(sample)


class _Table:
    """The table of the validations: a column for the place, each metric, the time and a mark."""

    def __init__(self, place: str, figures: Sequence[str], *, columns: int) -> None:
        self.place, self.figures = place, figures
        names = [place, "training loss", *(_words(name) for name in figures), "minutes", "best"]
        if len("  ".join(names)) > columns:
            short = {"training loss": "train", "validation loss": "valid"}
            names = [short.get(name, name).removeprefix("validation ") for name in names]
        self.widths = [
            max(len(name), 6 if name in (place, "train", "valid", "BLEU") else 0) for name in names
        ]
        self.widths[0] = 6 if place == "step" else 5
        self.header = "  ".join(self._align(names)).rstrip()

    def format(self, row: Mapping[str, Any], *, is_best: bool) -> str:
        """Format a row; the scores of the best one so far are coloured."""
        cells = [f"{row[self.place]:d}", f"{row['train_loss']:.3f}"]
        cells += [_number(name, row[name]) for name in self.figures]
        cells += [f"{row['minutes']:.1f}", "*" if is_best else ""]
        aligned = self._align(cells)
        for number, name in enumerate(self.figures, start=2):
            if is_best and name != "validation_loss":
                aligned[number] = colour(aligned[number], "green", sys.stdout)
        return "  ".join(aligned).rstrip()

    def _align(self, cells: Sequence[str]) -> list[str]:
        return [cell.rjust(size) for cell, size in zip(cells, self.widths, strict=True)]


def cut(text: str, columns: int) -> str:
    """Cut a text to a number of columns of a terminal, in which many characters take two.

    Example:
        >>> cut("この本は難しい", 20), cut("この本は難しい", 11)
        ('この本は難しい', 'この本は...')
    """
    if cells(text) <= columns:
        return text
    taken = cells("...")
    for number, character in enumerate(text):
        taken += cells(character)
        if taken > columns:
            return f"{text[:number]}..."
    return text


def _words(name: str) -> str:
    """Write the name of a metric in words."""
    return name.replace("_", " ").replace("bleu", "BLEU")


def _number(name: str, value: float) -> str:
    return f"{value:.1f}" if name.endswith("bleu") else f"{value:.3f}"
