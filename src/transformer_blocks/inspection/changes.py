"""Changes: replace attributes of modules and settings of torch for a while, and restore them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from transformer_blocks._contexts import SharedContext, eager_execution
from transformer_blocks.attention import attention_weights
from transformer_blocks.fast.attention import fused_attention


class _Attribute:
    """An attribute of a module (a value, a submodule or a method) and the active changes to it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.values, self.name = vars(module), name
        self.is_own = name in self.values
        self.original = getattr(module, name)
        self.changes: list[Callable[[Any], object]] = []

    def update(self) -> None:
        """Apply all active changes to the original value."""
        if not self.changes and not self.is_own:
            del self.values[self.name]
            return
        value = self.original
        for change in self.changes:
            value = change(value)
        self.values[self.name] = value


_attributes: dict[tuple[nn.Module, str], _Attribute] = {}
_lock = Lock()


@contextmanager
def changed(module: nn.Module, name: str, change: Callable[[Any], object]) -> Iterator[None]:
    """Change an attribute inside the ``with`` block; several blocks may end in any order."""
    key = module, name
    with _lock:
        attribute = _attributes.setdefault(key, _Attribute(module, name))
        attribute.changes.append(change)
        attribute.update()
    try:
        yield
    finally:
        with _lock:
            attribute.changes.remove(change)
            attribute.update()
            if not attribute.changes:
                del _attributes[key]


class AttentionWrapper:
    """An attention function that calls another one, and offers weights only if that one does.

    Args:
        attention_function: The function that is called.
        options: Keyword arguments that replace those of each call.
    """

    def __init__(self, attention_function: Callable[..., Any], **options: Any) -> None:
        self.attention_function, self.options = attention_function, options

    def __call__(self, *inputs: Tensor, **options: Any) -> Any:
        """Call the attention function."""
        return self.attention_function(*inputs, **options | self.options)

    @property
    def attention_weights(self) -> Callable[..., Tensor]:
        """The function that computes the weights; an attribute only if they are known."""
        weights = offered_weights(self.attention_function)
        if weights is None:
            raise AttributeError("the attention function offers no weights")
        return lambda *inputs, **options: weights(*inputs, **options | self.options)


def offered_weights(attention_function: Callable[..., Any]) -> Callable[..., Tensor] | None:
    """Return the function that computes the weights of an attention function; None if unknown."""
    if attention_function is fused_attention:
        return attention_weights
    return getattr(attention_function, "attention_weights", None)


_force_eager = SharedContext(lambda: torch.compiler.set_stance("force_eager"))


@contextmanager
def _set_flag(
    get: Callable[[], bool], set_flag: Callable[[bool], object], value: bool
) -> Iterator[None]:
    """Set a flag of torch inside the ``with`` block."""
    before = get()
    set_flag(value)
    try:
        yield
    finally:
        set_flag(before)


without_fast_path = SharedContext(
    lambda: _set_flag(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False)
)
"""Let the modules of torch.nn call each of their parts inside the ``with`` block."""


@contextmanager
def without_gradients() -> Iterator[None]:
    """Record no gradients inside the ``with`` block, in which autocast caches no weights.

    Torch 2.10 would use the weights that it cast without gradients in the model's own computation
    too, whose gradients would be lost.
    """
    cache = torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False
    with _set_flag(*cache), torch.no_grad():
        yield


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Execute compiled models eagerly inside the ``with`` block.

    Compiled code does not call the hooks of modules, so nothing could be recorded.
    """
    # Without it nothing has been compiled by torch.compile; and its import takes a second.
    has_dynamo = "torch._dynamo" in sys.modules
    with eager_execution, _force_eager if has_dynamo else nullcontext():
        yield
