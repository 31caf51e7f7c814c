"""A contest: the same work done by several libraries, timed side by side on a noisy machine.

Each contestant lives in a process of its own, since libraries that share one disturb each other:
the threads of one go on spinning while another is timed. All processes but one are stopped. The
turns are interleaved, so that a slow minute of the machine meets everybody. What is reported is the
median over the rounds, and how many times faster it is than the first contestant's.
"""

import json
import math
import multiprocessing
import os
import platform
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

MOMENT = 0.2  # seconds
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**26)}
"""For the C library: how much memory to keep when it is given back, rather than ask for it anew and
have it zeroed. These are the bounds that GNU's comes to by itself, once it has freed a piece of
32 MiB; when it does is luck, other in each process, and worth a factor of 1.8 in a small block.
"""

Prepare = Callable[[Any], Callable[[], object] | None]
"""Gets ready for a cell, and gives what is timed; None where it cannot take part."""


class Cell(Protocol):
    """One kind of work, a named tuple; its text names the row of the table."""

    def _asdict(self) -> dict[str, Any]: ...


class Result(NamedTuple):
    """Seconds that one contestant took for one cell, in each round."""

    contestant: str
    cell: Cell
    seconds: list[float]

    @property
    def median(self) -> float:
        """The median round, in seconds."""
        return statistics.median(self.seconds)


class Player:
    """A contestant in a process of its own, stopped while it is not its turn."""

    def __init__(self, make: Callable[[], Prepare]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_play, args=(theirs, make), daemon=True)
        before = {name: os.environ.get(name) for name in MEMORY}
        os.environ.update(MEMORY)  # the new process reads it as it starts
        self.process.start()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        theirs.close()
        try:
            self._answer()
        except BaseException:
            self.leave()
            raise
        self._signal("SIGSTOP")

    def take_turn(self, cell: Cell) -> float:
        """Do the work of a cell and return the seconds it took."""
        self._signal("SIGCONT")
        self.connection.send(cell)
        seconds = self._answer()
        self._signal("SIGSTOP")
        return seconds

    def leave(self) -> None:
        """End the process."""
        self._signal("SIGCONT")
        self.process.kill()
        self.process.join()

    def _answer(self) -> float:
        try:
            answer: float = self.connection.recv()
        except EOFError:
            raise SystemExit("error: a contestant died; its message stands above") from None
        return answer

    def _signal(self, name: str) -> None:
        pid = self.process.pid
        if pid is not None and hasattr(signal, name):  # Windows has neither; its players spin on
            os.kill(pid, getattr(signal, name))


def _play(connection: Connection, make: Callable[[], Prepare]) -> None:
    """Be a contestant: answer each cell with the time of a run, after one to warm up.

    What is short is run again and again for a moment, and the mean is the answer.
    """
    prepare = make()
    connection.send(0.0)
    while True:
        work = prepare(connection.recv())
        if work is None:
            connection.send(math.nan)
            continue
        work()
        runs, started, seconds = 0, time.perf_counter(), 0.0
        while seconds < MOMENT:
            work()
            runs, seconds = runs + 1, time.perf_counter() - started
        connection.send(seconds / runs)


def hold(
    contestants: Mapping[str, Callable[[], Prepare]], cells: Sequence[Cell], *, rounds: int
) -> list[Result]:
    """Let all contestants do all cells, in turns, and print a row for each cell.

    Args:
        contestants: By name, what makes each; called in the contestant's process.
        cells: What to do.
        rounds: How often.

    Returns:
        A result for each contestant and cell.
    """
    width = max(len(str(cell)) for cell in cells)
    columns = [max(len(name), 14) for name in contestants]
    names = "  ".join(name.rjust(n) for name, n in zip(contestants, columns, strict=True))
    print(f"{'milliseconds (ratio)':{width}}  {names}")
    results: list[Result] = []
    players: dict[str, Player] = {}
    try:
        for name, make in contestants.items():
            players[name] = Player(make)
        for cell in cells:
            row = [Result(name, cell, []) for name in players]
            for _ in range(rounds):
                for result, player in zip(row, players.values(), strict=True):
                    result.seconds.append(player.take_turn(cell))
            shown = [_show(result, row[0]).rjust(n) for result, n in zip(row, columns, strict=True)]
            print(f"{cell!s:{width}}  {'  '.join(shown)}", flush=True)
            results += [result for result in row if result.median > 0]
    finally:
        for player in players.values():
            player.leave()
    return results


def _show(result: Result, first: Result) -> str:
    """Write a median and how many times faster it is than the first contestant's."""
    if math.isnan(result.median):  # did not take part
        return "-"
    return f"{1e3 * result.median:.1f} ({first.median / result.median:.2f})"


def run_alone(work: Callable[..., object], *arguments: object) -> None:
    """Do something in a process of its own, so that it leaves no thread behind."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("error: the preparation failed; its message stands above")


def write_json(
    path: Path, results: Sequence[Result], packages: Sequence[str], **others: object
) -> None:
    """Write all rounds, with what they were measured on."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    rows = [{"contestant": r.contestant, **r.cell._asdict(), "seconds": r.seconds} for r in results]
    content = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions,
        "results": rows,
        **others,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def draw(path: Path, results: Sequence[Result]) -> None:
    """Draw how many times the first contestant's speed each one has, a panel for each cell."""
    from transformer_blocks.explorer.plots import new_figure

    cells = list(dict.fromkeys(result.cell for result in results))
    names = list(dict.fromkeys(result.contestant for result in results))
    columns = min(3, len(cells))
    rows = -(-len(cells) // columns)
    figure = new_figure(4.6 * columns, rows * (0.8 + 0.28 * len(names)))
    for number, cell in enumerate(cells, start=1):
        row = [result for result in results if result.cell == cell]
        axes = figure.add_subplot(rows, columns, number)
        speeds = [row[0].median / result.median for result in row]
        colours = [f"C{names.index(result.contestant)}" for result in row]
        bars = axes.barh([result.contestant for result in row], speeds, color=colours)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axes.axvline(1.0, color="#888888", linewidth=0.8)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_title(str(cell), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(f"times the speed of {names[0]}", fontsize=9)
    figure.savefig(path, dpi=120)
