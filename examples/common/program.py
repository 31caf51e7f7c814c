"""Programs: how all programs print their errors and use the standard streams."""

import io
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from rich.text import Text

from common.errors import UserError
from common.terminal import LogHandler, say


def run_program(work: Callable[[], None]) -> int:
    """Run a program, and print its errors in one line.

    Returns:
        The exit status: 0, 1 if the output was closed, 2 after an error, 130 after an interruption.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        # By default OpenMP's threads spin 30 times longer, and take a busy machine's time from
        # those at work. Without spinning, a training on a quiet machine takes 1.6 times as long.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    logging.basicConfig(format="%(message)s", handlers=[LogHandler()], force=True)
    for package in ("common", "translation", "transformer_blocks"):
        logging.getLogger(package).setLevel(logging.INFO)
    try:
        work()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as stop:  # a closed output, as in ``| head``, or --help
        return 0 if isinstance(stop, SystemExit) and not stop.code else 1
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        with suppress(OSError, SystemExit):  # the exit status remains
            say(Text.assemble(("error:", "red"), f" {message}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        with suppress(OSError, SystemExit):
            say(" ".join(["\nstopped", *stop.args]), file=sys.stderr)
        return 130
    finally:
        _discard_unwritable(sys.stdout)
        _discard_unwritable(sys.stderr)
    return 0


def _explain(error: Exception) -> str | None:
    """Return the message of an error that the user can correct; None if it is a fault of ours."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError):
        return text
    if isinstance(error, OSError):
        reason = error.strerror or text
        return f"{error.filename}: {reason}" if error.filename else reason
    if isinstance(error, MemoryError):
        return f"out of memory: {text}"
    if sys.modules.get("torch") is None:  # not imported yet: it has raised no error
        return None
    from torch import OutOfMemoryError

    from transformer_blocks.explorer.packages import MissingPackageError
    from transformer_blocks.generation import NonFiniteLogitsError
    from transformer_blocks.pretrained.config import LoadError

    if isinstance(error, MissingPackageError | NonFiniteLogitsError | LoadError):
        return text
    is_on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in text
    return f"out of memory: {text}" if is_on_cpu or isinstance(error, OutOfMemoryError) else None


def _discard_unwritable(stream: TextIO) -> None:
    """Discard what a stream cannot write, which would otherwise change the exit status."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
