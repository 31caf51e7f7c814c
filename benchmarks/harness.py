"""Interleaved timing of several implementations of the same computation on a noisy machine.

Each implementation runs in a process of its own, because libraries in one process disturb each
other: the threads of one still spin while another is timed. All processes except the one that is
timed are stopped. The runs are interleaved, so that a slow minute of the machine affects every
implementation. The result is the median over the rounds, and its speed relative to the first
implementation. Where memory is measured, it is the peak above that before the case was prepared:
inputs, weights and caches are included.

Importing this file lets a benchmark import the programs of ``examples``.
"""

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import platform
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import distributions
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

sys.path.append(str(Path(__file__).parent.parent / "examples"))

PACKAGES = (
    *("torch", "transformers", "x-transformers", "ctranslate2", "onnxruntime"),
    "transformer-blocks",
)
MINIMUM_SECONDS = 0.2
"""A short computation is repeated until this time has passed, and the mean time is taken."""

MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**26)}
"""Sizes below which the C library reuses freed memory instead of returning it to the system, which
would have to zero it again. GNU's library reaches these limits by itself once a block of 32 MiB has
been freed. When that happens differs by chance between processes, and changes the time of a small
block by a factor of up to 1.8.
"""

SetUp = Callable[[Any], Callable[[], object] | None]
"""Prepares a case and returns the function to time, or None if the case is not supported."""


class Case(Protocol):
    """One computation to time, a named tuple; its ``str`` is the name of a row of the table."""

    def _asdict(self) -> dict[str, Any]: ...


class Result(NamedTuple):
    """Seconds that one implementation took for one case, in each round.

    If several numbers of threads were tried, it is the fastest of them.
    """

    implementation: str
    case: Case
    seconds: list[float]
    megabytes: list[float]
    threads: int | None = None

    @property
    def median(self) -> float:
        """Median over the rounds, in seconds."""
        return statistics.median(self.seconds)


class Worker:
    """A process that runs one implementation and is stopped between its runs."""

    def __init__(self, make: Callable[[], SetUp], clock: Callable[[], float]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, connection = context.Pipe()
        self.process = context.Process(target=_work, args=(connection, make, clock), daemon=True)
        before = {name: os.environ.get(name) for name in MALLOC_SETTINGS}
        os.environ.update(MALLOC_SETTINGS)  # the new process reads them when it starts
        self.process.start()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        connection.close()
        try:
            self._receive()
        except BaseException:
            self.end()
            raise
        self._signal("SIGSTOP")

    def measure(self, case: Case) -> tuple[float, float]:
        """Run a case and return its seconds and its peak memory in MB; NaN if not supported."""
        self._signal("SIGCONT")
        self.connection.send(case)
        measured = self._receive()
        self._signal("SIGSTOP")
        return measured

    def end(self) -> None:
        """End the process."""
        self._signal("SIGCONT")
        self.process.kill()
        self.process.join()

    def _receive(self) -> tuple[float, float]:
        try:
            measured: tuple[float, float] = self.connection.recv()
        except EOFError:
            raise SystemExit("error: an implementation failed; its message is above") from None
        return measured

    def _signal(self, name: str) -> None:
        pid = self.process.pid
        if pid is not None and hasattr(signal, name):  # Windows has neither signal
            os.kill(pid, getattr(signal, name))


def _work(connection: Connection, make: Callable[[], SetUp], clock: Callable[[], float]) -> None:
    """Send the time and the memory of each case that is received, after one run to warm up."""
    set_up = make()
    connection.send((0.0, 0.0))
    while True:
        case, run = connection.recv(), None  # frees what an earlier case has used
        before = _start_measuring_memory()
        try:
            run = set_up(case)
            connection.send((math.nan, math.nan) if run is None else _measure(run, clock, before))
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "alloc" not in str(error):  # torch's
                raise
            connection.send((math.nan, math.nan))


def _measure(run: Callable[[], object], clock: Callable[[], float], before: float) -> Any:
    """Measure the peak memory of a first run above that before, and the seconds of later ones."""
    run()
    megabytes = status("VmHWM") - before
    runs, started, seconds = 0, clock(), 0.0
    while seconds < MINIMUM_SECONDS:
        run()
        runs, seconds = runs + 1, clock() - started
    return seconds / runs, megabytes


def _start_measuring_memory() -> float:
    """Return freed memory to the system, reset the peak, and return the memory in use, in MB."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name: str) -> float:
    """Return a size in MB from the status of this process, which only Linux has, or NaN."""
    if sys.platform != "linux":
        return math.nan
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def compare(
    implementations: Mapping[str, Callable[..., SetUp]],
    cases: Sequence[Case],
    *,
    rounds: int,
    threads: Sequence[int] = (),
    clock: Callable[[], float] = time.perf_counter,
    memory: bool = False,
) -> list[Result]:
    """Time all cases with all implementations, interleaved, and print a table row for each case.

    Args:
        implementations: For each name, a function that returns the set-up of the implementation. It
            is called in the implementation's own process.
        cases: What to time.
        rounds: Number of times that each implementation runs each case.
        threads: Numbers of threads to try. Each has a process of its own, in which the function is
            called with the argument ``threads``; the table shows which of them was the fastest. If
            not given, the function chooses.
        clock: The clock that is read.
        memory: Whether the table shows the peak memory, too.

    Returns:
        A result for each implementation and case that it supports.
    """
    width = max(len(str(case)) for case in cases)
    least = 14 + 10 * bool(threads) + 11 * memory
    columns = [max(len(name), least) for name in implementations]
    names = "  ".join(name.rjust(n) for name, n in zip(implementations, columns, strict=True))
    print(f"{'milliseconds (speed)' + ', MB' * memory:{width}}  {names}")
    results: list[Result] = []
    workers: dict[tuple[str, int | None], Worker] = {}
    try:
        for name, make in implementations.items():
            for number in threads or (None,):
                options = {} if number is None else {"threads": number}
                workers[name, number] = Worker(partial(make, **options), clock)
        for case in cases:
            tried = [Result(name, case, [], [], number) for name, number in workers]
            for _ in range(rounds):
                for result, worker in zip(tried, workers.values(), strict=True):
                    seconds, megabytes = worker.measure(case)
                    result.seconds.append(seconds)
                    result.megabytes.append(megabytes)
            row = [_fastest(tried, name) for name in implementations]
            texts = [_format(each, row[0], memory) for each in row]
            texts = [text.rjust(n) for text, n in zip(texts, columns, strict=True)]
            print(f"{case!s:{width}}  {'  '.join(texts)}", flush=True)
            results += [result for result in row if result.median > 0]
    finally:
        for worker in workers.values():
            worker.end()
    return results


def _fastest(results: Sequence[Result], implementation: str) -> Result:
    """Return the result of an implementation with its best number of threads."""
    own = [each for each in results if each.implementation == implementation]
    return min(own, key=lambda each: math.inf if math.isnan(each.median) else each.median)


def _format(result: Result, first: Result, memory: bool) -> str:
    """Format the median in milliseconds, the relative speed, the number of threads, the memory."""
    if math.isnan(result.median):  # not supported
        return "-"
    text = f"{1e3 * result.median:.1f} ({first.median / result.median:.2f})"
    if result.threads is not None:
        text += f", {result.threads} thread{'s' if result.threads > 1 else ''}"
    return f"{text}, {max(result.megabytes):.0f} MB" if memory else text


def show(title: str, results: Sequence[Result], describe: Callable[[Any, float], str]) -> None:
    """Print another table, with a row for each case: what a function of case and median returns."""
    print(f"\n{title}")
    for case in dict.fromkeys(result.case for result in results):
        row = [result for result in results if result.case == case]
        cells = [f"{each.implementation} {describe(case, each.median)}" for each in row]
        print(f"{case!s:50}  {'  '.join(cells)}")


def run_in_process(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a process of its own, so that no thread of it remains."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("error: the preparation failed; its message is above")


def new_parser(
    description: str | None, names: Iterable[str], *, rounds: int = 7
) -> argparse.ArgumentParser:
    """Make a parser with the options that all comparisons have.

    Args:
        description: The docstring of the benchmark.
        names: Names of the implementations.
        rounds: Default number of rounds.
    """
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=(*names,), default=[*names])
    parser.add_argument("--rounds", type=int, default=rounds, help="runs of each case")
    parser.add_argument("--output", type=Path, help="file for the times of all rounds, as JSON")
    return parser


def run(
    options: argparse.Namespace,
    implementations: Mapping[str, Callable[..., SetUp]],
    cases: Sequence[Case],
    **others: Any,
) -> list[Result]:
    """Compare as the command-line options of :func:`new_parser` say, and save the results.

    Args:
        options: The options.
        implementations: All implementations.
        cases: What to time.
        others: Other arguments of :func:`compare`.
    """
    chosen = {name: implementations[name] for name in options.only}
    results = compare(chosen, cases, rounds=options.rounds, **others)
    save(options, results)
    return results


def save(options: argparse.Namespace, results: Sequence[Result]) -> None:
    """Write the file that the command-line options name."""
    if options.output:
        write_json(options.output, results)


def write_json(path: Path, results: Sequence[Result]) -> None:
    """Save the results of all rounds, the command, and where it was executed, as JSON."""
    from transformer_blocks.files import write_atomically

    installed = {each.metadata["Name"]: each.version for each in distributions()}
    versions = [f"{name} {installed[name]}" for name in PACKAGES if name in installed]
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    content = {
        "command": shlex.join(["python", *sys.argv]),
        "origin": ", ".join(["measured on " + machine, *versions]),
        "results": [
            {
                "implementation": result.implementation,
                **result.case._asdict(),
                "threads": result.threads,
                "seconds": result.seconds,
                "megabytes": result.megabytes,
            }
            for result in results
        ],
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
