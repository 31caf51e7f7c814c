"""Changes: replace attributes of modules and settings of torch for a while, and restore them."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from transformer_blocks._contexts import SharedContext, eager_execution
from transformer_blocks.multi_head import offered_weights

_active: dict[tuple[nn.Module, str], tuple[bool, Any, list[Callable[[Any], Any]]]] = {}
"""Whether each changed attribute is its module's own, its original value, and its changes."""
_lock = Lock()


@contextmanager
def changed(module: nn.Module, name: str, change: Callable[[Any], object]) -> Iterator[None]:
    """Change an attribute inside the ``with`` block; several blocks may end in any order.

    It may be a value, a submodule or a method.
    """
    key, values = (module, name), vars(module)
    with _lock:
        if key not in _active:
            _active[key] = name in values, getattr(module, name), []
        is_own, original, changes = _active[key]

        def update() -> None:
            value = original
            for each in changes:
                value = each(value)
            values[name] = value
            if not changes:
                del _active[key]
                if not is_own:
                    del values[name]

        changes.append(change)
        update()
    try:
        yield
    finally:
        with _lock:
            changes.remove(change)
            update()


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


_force_eager = SharedContext(lambda: torch.compiler.set_stance("force_eager"))


@contextmanager
def changed_setting(
    get: Callable[[], Any], change: Callable[[Any], object], value: Any
) -> Iterator[None]:
    """Change a setting of torch inside the ``with`` block."""
    before = get()
    change(value)
    try:
        yield
    finally:
        change(before)


without_fast_path = SharedContext(
    lambda: changed_setting(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False)
)
"""Let the modules of torch.nn call each of their parts inside the ``with`` block."""


@contextmanager
def without_gradients() -> Iterator[None]:
    """Record no gradients inside the ``with`` block, in which autocast caches no weights.

    Torch 2.10 would use the weights that it cast without gradients in the model's own computation
    too, whose gradients would be lost.
    """
    cache = torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False
    with changed_setting(*cache), torch.no_grad():
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


def _ignore(*_: Any) -> None:
    """Do nothing before, or after, a call."""


@contextmanager
def hooked(
    parts: Mapping[Any, nn.Module],
    before: Callable[..., Any] = _ignore,
    after: Callable[..., Any] = _ignore,
) -> Iterator[None]:
    """Call functions before and after each call of some modules, inside the ``with`` block.

    Args:
        parts: The modules, by name.
        before: Function of a module's name, the module, its arguments, and its keyword arguments.
        after: Function of a module's name, the module, its arguments, and its result.
    """
    with run_eagerly(), ExitStack() as stack:
        for name, part in parts.items():
            hooks = partial(before, name), partial(after, name)
            handle = part.register_forward_pre_hook(hooks[0], with_kwargs=True, prepend=True)
            stack.callback(handle.remove)
            stack.callback(part.register_forward_hook(hooks[1]).remove)
        yield


@contextmanager
def evaluation(model: Callable[..., Any]) -> Iterator[None]:
    """Set a model to evaluation mode; restore modes, values and global state afterwards."""
    module = model if isinstance(model, nn.Module) else nn.Module()
    parts = [(part, part.training, dict(part._buffers)) for part in module.modules()]
    values = [*module.buffers(), *module.parameters()]
    saved = [value.detach().clone() for value in values]
    cuda = {value.device for value in values if value.is_cuda}
    dtype = torch.get_default_dtype()
    with (
        torch.random.fork_rng(devices=sorted(cuda, key=str)),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # about inputs that only the checks pass
        try:
            module.eval()
            yield
        finally:
            torch.set_default_dtype(dtype)
            for part, mode, buffers in parts:
                part.training = mode
                part._buffers.update(buffers)
            for value, before in zip(values, saved, strict=True):
                if not value.is_meta and not torch.equal(value, before):
                    value.detach().copy_(before)
