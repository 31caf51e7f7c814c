"""Ablation: take a part out of a trained model, and see what it was good for.

What does a head do? What would be lost without the residual connections, the positions, the scale?
:func:`ablate` silences such parts while its ``with`` block lasts, and puts everything back exactly.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.additive import AdditiveAttention
from transformer_blocks.attention import attention_weights
from transformer_blocks.embedding import LearnedPositionalEncoding, SinusoidalPositionalEncoding
from transformer_blocks.inspection.eager import run_eagerly
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention
from transformer_blocks.packing.layers import JoinedAttention, PackedDecoderLayer
from transformer_blocks.packing.linear import PackedLinear
from transformer_blocks.residual import PostNorm, PreNorm

PACKED = PackedLinear, JoinedAttention, PackedDecoderLayer


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
    also if the block ends with an error. Inside, a compiled model runs uncompiled. Pack a model
    afterwards, not within, and give one that is not packed.

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
            in the model), or if the model is packed.
        TypeError: If a module is of another kind.

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
    if any(isinstance(part, PACKED) for part in model.modules()):
        raise ValueError("model must not be packed; ablate the one that was trained")
    with ExitStack() as undo:
        undo.enter_context(run_eagerly())
        for name, numbers in (heads or {}).items():
            layer = _find(model, name, MultiHeadAttention)
            wrong = [number for number in numbers if not 0 <= number < layer.num_heads]
            if wrong:
                raise ValueError(
                    f"heads of {name!r} must be in 0..{layer.num_heads - 1}, got {wrong[0]}"
                )
            _replace(layer, "kernel", _Silenced(layer.kernel, frozenset(numbers)), undo)
        for name in silent:
            module = _find(model, name, nn.Module)
            undo.callback(module.register_forward_hook(_zeros).remove)
        for name in residuals:
            residual = _find(model, name, (PreNorm, PostNorm))
            _replace(residual, "forward", _without_stream(residual), undo)
        if positions:
            kinds = SinusoidalPositionalEncoding, LearnedPositionalEncoding
            for encoding in _all(model, kinds, "a positional encoding"):
                hook = encoding.register_forward_hook(_input, with_kwargs=True)
                undo.callback(hook.remove)
        if scale:
            for layer in _all(
                model, (MultiHeadAttention, SingleHeadAttention), "an attention layer"
            ):
                if isinstance(layer, SingleHeadAttention):
                    _replace(layer, "scale", 1.0, undo)
                elif any(isinstance(part, AdditiveAttention) for part in layer.modules()):
                    raise ValueError("additive attention must be left as it is: it has no scale")
                else:
                    _replace(layer, "kernel", _Unscaled(layer.kernel), undo)
        yield


class _Wrapped:
    """A kernel around another one, which goes on showing its weights."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel

    def attention_weights(self, *inputs: Tensor, **options: Any) -> Tensor:
        weigh = getattr(self.kernel, "attention_weights", attention_weights)
        return weigh(*inputs, **options)


class _Silenced(_Wrapped):
    """A kernel some of whose heads find nothing."""

    def __init__(self, kernel: Callable[..., Any], heads: Collection[int]) -> None:
        super().__init__(kernel)
        self.heads = sorted(heads)

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor:
        found = self.kernel(*inputs, **options)
        mixed: Tensor = found[0] if isinstance(found, tuple) else found  # (B, H, L, d_k)
        is_silent = torch.zeros(mixed.shape[1], dtype=torch.bool)
        is_silent[self.heads] = True
        return mixed.masked_fill(is_silent.to(mixed.device)[:, None, None], 0.0)


class _Unscaled(_Wrapped):
    """A kernel whose scores are not divided."""

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
        return self.kernel(*inputs, **options | {"scale": 1.0})

    def attention_weights(self, *inputs: Tensor, **options: Any) -> Tensor:
        return super().attention_weights(*inputs, **options | {"scale": 1.0})


def _zeros(module: nn.Module, inputs: object, output: object) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"a silent module must return a tensor, got {type(output).__name__} from "
            f"{type(module).__name__}"
        )
    return torch.zeros_like(output)


def _input(
    module: nn.Module, inputs: tuple[Tensor, ...], keywords: dict[str, Tensor], output: Tensor
) -> Tensor:
    return inputs[0] if inputs else keywords["x"]


def _without_stream(residual: PreNorm | PostNorm) -> Callable[..., Tensor]:
    """Make a forward that passes on what the sublayer says alone."""

    def forward(x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if isinstance(residual, PreNorm):
            return residual.dropout(sublayer(residual.norm(x)))
        return residual.norm(residual.dropout(sublayer(x)))

    return forward


def _replace(module: nn.Module, name: str, value: object, undo: ExitStack) -> None:
    """Lay another value over an attribute, also over a registered module, and take it off again."""
    own = vars(module)
    if name in own:
        undo.callback(own.__setitem__, name, own[name])
    else:
        undo.callback(own.__delitem__, name)
    own[name] = value


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
