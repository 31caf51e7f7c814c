"""Changes: replace attributes of modules for a while, and restore them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch import Tensor, nn

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
    """An attention function that calls another one, and offers weights only if that one does."""

    def __init__(self, attention_function: Callable[..., Any]) -> None:
        self.attention_function = attention_function

    def __call__(self, *inputs: Tensor, **options: Any) -> Any:
        """Call the attention function."""
        return self.attention_function(*inputs, **options)

    @property
    def attention_weights(self) -> Callable[..., Tensor]:
        """The function that computes the weights; an attribute only if they are known."""
        weights = offered_weights(self.attention_function)
        if weights is None:
            raise AttributeError("the attention function offers no weights")
        return weights


def offered_weights(attention_function: Callable[..., Any]) -> Callable[..., Tensor] | None:
    """Return the function that computes the weights of an attention function; None if unknown."""
    if attention_function is fused_attention:
        return attention_weights
    return getattr(attention_function, "attention_weights", None)
