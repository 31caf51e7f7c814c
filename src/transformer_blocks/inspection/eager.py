"""Eager execution: run compiled models through their modules, whose hooks then work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.backends import cuda, mha

from transformer_blocks._contexts import SharedContext, eager_execution

_force_eager = SharedContext(lambda: torch.compiler.set_stance("force_eager"))


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Let the modules of torch.nn call each of their parts inside the ``with`` block."""
    was_enabled = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(was_enabled)


without_fast_path = SharedContext(_without_fast_path)


@contextmanager
def _without_fused_kernels() -> Iterator[None]:
    """Let torch compute attention by its explicit implementation inside the ``with`` block."""
    # Not sdpa_kernel: with torch 2.15 it has to end in the thread in which it began.
    kernels = "flash", "mem_efficient", "cudnn", "math"
    were_enabled = [getattr(cuda, f"{kernel}_sdp_enabled")() for kernel in kernels]
    for kernel in kernels:
        getattr(cuda, f"enable_{kernel}_sdp")(kernel == "math")
    try:
        yield
    finally:
        for kernel, was_enabled in zip(kernels, were_enabled, strict=True):
            getattr(cuda, f"enable_{kernel}_sdp")(was_enabled)


without_fused_kernels = SharedContext(_without_fused_kernels)


@contextmanager
def without_gradients() -> Iterator[None]:
    """Record no gradients inside the ``with`` block, in which autocast caches no weights.

    Torch 2.10 would use the weights that it cast without gradients in the model's own computation
    too, whose gradients would be lost.
    """
    was_enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(was_enabled)


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Execute compiled models eagerly inside the ``with`` block.

    Compiled code does not call the hooks of modules, so nothing could be recorded.
    """
    # Without it nothing has been compiled by torch.compile; and its import takes a second.
    has_dynamo = "torch._dynamo" in sys.modules
    with eager_execution, _force_eager if has_dynamo else nullcontext():
        yield
