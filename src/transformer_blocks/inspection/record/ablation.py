"""Ablation: remove parts of a trained model, to measure what they contribute.

How much does the loss increase without one head, without the residual connections, the positional
encodings or the scale of the scores? :func:`ablate` removes such parts inside a ``with`` block and
restores the model exactly. Attention heads were ablated like this in "Are Sixteen Heads Really
Better than One?" (Michel et al. 2019, https://arxiv.org/abs/1905.10650).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from types import MethodType
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import checked, instance_of
from transformer_blocks.embedding import LearnedPositionalEncoding, SinusoidalPositionalEncoding
from transformer_blocks.inspection.changes import AttentionWrapper, changed, hooked
from transformer_blocks.inspection.record.observation import Observation, check_heads, mask_heads
from transformer_blocks.inspection.record.observer import observe
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.additive import AdditiveAttention


def _are_heads(name: str, heads: object, *_: object) -> None:
    if not isinstance(heads, Mapping):
        raise TypeError(
            f"{name} must map names of attention layers to collections of head indices, "
            f"got {heads!r}"
        )


Heads = Annotated[Mapping[str, Collection[int]], _are_heads]


@checked
@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Heads | None = None,
    modules: Collection[str] = (),
    residuals: Collection[str] = (),
    positions: bool = False,
    scale: bool = False,
) -> Iterator[None]:
    """Remove parts of a model inside the ``with`` block.

    Parts have the names of ``model.named_modules()``. After the ``with`` block the model is
    restored exactly, also if the block raises an exception. Several ``with`` blocks may ablate one
    model: each takes effect until it ends, for every thread that runs the model, and they may end
    in any order. Inside, a compiled model is executed eagerly. A model that is prepared for
    inference cannot be ablated; ablate the trained model, and do not prepare it inside the block.

    Args:
        model: Any module. Positions, the scale and residual connections can be removed from these
            blocks only; modules from any model, heads from those whose attention can be recorded.
        heads: A dictionary from names of attention layers to the indices, from 0, of the heads
            whose outputs are replaced by zeros before the output projection. The names are those
            that :func:`~transformer_blocks.record_attention` uses. In models that are not made of
            these blocks, heads are ablated in the thread of the ``with`` block only.
        modules: Names of modules whose output is replaced by zeros, for example a cross-attention
            or a feed-forward network. Of a tuple, the first item is replaced.
        residuals: Names of residual connections that no longer add their input to the sublayer's
            output.
        positions: Whether to remove the positional encodings.
        scale: Whether to remove the factor 1 / sqrt(d_k) of the attention scores.

    Raises:
        ValueError: If a module or head does not exist, if the model has no part of that kind (no
            positional encoding), or if the model is prepared for inference; at the end of the
            block, if the model was called and a part to be removed was not, or if no attention was
            observed in a module whose heads were to be ablated.
        TypeError: If a module or an argument is of another type.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> from transformer_blocks.inspection import ablate
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> expected = encoder(x)
        >>> with ablate(encoder, heads={"layers.0.self_attention": [0, 2]}):
        ...     torch.allclose(encoder(x), expected, atol=1e-5)
        False
        >>> torch.equal(encoder(x), expected)
        True
    """
    if any(getattr(part, "is_prepared_for_inference", False) for part in model.modules()):
        raise ValueError("model must not be prepared for inference; ablate the trained model")
    observation = None
    parts: dict[str, list[nn.Module]] = {}  # what is removed, and modules of which one is called
    called: set[nn.Module] = set()
    with ExitStack() as stack:
        others: dict[str, list[int]] = {}  # attention layers that are not made of these blocks
        for name, numbers in (heads or {}).items():
            layer = _find(model, name, nn.Module)
            if not isinstance(layer, MultiHeadAttention):
                others[name] = sorted(numbers)
                continue
            check_heads(name, numbers, layer.num_heads)
            parts[f"heads of {name!r}"] = [layer]
            mask = partial(_mask_heads, layer, sorted(numbers))
            stack.callback(layer.output_projection.register_forward_pre_hook(mask).remove)
        for name in modules:
            module = _find(model, name, nn.Module)
            parts[f"module {name!r}"] = [module]
            stack.callback(module.register_forward_hook(_replace_by_zeros).remove)
        for name in residuals:
            residual = _find(model, name, PreNorm, PostNorm)
            parts[f"residual connection {name!r}"] = [residual]
            stack.enter_context(changed(residual, "forward", _without_input))
        if positions:
            kinds = SinusoidalPositionalEncoding, LearnedPositionalEncoding
            parts["positional encodings"] = _find_all(model, kinds, "a positional encoding")
            for encoding in parts["positional encodings"]:
                stack.enter_context(changed(encoding, "forward", lambda _: lambda x, **_: x))
        if scale:
            layers = MultiHeadAttention, SingleHeadAttention
            parts["scale"] = _find_all(model, layers, "an attention layer")
            for layer in parts["scale"]:
                if any(isinstance(part, AdditiveAttention) for part in layer.modules()):
                    raise ValueError(
                        "scale must be False for additive attention, whose scores have no scale"
                    )
                unscaled = partial(AttentionWrapper, scale=1.0)
                stack.enter_context(changed(layer, "attention_function", unscaled))
        watched = {part: part for part in (model, *chain.from_iterable(parts.values()))}
        stack.enter_context(hooked(watched, lambda part, *_: called.add(part)))
        if others:
            observation = Observation(model, heads=others)
            stack.enter_context(observe(observation))
        yield
    for what, found in parts.items():
        if model in called and called.isdisjoint(found):
            raise ValueError(f"{what} could not be ablated: the model was called, and it was not")
    if observation is not None and observation.has_run:
        for name in others:
            if name not in observation.seen:
                raise ValueError(
                    f"heads of {name!r} could not be ablated: no attention was observed in it, but "
                    f"in {sorted(observation.seen)}"
                )
            if name in observation.undivided:
                raise ValueError(
                    f"heads of {name!r} cannot be told apart: its attention weights are not of "
                    "shape (B, H, L, S)"
                )


def _mask_heads(
    layer: MultiHeadAttention, heads: list[int], _: nn.Module, inputs: tuple[Tensor]
) -> Tensor:
    return mask_heads(layer.split_heads(*inputs), heads).transpose(1, 2).flatten(2)


def _replace_by_zeros(module: nn.Module, inputs: object, output: object) -> object:
    if isinstance(output, tuple) and isinstance(output[0], Tensor):
        return torch.zeros_like(output[0]), *output[1:]  # what follows is, for example, a cache
    if not isinstance(output, Tensor):
        raise TypeError(
            f"a module to ablate must return a tensor, got {type(output).__name__} from "
            f"{type(module).__name__}"
        )
    return torch.zeros_like(output)


def _without_input(forward: MethodType) -> MethodType:
    """Return the method of a residual connection that does not add the input."""

    def compute(
        residual: PreNorm | PostNorm, x: Tensor, sublayer: Callable[[Tensor], Tensor]
    ) -> Tensor:
        if isinstance(residual, PreNorm):
            return residual.dropout(sublayer(residual.norm(x)))
        return residual.norm(residual.dropout(sublayer(x)))

    return MethodType(compute, forward.__self__)


def _find(model: nn.Module, name: str, *kinds: type[nn.Module]) -> Any:
    """Return the module that has a name; raise unless it is of one of some classes."""
    modules = dict(model.named_modules())
    if name not in modules:
        raise ValueError(f"model must have a module of this name, got {name!r}")
    instance_of(*kinds)(repr(name), modules[name], None, {})
    return modules[name]


def _find_all(model: nn.Module, kinds: tuple[type[nn.Module], ...], what: str) -> list[Any]:
    """Return all modules of some classes; there must be at least one."""
    found = [module for module in model.modules() if isinstance(module, kinds)]
    if not found:
        raise ValueError(f"model must have {what}, got none in {type(model).__name__}")
    return found
