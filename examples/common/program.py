"""Programs: how all programs print their errors and use the standard streams."""

import codecs
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

from common.errors import UserError
from common.terminal import colour, fit


def run_program(work: Callable[[], None]) -> int:
    """Run a program, and print its errors in one line.

    Returns:
        The exit status: 0, 2 after an error, 130 after an interruption.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        # By default OpenMP's threads spin 30 times longer, and take a busy machine's time from
        # those at work. Without spinning, a training on a quiet machine takes 1.6 times as long.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the calling process
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="printable")
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    logging.basicConfig(handlers=[handler], force=True)
    for package in ("common", "translation", "transformer_blocks"):
        logging.getLogger(package).setLevel(logging.INFO)
    try:
        with redirect_stdout(_Output(sys.stdout)):
            work()
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed it
        return 0
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        _report(message)
        return 2
    except KeyboardInterrupt as stop:
        _print_error("\nstopped", *stop.args)
        return 130
    finally:
        _print_error(end="")  # an unflushed log would change the exit status
    return 0


def _explain(error: Exception) -> str | None:
    """Return the message of an error that the user can correct; None if it is a fault of ours."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError):
        return text
    if isinstance(error, OSError):
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if isinstance(error, MemoryError):
        return f"out of memory: {text}"
    if sys.modules.get("torch") is None:  # not imported yet: it has raised no error
        return None
    from torch import OutOfMemoryError

    from transformer_blocks.explorer.packages import MissingPackageError
    from transformer_blocks.generation import NonFiniteLogitsError

    if isinstance(error, MissingPackageError | NonFiniteLogitsError):
        return text
    is_on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in text
    return f"out of memory: {text}" if is_on_cpu or isinstance(error, OutOfMemoryError) else None


def _report(error: str) -> None:
    """Print an error: one line, or several in a narrow terminal."""
    first, *others = fit(f"error: {error}", sys.stderr).split(" ", 1)
    _print_error(colour(first, "red", sys.stderr), *others)


def _print_error(*words: object, end: str = "\n") -> None:
    """Print to standard error; if that fails, the exit status remains."""
    try:
        print(*words, end=end, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Formatter(logging.Formatter):
    """Log messages alone, as wide as the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return fit(super().format(record), sys.stderr)


class _Output(io.TextIOBase):
    """Standard output, whose write errors name it as the cause.

    After an error the rest of the output is discarded, buffers included.

    Attributes:
        may_close: Whether the reader may close the output without an error.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.may_close = stream, False

    def write(self, text: str) -> int:
        with self._errors_named():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._errors_named():
            self.stream.flush()

    def close(self) -> None:
        """Leave the stream as it is: its owner flushes and closes it."""

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            if not isinstance(error, BrokenPipeError):
                raise UserError(f"cannot write standard output: {error.strerror}") from error
            if not self.may_close:
                raise


@contextmanager
def finishing_unread() -> Iterator[None]:
    """Let the work inside finish even if the reader closes the output, as in ``| head -1``.

    A program that only writes its output ends silently then. One that trains or writes files must
    finish: otherwise its work would be incomplete, with exit status 0.
    """
    output = sys.stdout
    if not isinstance(output, _Output):
        yield
        return
    output.may_close = True
    try:
        yield
        output.flush()
    finally:
        output.may_close = False


def _printable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Print undecodable bytes of the command line unchanged, and escape other surrogates."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error("printable", _printable)
