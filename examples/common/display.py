"""Display: what a training shows, a progress bar of its whole plan and a table of its validations.

In a terminal the bar is the last line; each validation adds a row to the table above it, and under
the row what the model now generates from a fixed example::

    epoch  training loss  validation loss  validation BLEU  minutes  best
        1          3.063            1.288             85.9      0.5     *
           source     昨夜、妹はタクシーに乗りました。
           output     My younger sister took a taxi last night.
           reference  My younger sister rode the taxi last night.
     46% [========>----------]  epoch 2 of 4  loss 1.209  9,284 tokens/s  0:58 left

Where the output goes to a file or a pipe, each validation is one line that names all its metrics.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

from common.terminal import cells, colour, width, wrap

INTERVAL = 0.1  # seconds between two drawings of the bar
RECENT = 60.0  # seconds in which a measurement of the speed loses most of its weight
SHORTEST, LONGEST = 10, 40  # columns of the bar itself
INTERRUPTION = "^C"  # what a terminal writes after the bar when the training is interrupted
INDENT, LINES = "       ", 3  # of a sample, and the most lines that each of its texts takes
OUTPUT = "output"
"""The label of the line of a sample that is printed after every validation."""

Sample = Sequence[tuple[str, str]]
"""The lines of a sample, each with its label; one of them is :data:`OUTPUT`."""


class Status(NamedTuple):
    """How far a training has come.

    Attributes:
        done: The part of the plan that is done, from 0 to 1.
        place: The place in the plan, such as "epoch 2 of 4".
        validations: Number of validations to come; one that is running counts.
        seconds: Planned seconds to come, if the plan is one of minutes.
    """

    done: float
    place: str
    validations: int
    seconds: float | None = None


class Speed:
    """The speed of the updates and of the validations, of which recent ones count most.

    Example:
        >>> speed = Speed()
        >>> for _ in range(20):  # an epoch in 20 seconds, of two epochs planned
        ...     speed.note(seconds=1.0, part=0.025, targets=50)
        >>> speed.note_validation(3.0)
        >>> speed.time_left(Status(done=0.5, place="epoch 2 of 2", validations=1))
        23.0
        >>> speed.targets
        50.0
    """

    def __init__(self) -> None:
        self._seconds = self._part = self._targets = 0.0
        self._validations: list[float] = []

    def note(self, *, seconds: float, part: float, targets: int) -> None:
        """Note what was done in some seconds of updates: a part of the plan, and targets."""
        decay = math.exp(-seconds / RECENT)
        self._seconds = decay * self._seconds + seconds
        self._part = decay * self._part + part
        self._targets = decay * self._targets + targets

    def note_validation(self, seconds: float) -> None:
        """Note how long a validation took."""
        self._validations.append(seconds)

    @property
    def targets(self) -> float:
        """Number of targets per second of updates; 0 where nothing was measured."""
        return round(self._targets / self._seconds, 6) if self._seconds else 0.0

    def time_left(self, status: Status) -> float | None:
        """Estimate the seconds to the end of the plan, the last validation included.

        Returns:
            The seconds; None if too little was measured.
        """
        last = self._validations[-3:]
        validation = sum(last) / len(last) if last else 0.0
        if status.seconds is not None:  # the clock of the plan runs during validations, too
            return status.seconds + min(1, status.validations) * validation
        if self._part <= 0.0 or self._seconds < 1.0:
            return None
        updates = (1.0 - status.done) * self._seconds / self._part
        return round(updates + status.validations * validation, 6)


class Display:
    """What a training shows of its progress; a context manager that removes the bar at its end.

    Args:
        title: The name of the model, above the table and in every line of a log.
        unit: The name of the targets, such as "tokens".
        by_steps: Whether the rows of the table are named by updates instead of epochs.
        is_shown: Whether this process shows anything, as only the first of several does.
    """

    def __init__(self, title: str, unit: str, *, by_steps: bool, is_shown: bool = True) -> None:
        self.title, self.unit, self.by_steps, self.is_shown = title, unit, by_steps, is_shown
        self.speed = Speed()
        self._table: _Table | None = None
        self._is_sampled = False
        self._has_bar = False
        self._length = 0  # of the bar on the screen
        self._loss: float | None = None
        self._targets = 0  # since the last measurement
        self._measured = self._drawn = 0.0
        self._before: Status | None = None
        self._shown: Status | None = None

    def __enter__(self) -> "Display":
        self._has_bar = self.is_shown and sys.stderr.isatty()
        self._handlers = logging.getLogger().handlers if self._has_bar else []
        for handler in self._handlers:
            handler.addFilter(self._make_room)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._erase()
        for handler in self._handlers:
            handler.removeFilter(self._make_room)

    @property
    def shows_samples(self) -> bool:
        """Whether a sample would be printed."""
        return self.is_shown and sys.stdout.isatty()

    # The bar

    def begin(self, status: Callable[[], Status]) -> None:
        """Show where the updates begin, and measure their speed from here on."""
        if self._has_bar:
            self._targets, self._before = 0, status()
            self._measured = time.monotonic()
            self._draw(self._before)

    def update(self, targets: int, status: Callable[[], Status]) -> None:
        """Note an update; now and then, measure the speed and draw the bar.

        Args:
            targets: The number of targets of the update.
            status: Computes how far the training has come.
        """
        self._targets += targets
        now = time.monotonic()
        if not self._has_bar or now - self._drawn < INTERVAL:
            return
        current = status()
        part = current.done - (self._before or current).done
        self.speed.note(seconds=now - self._measured, part=part, targets=self._targets)
        self._targets, self._measured, self._before = 0, now, current
        self._draw(current)

    def note_loss(self, loss: float) -> None:
        """Set the training loss that the bar shows."""
        self._loss = loss

    @contextmanager
    def validating(self, status: Callable[[], Status]) -> Iterator[None]:
        """Show that a validation is running, and measure how long it takes."""
        if self._has_bar:
            now = status()
            place = "validation".ljust(len(now.place))
            self._draw(now._replace(place=place, validations=now.validations + 1))
        begun = time.monotonic()
        yield
        self.speed.note_validation(time.monotonic() - begun)

    def _draw(self, status: Status) -> None:
        columns = width(sys.stderr) - 1  # in the last one, some terminals begin a new line
        line = self._line(status, columns - len(INTERRUPTION))
        padded = f"{line.plain}{' ' * (min(self._length, columns) - len(line.plain))}"
        self._length, self._drawn, self._shown = len(line.plain), time.monotonic(), status
        self._write(f"\r{padded.replace(line.bar, line.coloured, 1)}")

    def _line(self, status: Status, columns: int) -> "_Line":
        """Format the bar: as much as there is room for, the most important first."""
        left, speed = self.speed.time_left(status), self.speed.targets
        pieces = {
            "title": self.title,
            "percent": f"{math.floor(100 * status.done):3d}%",
            "place": status.place,
            "loss": "loss " + ("  ---" if self._loss is None else f"{self._loss:5.3f}"),
            "speed": f"{f'{speed:,.0f}' if speed else '---':>6} {self.unit}/s",
            "left": f"{_clock(left)} left",
        }
        if not self.title:
            del pieces["title"]
        for name in ("speed", "title", "place", "loss", "left"):
            room = columns - sum(len(piece) + 2 for piece in pieces.values())
            if room >= SHORTEST:
                break
            pieces.pop(name, None)
        room = columns - sum(len(piece) + 2 for piece in pieces.values())
        size = max(1, min(room, LONGEST) - 2)
        full = ("=" * math.floor(size * status.done) + ">")[:size]
        bar = f"[{full}{'-' * (size - len(full))}]"
        names = list(pieces)
        after = names.index("percent") + 1
        words = [pieces[name] for name in names]
        plain = "  ".join([*words[:after], bar, *words[after:]])
        return _Line(plain, bar, bar.replace(full, colour(full, "green", sys.stderr), 1))

    def _erase(self) -> None:
        """Remove the bar from the screen, so that other lines can be printed."""
        if self._length:
            blank = " " * min(self._length + len(INTERRUPTION), width(sys.stderr) - 1)
            self._write(f"\r{blank}\r")
            self._length = 0

    def _write(self, text: str) -> None:
        """Write to the terminal; if it no longer exists, continue without the bar."""
        try:
            print(text, end="", file=sys.stderr, flush=True)
        except OSError:
            self._has_bar, self._shown = False, None

    def _make_room(self, record: logging.LogRecord) -> bool:
        """Erase the bar before a log message, as a filter that lets every message through."""
        self._erase()
        return True

    # The validations

    def report(
        self,
        row: Mapping[str, Any],
        figures: Mapping[str, float],
        *,
        speed: float,
        is_best: bool,
        sample: Sample | None = None,
    ) -> None:
        """Print the metrics of a validation, and what the model generates now.

        Args:
            row: The line of ``metrics.jsonl``.
            figures: The metrics that the task computed.
            speed: Number of targets per second.
            is_best: Whether the validation loss is the lowest so far.
            sample: What the model generates; only its output is printed again and again.
        """
        self._erase()
        if sys.stdout.isatty():
            self._print_row(row, figures, is_best=is_best)
            self._print_sample(sample or ())
        else:
            named = "  ".join(f"{name.replace('_', ' ')} {x:.3f}" for name, x in figures.items())
            print(
                f"{self.title}{'  ' if self.title else ''}epoch {row['epoch']:3d}  "
                f"step {row['step']:6d}  training loss {row['train_loss']:.3f}  "
                f"{named.replace('bleu', 'BLEU')}  {speed:6.0f} {self.unit}/s  "
                f"{row['minutes']:5.1f} min{'  *' if is_best else ''}",
                flush=True,
            )
        if self._shown is not None:
            self._draw(self._shown)

    def _print_row(
        self, row: Mapping[str, Any], figures: Mapping[str, float], *, is_best: bool
    ) -> None:
        if self._table is None:
            place = "step" if self.by_steps else "epoch"
            self._table = _Table(place, list(figures), columns=width(sys.stdout))
            heading = f"\n{self.title}" if self.title else ""
            print(f"{heading}\n{self._table.header}")
        print(self._table.format(row, is_best=is_best), flush=True)

    def _print_sample(self, sample: Sample) -> None:
        labels = max((len(label) for label, _ in sample), default=0)
        room = width(sys.stdout) - 1 - len(f"{INDENT}{'':{labels}}  ")
        for label, text in sample:
            if label == OUTPUT or not self._is_sampled:
                lines = wrap(" ".join(text.split()), room)
                if len(lines) > LINES:
                    lines[LINES - 1 :] = [f"{lines[LINES - 1]} {lines[LINES]}"]  # too long: cut
                for line in lines:
                    print(f"{INDENT}{label:{labels}}  {cut(line, room)}".rstrip())
                    label = ""
        sys.stdout.flush()
        self._is_sampled = self._is_sampled or bool(sample)


class _Line(NamedTuple):
    """The line of the bar without colour, and the bar itself without and with colour."""

    plain: str
    bar: str
    coloured: str


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
        self.header = self._join(names)

    def format(self, row: Mapping[str, Any], *, is_best: bool) -> str:
        """Format a row; the scores of the best one so far are coloured."""
        cells = [f"{row[self.place]:d}", f"{row['train_loss']:.3f}"]
        cells += [_number(name, row[name]) for name in self.figures]
        cells += [f"{row['minutes']:.1f}", "*" if is_best else ""]
        aligned = [cell.rjust(size) for cell, size in zip(cells, self.widths, strict=True)]
        for number, name in enumerate(self.figures, start=2):
            if is_best and name != "validation_loss":
                aligned[number] = colour(aligned[number], "green", sys.stdout)
        return "  ".join(aligned).rstrip()

    def _join(self, cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(size) for cell, size in zip(cells, self.widths, strict=True)
        ).rstrip()


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


def _clock(seconds: float | None) -> str:
    """Format seconds as hours, minutes and seconds.

    Example:
        >>> _clock(62.4), _clock(7384.0), _clock(None)
        ('1:02', '2:03:04', '-:--')
    """
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
