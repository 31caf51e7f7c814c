"""Programs: what every one of them does about errors, streams and interruptions."""

import io
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from translation.errors import UserError


def run_program(work: Callable[[], None]) -> int:
    """Do the work of a program, with its errors told in one line.

    Returns:
        The exit status: 0, 2 after an error, 130 after an interruption.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever called us
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    logging.basicConfig(format="%(message)s", force=True)
    logging.getLogger("translation").setLevel(logging.INFO)
    try:
        work()
        sys.stdout.flush()
    except UserError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror}{where}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped (a training goes on with --resume)", file=sys.stderr)
        return 130
    return 0
