"""Eager execution: run compiled models through their modules, whose hooks then work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from transformer_blocks._contexts import SharedContext, eager_execution

_force_eager = SharedContext(lambda: torch.compiler.set_stance("force_eager"))


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Execute compiled models eagerly inside the ``with`` block.

    Compiled code does not call the hooks of modules, so nothing could be recorded.
    """
    # Without it nothing has been compiled by torch.compile; and its import takes a second.
    has_dynamo = "torch._dynamo" in sys.modules
    with eager_execution, _force_eager if has_dynamo else nullcontext():
        yield
