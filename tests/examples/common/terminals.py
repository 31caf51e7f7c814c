"""A terminal of any width for what a test prints, and what a person sees on its screen."""

import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from rich.cells import cell_len

pty = pytest.importorskip("pty")  # not on Windows


@dataclass
class Screen:
    """The screen of a terminal, after all that was printed to it.

    Attributes:
        columns: Its width.
        raw: What was printed.
        lines: The lines that a person sees in the end.
        drawn: Every version of a line that was overwritten.
    """

    columns: int
    raw: str = ""
    lines: list[str] = field(default_factory=lambda: [""])
    drawn: list[str] = field(default_factory=list)

    def show(self) -> None:
        """Draw what was printed: the cursor moves back and up, and long lines are broken."""
        row = position = 0
        for piece in re.findall(r"\033\[[?\d;]*[A-Za-z]|.|\n", self.raw):
            if piece == "\n":
                row, position = row + 1, 0
                self.lines += [""] * (row == len(self.lines))
            elif piece == "\r":
                position = 0
            elif piece.endswith("A") and piece[0] == "\033":
                row -= int(piece[2:-1] or 1)
            elif piece == "\033[2K":
                if self.lines[row].strip():
                    self.drawn.append(self.lines[row].rstrip())
                self.lines[row] = ""
            elif piece[0] != "\033":
                line = self.lines[row]
                if cell_len(line[:position]) + cell_len(piece) > self.columns:
                    row, position = row + 1, 0
                    self.lines += [""] * (row == len(self.lines))
                    line = self.lines[row]
                self.lines[row] = line[:position] + piece + line[position + 1 :]
                position += 1
        self.lines = [line.rstrip() for line in self.lines]
        while self.lines[-2:] == ["", ""]:
            self.lines.pop()

    @property
    def bars(self) -> list[str]:
        """The progress bars that were drawn, in their order."""
        return [line for line in self.drawn if re.match(r" *\d+% ", line)]


@contextmanager
def terminal(columns: int, *, colours: bool = True) -> Iterator[Screen]:
    """Print to a terminal of this width instead of to standard output and standard error."""
    import fcntl
    import termios

    screen, pieces = Screen(columns), list[bytes]()
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
            patch.setenv("TERM", "xterm" if colours else "dumb")
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            yield screen
    finally:
        reader.join()
        os.close(master)
        screen.raw = b"".join(pieces).decode()
        screen.show()
