"""Shared contexts: process-wide settings that several ``with`` blocks may hold at once."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import torch
from torch import Tensor


class SharedContext:
    """A re-entrant context manager that holds a process-wide setting until its last block ends.

    Its ``with`` blocks may end in any order and in any thread: the first block to begin enters the
    setting, and the last block to end leaves it. If each block restored the value that it found
    instead, two overlapping blocks could leave the setting on forever.

    Args:
        make: Function that returns the context manager to enter. The default enters nothing, so
            that only the number of open blocks is counted.

    Attributes:
        holders: Number of blocks that have begun and not ended.

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


eager_execution = SharedContext()
"""While it is held, prepared encoders call all their layers, whose hooks then see every call.

Inspection holds it, and the inference package consults it. It is here so that neither package
imports the other.
"""


def is_autocast(x: Tensor) -> bool:
    """Return whether autocast is enabled on the device of ``x``; the meta device has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)
