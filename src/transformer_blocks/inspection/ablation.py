"""Ablation: take a part out of a trained model, and see what it was good for.

What does a head do? What would be lost without the residual connections, the positions, the scale?
:func:`ablate` silences such parts while its ``with`` block lasts, and puts everything back exactly.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_module
from transformer_blocks.attention import attention_weights
from transformer_blocks.embedding import LearnedPositionalEncoding, SinusoidalPositionalEncoding
from transformer_blocks.inference.layers import FusedQKVAttention, InferenceDecoderLayer
from transformer_blocks.inference.linear import PrepackedLinear
from transformer_blocks.inspection.eager import run_eagerly
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.additive import AdditiveAttention

PACKED = PrepackedLinear, FusedQKVAttention, InferenceDecoderLayer


@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Mapping[str, Collection[int]] | None = None,
    silent: Collection[str] = (),
    residuals: Collection[str] = (),
    positions: bool = False,
    scale: bool = False,
) -> Iterator[None]:
    """Run a model without some of its parts, inside the ``with`` block.

    Parts are named as ``model.named_modules()`` names them. Afterwards the model is what it was,
    also if the block ends with an error. Several blocks may ablate one model: each takes effect
    while it lasts, for every thread that runs the model, and they may end in any order.
    Inside, a compiled model runs uncompiled. Pack a model afterwards, not within, and give one that
    is not prepared.

    Args:
        model: Any module that is made of these blocks.
        heads: For attention layers, the numbers of the heads that find nothing: what they hand over
            is zero.
        silent: Modules that answer with zeros, such as a cross-attention or a feed-forward network.
        residuals: Residual connections that pass on what their sublayer says, and no longer their
            input.
        positions: Whether positional encodings add nothing.
        scale: Whether attention scores are no longer divided by the root of d_k.

    Raises:
        ValueError: If there is no such module or head, if a part has nothing to lose (no positions
            in the model), or if the model is prepared.
        TypeError: If a module or an argument is of another kind.

    Example:
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> whole = encoder(x)
        >>> with ablate(encoder, heads={"layers.0.self_attention": [0, 2]}):
        ...     torch.allclose(encoder(x), whole)
        False
        >>> torch.equal(encoder(x), whole)
        True
    """
    check_module(model=model)
    _check_kinds(heads, silent, residuals, positions=positions, scale=scale)
    if any(isinstance(part, PACKED) for part in model.modules()):
        raise ValueError("model must not be prepared; ablate the one that was trained")
    with ExitStack() as undo:
        undo.enter_context(run_eagerly())
        for name, numbers in (heads or {}).items():
            layer = _find(model, name, MultiHeadAttention)
            wrong = [number for number in numbers if not 0 <= number < layer.num_heads]
            if wrong:
                raise ValueError(
                    f"heads of {name!r} must be in 0..{layer.num_heads - 1}, got {wrong[0]}"
                )
            undo.enter_context(
                _changed(layer, "attention_function", partial(_Silenced, heads=sorted(numbers)))
            )
        for name in silent:
            module = _find(model, name, nn.Module)
            undo.callback(module.register_forward_hook(_zeros).remove)
        for name in residuals:
            residual = _find(model, name, (PreNorm, PostNorm))
            change = partial(_instead, MethodType(_forward_without_stream, residual))
            undo.enter_context(_changed(residual, "forward", change))
        if positions:
            kinds = SinusoidalPositionalEncoding, LearnedPositionalEncoding
            for encoding in _all(model, kinds, "a positional encoding"):
                undo.enter_context(_changed(encoding, "forward", partial(_instead, _unchanged)))
        if scale:
            for layer in _all(
                model, (MultiHeadAttention, SingleHeadAttention), "an attention layer"
            ):
                if isinstance(layer, SingleHeadAttention):
                    undo.enter_context(_changed(layer, "scale", partial(_instead, 1.0)))
                elif any(isinstance(part, AdditiveAttention) for part in layer.modules()):
                    raise ValueError("additive attention must be left as it is: it has no scale")
                else:
                    undo.enter_context(_changed(layer, "attention_function", _Unscaled))
        yield


def _check_kinds(heads: object, silent: object, residuals: object, **flags: object) -> None:
    """Raise unless every argument of :func:`ablate` is of the kind that it promises.

    Raises:
        TypeError: If one is not.
    """
    if heads is not None and not isinstance(heads, Mapping):
        raise TypeError(
            "heads must map names of attention layers to collections of head numbers, "
            f"got {heads!r}"
        )
    for layer, numbers in (heads or {}).items():
        if isinstance(numbers, str) or not isinstance(numbers, Collection):
            raise TypeError(f"heads of {layer!r} must be a collection, got {numbers!r}")
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f"heads of {layer!r} must be integers, got {number!r}")
    for name, modules in (("silent", silent), ("residuals", residuals)):
        if isinstance(modules, str) or not isinstance(modules, Collection):
            raise TypeError(f"{name} must be a collection of module names, got {modules!r}")
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {name}={flag!r}")


class _Wrapped:
    """A kernel around another one, which goes on showing its weights."""

    def __init__(self, attention_function: Callable[..., Any]) -> None:
        self.attention_function = attention_function

    def attention_weights(self, *inputs: Tensor, **options: Any) -> Tensor:
        weigh = getattr(self.attention_function, "attention_weights", attention_weights)
        return weigh(*inputs, **options)


class _Silenced(_Wrapped):
    """A kernel some of whose heads find nothing."""

    def __init__(self, attention_function: Callable[..., Any], heads: list[int]) -> None:
        super().__init__(attention_function)
        self.heads = heads

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
        found = self.attention_function(*inputs, **options)
        mixed: Tensor = found[0] if isinstance(found, tuple) else found  # (B, H, L, d_k)
        is_silent = torch.zeros(mixed.shape[1], dtype=torch.bool)
        is_silent[self.heads] = True
        mixed = mixed.masked_fill(is_silent.to(mixed.device)[:, None, None], 0.0)
        return (mixed, found[1]) if isinstance(found, tuple) else mixed


class _Unscaled(_Wrapped):
    """A kernel whose scores are not divided."""

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
        return self.attention_function(*inputs, **options | {"scale": 1.0})

    def attention_weights(self, *inputs: Tensor, **options: Any) -> Tensor:
        return super().attention_weights(*inputs, **options | {"scale": 1.0})


def _zeros(module: nn.Module, inputs: object, output: object) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"a silent module must return a tensor, got {type(output).__name__} from "
            f"{type(module).__name__}"
        )
    return torch.zeros_like(output)


def _unchanged(x: Tensor, **options: object) -> Tensor:
    return x


def _forward_without_stream(
    residual: PreNorm | PostNorm, x: Tensor, sublayer: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return what the sublayer computes, without the input that the residual would add."""
    if isinstance(residual, PreNorm):
        return residual.dropout(sublayer(residual.norm(x)))
    return residual.norm(residual.dropout(sublayer(x)))


def _instead(value: object, _: object) -> object:
    return value


class _Attribute:
    """An attribute of a module, also a registered module or a method, and the changes to it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.values, self.name = vars(module), name
        self.is_own = name in self.values
        self.original = getattr(module, name)
        self.changes: list[Callable[[Any], object]] = []

    def update(self) -> None:
        """Derive the value from the original one, by the changes that last."""
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
def _changed(module: nn.Module, name: str, change: Callable[[Any], object]) -> Iterator[None]:
    """Change an attribute while the ``with`` block lasts; several blocks may end in any order."""
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


def _find(model: nn.Module, name: str, kind: Any) -> Any:
    """Look a module up by its name."""
    modules = dict(model.named_modules())
    if name not in modules:
        raise ValueError(f"model must have a module of that name, got {name!r}")
    if not isinstance(modules[name], kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__ for each in kinds)
        raise TypeError(f"{name!r} must be {wanted}, got {type(modules[name]).__name__}")
    return modules[name]


def _all(model: nn.Module, kinds: tuple[type[nn.Module], ...], what: str) -> list[Any]:
    """Find all modules of some kinds; there must be one."""
    found = [module for module in model.modules() if isinstance(module, kinds)]
    if not found:
        raise ValueError(f"model must have {what}, got none in {type(model).__name__}")
    return found
