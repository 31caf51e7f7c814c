"""Interrupt a computation at any of its operations."""

import linecache
import re
import sys
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class InterruptedAt(TorchDispatchMode):
    """Raises an exception in place of one of torch's operations."""

    def __init__(self, operation: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.left = operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))


class InterruptedAtLine:
    """Raises an exception before one of the lines of some files of the package.

    Python handles a signal at calls and jumps. A line ``return name`` has neither.
    """

    def __init__(self, line: int, *files: str) -> None:
        self.left, self.files = line, files

    def __enter__(self) -> None:
        self.previous = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.previous)

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(self.files):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        self.left -= event == "line" and not re.fullmatch(r" *return \w+\n", line)
        if self.left < 0:
            sys.settrace(self.previous)
            raise KeyboardInterrupt
        return self.trace
