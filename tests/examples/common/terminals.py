"""A terminal of any width for what a test prints."""

import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

pty = pytest.importorskip("pty")  # not on Windows


@dataclass
class Screen:
    """What was printed to a terminal.

    Attributes:
        raw: As it was printed, with codes for colours and for the place of the cursor.
    """

    raw: str = ""

    @property
    def lines(self) -> list[str]:
        """All lines that are not blank, also those that were overwritten later."""
        plain = re.sub(r"\033\[[?\d;]*[A-Za-z]", "", self.raw)
        return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]

    @property
    def bars(self) -> list[str]:
        """The progress bars that were drawn, in their order."""
        return [line for line in self.lines if re.match(r" *\d+% ", line)]


@contextmanager
def terminal(columns: int) -> Iterator[Screen]:
    """Print to a terminal of this width instead of to standard output and standard error."""
    import fcntl
    import termios

    screen, pieces = Screen(), list[bytes]()
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read() -> None:
        while True:
            try:
                piece = os.read(master, 2**16)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with pytest.MonkeyPatch.context() as patch, os.fdopen(slave, "w", encoding="utf-8") as out:
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            yield screen
    finally:
        reader.join()
        os.close(master)
        screen.raw = b"".join(pieces).decode()
