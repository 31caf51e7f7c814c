"""Mode: see the attention inside modules that are not made of these blocks.

Almost every model computes its attention in one of three ways:

- with torch's fused kernel, ``F.scaled_dot_product_attention``, which returns no weights;
- with :class:`torch.nn.MultiheadAttention`, that is ``F.multi_head_attention_forward``;
- explicitly: a softmax over the last dimension, often a dropout, and a matrix product whose left
  factor is the result (``softmax(q @ k.mT) @ v``).

A :class:`~torch.overrides.TorchFunctionMode` is called by torch instead of each of its functions.
:class:`AttentionMode` calls each function with its own arguments, and recognises these three. So a
model need not be changed, and its outputs stay the same. Attention weights are listed under the
name of the innermost module whose method is being executed, which is found on Python's call stack.

What cannot be seen: kernels that are not functions of torch, such as those of the flash-attn
package, FlexAttention, compiled and exported code, and attention without a softmax.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils.weak import WeakTensorKeyDictionary

from transformer_blocks._contexts import SharedContext
from transformer_blocks.inspection.changes import without_gradients
from transformer_blocks.inspection.record.projections import (
    KernelCall,
    torch_layer_weights,
    unfold_heads,
)
from transformer_blocks.inspection.record.recording import NAMED_ATTENTION, Recording


class AttentionMode(TorchFunctionMode):
    """The mode that sees attention for all recordings of a thread.

    Attributes:
        recordings: The recordings that have begun and not ended.
        is_in_fast_path: Whether a module of torch that has a fast path is being executed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recordings: list[Recording] = []
        self.is_in_fast_path = False
        self.softmaxes: Any = WeakTensorKeyDictionary()  # the _Softmax of each result

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        is_noted = func in _NOTED
        for recording in self.recordings:
            if is_noted or not recording.has_run:
                recording.note_call()
        handler = _HANDLERS.get(func)
        if handler is None:
            if _is_attention(func):
                for recording in self.recordings:
                    found = recording.find()
                    recording.unseen |= {found[0]} if found else set()
            return func(*args, **(kwargs or {}))
        kwargs = dict(kwargs or {})
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        return handler(self, func, args, kwargs)

    def see_kernel(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``F.scaled_dot_product_attention``."""
        output = func(*args, **kwargs)
        for recording, name, module in self._find_recordings():
            call = KernelCall(*args, **kwargs)
            heads = output
            if call.has_folded_heads(module):
                call, heads = call.unfolded(), unfold_heads(output)
            recording.see(name, call.weights, call.projections)
            patched = recording.patch(name, heads)
            output = output if patched is heads else patched.view(output.shape)
        return output

    def see_torch_layer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``F.multi_head_attention_forward``, with which torch's module computes."""
        kwargs = inspect.signature(func).bind(*args, **kwargs).arguments
        found = [*self._find_recordings()]
        for recording, name, _ in found:
            recording.see(name, partial(torch_layer_weights, func, kwargs))
        patching = [(recording, name) for recording, name, _ in found if name in recording.patches]
        if not patching:
            return func(**kwargs)
        weight, bias = kwargs["out_proj_weight"], kwargs["out_proj_bias"]
        identity = torch.eye(weight.shape[1]).to(weight)  # leaves the heads as they are
        y, weights = func(**kwargs | {"out_proj_weight": identity, "out_proj_bias": None})
        heads = y if y.dim() == 3 else y[:, None]  # (L, B, d_model)
        heads = heads.unflatten(-1, (kwargs["num_heads"], -1)).movedim(0, 2)  # (B, H, L, d_k)
        for recording, name in patching:
            heads = recording.patch(name, heads)
        return F.linear(heads.movedim(2, 0).reshape(y.shape), weight, bias), weights

    def remember_softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Remember the result of a softmax over the last dimension."""
        output = func(*args, **kwargs)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if output.dim() > 1 and dim in (-1, output.dim() - 1):
            self.softmaxes[output] = _Softmax()
        return output

    def follow_change(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Follow a softmax through a change of shape or dtype, a mask, or a dropout."""
        softmax = self._find_softmax(*args[:1])
        if softmax is None:
            return func(*args, **kwargs)
        weights = softmax.weights
        if func in _DROPOUT:  # which may change its input
            weights = args[0].detach().clone() if weights is None else weights
        elif weights is not None:
            with torch.no_grad():
                weights = func(weights, *args[1:], **kwargs)
        output = func(*args, **kwargs)
        if isinstance(output, Tensor):
            self.softmaxes[output] = replace(softmax, weights=weights)
        return output

    def see_product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See a matrix product whose left factor is the result of a softmax."""
        output = func(*args, **kwargs)
        factors = (*args, *kwargs.values())
        if any(isinstance(factor, nn.Parameter) for factor in factors[1:]):
            return output  # a product with parameters is, for example, a mean of embeddings
        return self._see_product(factors[0], output)

    def see_einsum(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See a product in Einstein's notation that sums over the keys of a softmax."""
        output = func(*args, **kwargs)
        equation = args[0]
        operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
        if not isinstance(equation, str) or "->" not in equation or len(operands) != 2:
            return output
        terms, result = equation.replace(" ", "").split("->")
        for term, operand in zip(terms.split(","), operands, strict=True):
            if self._find_softmax(operand) is not None and term[-1] not in result:
                place = 1 if "." in term + result else result.find(term[1])
                output = self._see_product(operand, output, place)
        return output

    def _see_product(self, factor: Any, output: Tensor, place: int = 1) -> Tensor:
        """See a product of a factor and values, if the factor is the result of a softmax.

        ``place`` is the output's dimension of heads; -1 if this is not known.
        """
        softmax = self._find_softmax(factor)
        if softmax is None:
            return output
        weights = factor if softmax.weights is None else softmax.weights
        for recording, name, _ in self._find_recordings():
            if (recording, name) not in softmax.recorded:
                softmax.recorded.append((recording, name))
                recording.see(name, weights.detach)
            output = recording.patch(name, output, place)
        return output

    def _find_recordings(self) -> Iterator[tuple[Recording, str, nn.Module]]:
        """Yield the recordings of the module that is being executed, with its name."""
        for recording in self.recordings:
            found = recording.find()
            if found is not None:
                recording.seen.add(found[0])
                yield recording, *found

    def _find_softmax(self, x: object = None) -> "_Softmax | None":
        """Return the softmax whose result a tensor is; None if there is none."""
        softmax: _Softmax | None = self.softmaxes.get(x) if isinstance(x, Tensor) else None
        return softmax


@dataclass(frozen=True)
class _Softmax:
    """A softmax whose result may become a factor of a product with values.

    Attributes:
        weights: The weights from before a dropout; None if the result is the weights.
        recorded: The recordings that recorded the weights, with the name of the module.
    """

    weights: Tensor | None = None
    recorded: list[tuple[Recording, str]] = field(default_factory=list)


FAST_PATHS = nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder
"""Classes of torch that compute attention in one compiled function where they need no gradient."""

_local = threading.local()
_lock = threading.Lock()


@contextmanager
def active(recording: Recording) -> Iterator[None]:
    """See what this thread executes inside the ``with`` block.

    A thread has one mode for all its blocks, so that they may end in any order: the first block to
    begin activates it, and the last block to end deactivates it.
    """
    mode: AttentionMode | None = getattr(_local, "mode", None)
    if mode is None:
        mode = _local.mode = AttentionMode()
        mode.__enter__()  # type: ignore[no-untyped-call]
    with _lock:
        mode.recordings.append(recording)
    with seen_fast_paths:
        try:
            yield
        finally:
            with _lock:
                mode.recordings.remove(recording)
                is_own = getattr(_local, "mode", None) is mode  # not if another thread ends it
                if is_own and not mode.recordings:
                    mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
                    _local.mode = None


@contextmanager
def _seen_fast_paths() -> Iterator[None]:
    """Let the modules of torch take their fast path inside the ``with`` block.

    The classes are changed instead of the modules, so that a module can be copied and saved inside
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


seen_fast_paths = SharedContext(_seen_fast_paths)


def _with_fast_path(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the forward method of a class of torch so that it takes its fast path as usual.

    torch's fast path computes several operations in one, and rounds differently. It is not taken
    while a mode is active. So the output is computed without the mode, and the second forward pass,
    whose output is discarded, calls the functions in which attention can be seen.
    """

    @wraps(forward)
    def seen(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode: AttentionMode | None = getattr(_local, "mode", None)
        if (
            mode is None
            or not mode.recordings
            or mode.is_in_fast_path
            or any(recording.patches for recording in mode.recordings)
            or not _has_fast_path(module)
        ):
            return forward(module, *args, **kwargs)
        mode.is_in_fast_path = True
        try:  # the mode calls the function, and torch suspends the mode during the call
            output = handle_torch_function(forward, (), module, *args, **kwargs)
            parts = {id(part) for part in module.modules()}
            if any(parts & recording.modules.keys() for recording in mode.recordings):
                with suppress(Exception), without_gradients():  # the model must not be disturbed
                    forward(module, *args, **kwargs)
        finally:
            mode.is_in_fast_path = False
        return output

    return seen


@cache
def _is_attention(func: Any) -> bool:
    """Return whether a function of torch, or one of an operator's, is named after attention."""
    return bool(NAMED_ATTENTION.search(getattr(func, "__name__", "")))


def _has_fast_path(module: nn.Module) -> bool:
    """Return whether a module of torch takes its fast path, which hooks and gradients prevent."""
    parameters = module.parameters() if torch.is_grad_enabled() else ()
    if module.training or any(parameter.requires_grad for parameter in parameters):
        return False
    is_layer = isinstance(module, nn.TransformerEncoderLayer)  # its own hooks count too
    parts = (part for part in module.modules() if is_layer or part is not module)
    return not any(part._forward_hooks or part._forward_pre_hooks for part in parts)


_SOFTMAX = F.softmax, torch.softmax, Tensor.softmax
_DROPOUT = F.dropout, torch.dropout
_PRODUCT = torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm
_FOLLOWED = (
    *(Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.double, Tensor.half),
    *(Tensor.bfloat16, Tensor.contiguous, Tensor.clone, Tensor.detach, Tensor.view, Tensor.reshape),
    *(Tensor.unsqueeze, Tensor.squeeze, Tensor.transpose, Tensor.permute, Tensor.expand),
    *(Tensor.flatten, Tensor.unflatten, Tensor.__getitem__, Tensor.nan_to_num),
    *(Tensor.mul, torch.mul, Tensor.div, Tensor.__truediv__, torch.div),
    *(torch.reshape, torch.unsqueeze, torch.squeeze, torch.transpose, torch.permute),
    *(torch.flatten, torch.unflatten, torch.nan_to_num, torch.masked_fill),
    *(Tensor.masked_fill, Tensor.masked_fill_),
)
_NOTED = {F.linear, torch.addmm, torch.conv1d, torch.conv2d, torch.einsum, *_PRODUCT}
"""Functions in which a module computes something, which may be an attention that is not seen."""

_HANDLERS: dict[Any, Callable[[AttentionMode, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    F.scaled_dot_product_attention: AttentionMode.see_kernel,
    F.multi_head_attention_forward: AttentionMode.see_torch_layer,
    torch.einsum: AttentionMode.see_einsum,
    **dict.fromkeys(_SOFTMAX, AttentionMode.remember_softmax),
    **dict.fromkeys(_PRODUCT, AttentionMode.see_product),
    **dict.fromkeys((*_FOLLOWED, *_DROPOUT), AttentionMode.follow_change),
}
