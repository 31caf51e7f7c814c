"""Patching: replace the outputs of parts of a model, and measure what changes.

What does a part of a model contribute? :func:`patched` replaces its output inside a ``with`` block:
by the values of another input, to find the parts that carry a piece of information (activation
patching, https://arxiv.org/abs/2202.05262, section 2), or by a mean. :func:`ablate` replaces it by
zeros; attention heads were ablated like this in "Are Sixteen Heads Really Better than One?" (Michel
et al. 2019, https://arxiv.org/abs/1905.10650).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from types import MethodType
from typing import Any

from torch import Tensor, nn

from transformer_blocks._contracts import checked, instance_of
from transformer_blocks.embedding import LearnedPositionalEncoding, SinusoidalPositionalEncoding
from transformer_blocks.inspection.changes import AttentionWrapper, changed, hooked
from transformer_blocks.inspection.record.attention_layers import watched
from transformer_blocks.inspection.record.recording import Patch, Recording, apply_patch
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.additive import AdditiveAttention


@checked
@contextmanager
def patched(
    model: nn.Module,
    values: Mapping[str, Patch | Mapping[int, Patch]],
    *,
    positions: Collection[int] | None = None,
) -> Iterator[None]:
    """Replace the outputs of modules and of heads inside the ``with`` block.

    After the ``with`` block the model is restored exactly, also if the block raises an exception.
    Several ``with`` blocks may patch one model: each takes effect until it ends, for every thread
    that runs the model, and they may end in any order. Inside, a compiled model is executed
    eagerly. A model that is prepared for inference cannot be patched; patch the trained model, and
    do not prepare it inside the block.

    Args:
        model: Any module. Heads can be patched where attention can be recorded.
        values: What replaces outputs, by the names of ``model.named_modules()``: a tensor that
            broadcasts to the output's shape, a number, or a function of the output. Of an output
            that is a tuple, the first item is replaced. To replace heads of an attention layer, a
            dictionary from head indices, from 0, to what replaces their outputs before the output
            projection, of shape (B, L, d_k). A head's output is the product of its attention
            weights and values (:func:`~transformer_blocks.record_attention`,
            :func:`record_projections`). In models that are not made of these blocks, heads are
            patched in the thread of the ``with`` block only.
        positions: The positions, of the last dimension but one, at which outputs are replaced. The
            default is all.

    Raises:
        ValueError: If a module does not exist, or if the model is prepared for inference; at the
            end of the block, if the model was called and a part to be patched was not, or if no
            attention was seen in a module whose heads were to be patched.
        TypeError: If an argument, or the output of a module, is of another type.
        IndexError: Where the model is called, if a head or position does not exist.
        RuntimeError: Where the model is called, if a tensor does not fit.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> from transformer_blocks.inspection import patched, record_values
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> clean, other = torch.randn(2, 1, 5, 16)
        >>> with record_values(encoder) as values:
        ...     expected = encoder(clean)
        >>> with patched(encoder, {"layers.0": values["layers.0"][0]}):
        ...     torch.equal(encoder(other), expected)  # all that follows is computed from it
        True
        >>> with patched(encoder, {"layers.0.self_attention": {2: 0.0}}, positions=[3]):
        ...     y = encoder(other)  # without head 2, at the fourth position
    """
    if any(getattr(part, "is_prepared_for_inference", False) for part in model.modules()):
        raise ValueError("model must not be prepared for inference; patch the trained model")
    heads = {name: each for name, each in values.items() if isinstance(each, Mapping)}
    recording = Recording(model, patches=heads, positions=positions)
    parts: dict[str, list[nn.Module]] = {}  # what is replaced, and modules of which one is called
    for name in heads:
        layer = _find(model, name, nn.Module)
        if name in recording.own:
            parts[f"heads of {name!r}"] = [layer]
    modules = {name: _find(model, name, nn.Module) for name in values.keys() - heads.keys()}
    parts |= {f"module {name!r}": [module] for name, module in modules.items()}

    def replace(name: str, module: nn.Module, inputs: object, output: object) -> object:
        first, *others = output if isinstance(output, tuple) else (output,)
        if not isinstance(first, Tensor):
            raise TypeError(
                f"a module to patch must return a tensor, got {type(output).__name__} from "
                f"{type(module).__name__}"
            )
        patch: Any = values[name]
        new = apply_patch(first, patch, positions)
        return (new, *others) if isinstance(output, tuple) else new  # others: such as a cache

    with ExitStack() as stack:
        if heads:
            stack.enter_context(watched(recording))
        stack.enter_context(hooked(modules, after=replace))
        stack.enter_context(_called(model, parts))
        yield
    for name in heads if recording.has_run else ():
        if name not in recording.seen:
            raise ValueError(
                f"heads of {name!r} could not be patched: no attention was seen in it, but in "
                f"{sorted(recording.seen)}"
            )
        if name in recording.undivided:
            raise ValueError(
                f"heads of {name!r} cannot be told apart: its attention weights are not of shape "
                "(B, H, L, S)"
            )


@contextmanager
def _called(model: nn.Module, parts: Mapping[str, list[nn.Module]]) -> Iterator[None]:
    """Raise at the end of the ``with`` block if the model was called, and a part was not."""
    called: set[nn.Module] = set()
    every = {part: part for part in (model, *chain(*parts.values()))}
    with hooked(every, lambda part, *_: called.add(part)):
        yield
    for what, found in parts.items():
        if model in called and called.isdisjoint(found):
            raise ValueError(f"{what} could not be patched: the model was called, and it was not")


@checked
@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Mapping[str, Collection[int]] | None = None,
    modules: Collection[str] = (),
    residuals: Collection[str] = (),
    positions: bool = False,
    scale: bool = False,
) -> Iterator[None]:
    """Remove parts of a model inside the ``with`` block, to measure what they contribute.

    Heads and modules are :func:`patched` with zeros, under the same conditions. Of models that are
    made of these blocks, residual connections, positions and the scale can be removed too.

    Args:
        model: Any module.
        heads: A dictionary from names of attention layers to the indices, from 0, of the heads
            whose outputs are replaced by zeros before the output projection.
        modules: Names of modules whose output is replaced by zeros, for example a cross-attention
            or a feed-forward network.
        residuals: Names of residual connections that no longer add their input to the sublayer's
            output.
        positions: Whether to remove the positional encodings.
        scale: Whether to remove the factor 1 / sqrt(d_k) of the attention scores.

    Raises:
        ValueError: As :func:`patched` does, and if the model has no part of that kind, such as a
            positional encoding.
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
    changes: list[tuple[str, list[nn.Module], str, Callable[[Any], Any]]] = [
        (f"residual connection {name!r}", [part], "forward", _without_input)
        for name in residuals
        for part in [_find(model, name, PreNorm, PostNorm)]
    ]
    if positions:
        encodings = SinusoidalPositionalEncoding, LearnedPositionalEncoding
        found = _find_all(model, encodings, "a positional encoding")
        changes.append(("positional encodings", found, "forward", lambda _: lambda x, **_: x))
    if scale:
        found = _find_all(model, (MultiHeadAttention, SingleHeadAttention), "an attention layer")
        if any(isinstance(part, AdditiveAttention) for layer in found for part in layer.modules()):
            raise ValueError(
                "scale must be False for additive attention, whose scores have no scale"
            )
        unscaled = partial(AttentionWrapper, scale=1.0)
        changes.append(("scale", found, "attention_function", unscaled))
    with ExitStack() as stack:
        zeros = {name: dict.fromkeys(numbers, 0.0) for name, numbers in (heads or {}).items()}
        for values in (zeros, dict.fromkeys(modules, 0.0)):
            stack.enter_context(patched(model, values))
        for _, found, name, change in changes:
            for part in found:
                stack.enter_context(changed(part, name, change))
        stack.enter_context(_called(model, {what: found for what, found, *_ in changes}))
        yield


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


def _find_all(model: nn.Module, kinds: tuple[type[nn.Module], ...], what: str) -> list[nn.Module]:
    """Return all modules of some classes; there must be at least one."""
    found = [module for module in model.modules() if isinstance(module, kinds)]
    if not found:
        raise ValueError(f"model must have {what}, got none in {type(model).__name__}")
    return found
