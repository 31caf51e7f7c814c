"""Observer: observe the attention inside modules that are not made of these blocks.

Almost every model computes its attention in one of three ways:

- with torch's fused kernel, ``F.scaled_dot_product_attention``, which returns no weights;
- with :class:`torch.nn.MultiheadAttention`, that is ``F.multi_head_attention_forward``;
- explicitly: a softmax over the last dimension, often a dropout, and a matrix product whose left
  factor is the result (``softmax(q @ k.mT) @ v``).

A :class:`~torch.overrides.TorchFunctionMode` is called by torch instead of each of its functions.
:class:`AttentionMode` calls each function with its own arguments, and recognises these three. So a
model need not be changed, and its outputs stay the same. Attention weights are listed under the
name of the innermost module whose method is being executed, which is found on Python's call stack.

What cannot be observed: kernels that are not functions of torch, such as those of the flash-attn
package, FlexAttention, compiled and exported code, and attention without a softmax.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.overrides import handle_torch_function

from transformer_blocks._contexts import SharedContext
from transformer_blocks.inspection.eager import without_gradients
from transformer_blocks.inspection.mode import AttentionMode, plain
from transformer_blocks.inspection.observation import Observation

FAST_PATHS = nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder
"""Classes of torch that compute attention in one compiled function where they need no gradient."""


_local = threading.local()
_lock = threading.Lock()


@contextmanager
def observe(observation: Observation) -> Iterator[None]:
    """Observe what this thread executes inside the ``with`` block.

    A thread has one mode for all its blocks, so that they may end in any order: the first block to
    begin activates it, and the last block to end deactivates it.
    """
    mode: AttentionMode | None = getattr(_local, "mode", None)
    if mode is None:
        mode = _local.mode = AttentionMode()
    with _lock:
        if not mode.observations and not getattr(_local, "is_active", False):
            mode.__enter__()  # type: ignore[no-untyped-call]
            _local.is_active = True
        mode.observations.append(observation)
    with observed_fast_paths:
        try:
            yield
        finally:
            with _lock:
                mode.observations.remove(observation)
                is_own = getattr(_local, "mode", None) is mode  # not if another thread ends it
                if is_own and not mode.observations:
                    mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
                    _local.is_active = False
                    mode.weights.clear()
                    mode.products.clear()


@contextmanager
def _observed_fast_paths() -> Iterator[None]:
    """Let the modules of torch take their fast path inside the ``with`` block.

    Their classes are changed, and not the modules, so that a module can be copied and saved inside
    the block.
    """
    forwards = [(kind, kind.forward) for kind in FAST_PATHS]
    for kind, forward in forwards:
        kind.forward = _with_fast_path(forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, forward in forwards:
            kind.forward = forward  # type: ignore[method-assign]


observed_fast_paths = SharedContext(_observed_fast_paths)


def _with_fast_path(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the forward method of a class of torch so that it takes its fast path as usual.

    torch's fast path computes several operations in one, and rounds differently. It is not taken
    while a mode is active. So the output is computed without the mode, and the second forward pass,
    whose output is discarded, calls the functions in which attention can be observed.
    """

    @wraps(forward)
    def observed(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode: AttentionMode | None = getattr(_local, "mode", None)
        needs_gradients = torch.is_grad_enabled() and any(
            parameter.requires_grad for parameter in module.parameters()
        )
        has_fast_path = not (
            module.training or needs_gradients or _is_slowed(module, *args, **kwargs)
        )
        if mode is None or mode.is_in_fast_path or not (has_fast_path and mode.observations):
            return forward(module, *args, **kwargs)
        if any(observation.heads for observation in mode.observations):
            return forward(module, *args, **kwargs)
        mode.is_in_fast_path = True
        try:
            first = torch.empty(0)
            output = handle_torch_function(plain, (first,), forward, (module, *args), kwargs)
            parts = {id(part) for part in module.modules()}
            concerned = [each for each in mode.observations if parts & each.modules.keys()]
            if concerned:
                with without_gradients():
                    mode.attempt(concerned, forward, module, *args, **kwargs)
        finally:
            mode.is_in_fast_path = False
        return output

    return observed


def _is_slowed(module: nn.Module, *args: Any, **kwargs: Any) -> bool:
    """Return whether hooks keep a module of torch from its fast path, so that they are called."""
    padding = kwargs.get("src_key_padding_mask", args[2] if len(args) > 2 else None)
    if getattr(module, "use_nested_tensor", False) and padding is not None:
        return False  # an encoder removes padding whether its layers have hooks or not
    is_layer = isinstance(module, nn.TransformerEncoderLayer)  # its own hooks count too
    parts = (part for part in module.modules() if is_layer or part is not module)
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)
