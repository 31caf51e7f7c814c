"""Compiled models, looked into."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from transformer_blocks._contexts import SharedContext, eager_execution

_force_eager = SharedContext(lambda: torch.compiler.set_stance("force_eager"))


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Have compiled models run through their modules, as long as the context lasts.

    What is compiled does not call the hooks that are set on its modules: it would show nothing.
    """
    # Without it nothing has been compiled by torch.compile; and its import takes a second.
    has_dynamo = "torch._dynamo" in sys.modules
    with eager_execution, _force_eager if has_dynamo else nullcontext():
        yield
