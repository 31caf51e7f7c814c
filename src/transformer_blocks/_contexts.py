"""Shared contexts: global settings that several parts of a program may hold at once."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock


class SharedContext:
    """A context manager that holds a global setting while any of its ``with`` blocks lasts.

    Blocks may end in any order, and in any thread: the first one to begin enters the setting, the
    last one to end leaves it. To restore "what was there before" in each block would leave the
    setting on for good where two blocks do not end innermost first.

    Args:
        make: Makes the context to enter; without it, only the blocks are counted.

    Attributes:
        holders: Number of blocks that last.

    Example:
        >>> from transformer_blocks._contexts import SharedContext
        >>> setting = SharedContext()
        >>> setting.__enter__(), setting.__enter__(), setting.__exit__(None, None, None)
        (None, None, None)
        >>> setting.holders
        1
    """

    def __init__(
        self, make: Callable[[], AbstractContextManager[object]] = nullcontext[None]
    ) -> None:
        self._make = make
        self._lock = Lock()
        self.holders = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self.holders:
                self._context = self._make()
                self._context.__enter__()
            self.holders += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self.holders -= 1
            if not self.holders:
                self._context.__exit__(None, None, None)
