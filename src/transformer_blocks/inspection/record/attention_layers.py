"""Attention layers: record the weights, or the projections, of all of them by module name."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Function, checked
from transformer_blocks.inspection.changes import AttentionWrapper, changed, run_eagerly
from transformer_blocks.inspection.record.mode import active
from transformer_blocks.inspection.record.projections import KernelCall, Projections
from transformer_blocks.inspection.record.recording import Recording
from transformer_blocks.multi_head import offered_weights

VISIBLE = (
    "what can be seen is F.scaled_dot_product_attention, torch.nn.MultiheadAttention, and an "
    "explicit softmax that is multiplied by values; models of Hugging Face compute attention in "
    "one of these ways with attn_implementation='sdpa' or 'eager'"
)


@checked
@contextmanager
def record_attention(
    model: nn.Module,
    *,
    only: Function[Callable[[str], bool]] = lambda name: True,
    device: torch.device | str | None = None,
) -> Iterator[dict[str, list[Tensor]]]:
    """Record the attention weights of every forward pass inside the ``with`` block.

    It works for models that are made of these blocks, of torch's modules or of x-transformers, for
    those of Hugging Face, and for any other that computes attention with
    ``F.scaled_dot_product_attention``, ``torch.nn.MultiheadAttention``, or an explicit softmax
    whose result is multiplied by values. The model need not be changed, nor told to return weights.

    Recording changes no output. The recorded weights are those before dropout, so each row
    sums to one (to zero if it is fully masked, to less with an attention sink), and have no
    gradient. If an attention function or an explicit softmax computes weights, these are recorded.
    Otherwise they are computed a second time, from the same queries, keys and masks.

    An ``attention_function`` of your own should return its weights, or have a method
    ``attention_weights``. Otherwise nothing is recorded, and a warning names the layer: linear
    attention, for example, computes no weights.

    Inside the block, a model compiled by ``torch.compile`` is executed eagerly. Each call of a
    layer stores B x H x L x S numbers until the returned lists are released, also where a fused
    kernel would never store them. To save memory, select layers with ``only``, or move the weights
    to the CPU with ``device``. Modules of torch.nn that take their fast path, which happens without
    gradients only, are executed twice: once as usual for the output, and once for the weights.

    Blocks of this package are recorded in all threads; other models in the thread of the ``with``
    block.

    Args:
        model: Any module that computes attention.
        only: Function of a module's name that returns whether to record the layer; all layers by
            default.
        device: Device that stores the weights, for example ``"cpu"``; by default the device on
            which they are computed.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` is not callable.

    Warns:
        UserWarning: At the end of the block, if the model was executed, and no attention was
            seen at all, or none in a module whose class is named after attention or that calls
            another attention function, or if weights could not be computed. The warning names the
            modules. Also if a beam search executed the model: the rows are then hypotheses, which
            it reorders after each step.

    Yields:
        A dictionary from module names to lists that hold the attention weights of each call, in
        order, each of shape (B, H, L, S). It is shown as a line for each module, with the shape of
        the first call. The module is the innermost one in which the weights were
        multiplied by values. An attention without heads has H = 1. One that computes its heads in a
        loop has an entry for each head, of shape (B, 1, L, S), and one that computes them as a
        batch of their own, with ``torch.bmm``, has entries of shape (B * H, 1, L, S). Attention
        within blocks has more dimensions.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import build_encoder, record_attention
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> x = torch.randn(1, 5, 16)
        >>> with record_attention(encoder) as maps:
        ...     _ = encoder(x)
        >>> maps  # the shapes; maps["layers.0.self_attention"][0] is a tensor
        layers.0.self_attention: (1, 4, 5, 5)
        layers.1.self_attention: (1, 4, 5, 5)

        A layer of torch returns no weights, but they can be recorded:

        >>> layer = nn.TransformerEncoderLayer(16, 4, batch_first=True)
        >>> with record_attention(layer) as maps:
        ...     _ = layer(x)
        >>> maps["self_attn"][0].sum(dim=-1).allclose(torch.ones(1, 4, 5), atol=1e-6)
        True
    """
    recording = Recording(model, only=only, device=device)
    with watched(recording):
        yield recording.recorded
    for message in _describe_missing(model, recording):
        warnings.warn(message, stacklevel=3)


@checked
@contextmanager
def record_projections(
    model: nn.Module, *, only: Function[Callable[[str], bool]] = lambda name: True
) -> Iterator[dict[str, list[Projections]]]:
    """Record the queries, keys and values of every attention inside the ``with`` block.

    What is recorded enters the attention function: vectors after the projection, the split into
    heads, rotary positions, query-key normalisation and the cache. For scaled dot-product
    attention, ``softmax(query @ key.mT * scale)``, masked, is what
    :func:`~transformer_blocks.record_attention` records. Where the attention function is another,
    such as :class:`~transformer_blocks.ALiBi`, these are its inputs all the same.

    Models are those of :func:`~transformer_blocks.record_attention`, and no output changes. If
    attention is computed by ``torch.nn.MultiheadAttention`` or with an explicit softmax, its
    queries and keys are not known, and it is not listed; there is no warning.

    Args:
        model: Any module that computes attention.
        only: Function of a module's name that returns whether to record the layer; all layers by
            default.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` is not callable.

    Yields:
        A dictionary from module names to lists of :class:`Projections`, one of each call, in order.
        They are copies without gradients.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder, record_attention
        >>> from transformer_blocks.inspection import record_projections
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32)
        >>> with record_projections(encoder) as projections, record_attention(encoder) as maps:
        ...     _ = encoder(torch.randn(1, 5, 16))
        >>> query, key, value, scale = projections["layers.0.self_attention"][0]
        >>> weights = (query @ key.mT * scale).softmax(dim=-1)
        >>> torch.allclose(weights, maps["layers.0.self_attention"][0], atol=1e-6)
        True
    """
    recording = Recording(model, only=only, of_projections=True)
    with watched(recording):
        yield recording.recorded


@contextmanager
def watched(recording: Recording) -> Iterator[None]:
    """Let a recording see all attention inside the ``with`` block.

    The attention functions of the layers of this package are replaced by functions that report
    their calls, in all threads. All other attention is seen by a mode of this thread.
    """
    with ExitStack() as stack:
        stack.enter_context(run_eagerly())
        for name, module in recording.own.items():
            if recording.is_recorded(name) or name in recording.patches:
                watch = partial(_Watched, recording=recording, name=name)
                stack.enter_context(changed(module, "attention_function", watch))
        recording.note_scripts()
        stack.enter_context(active(recording))
        yield


class _Watched(AttentionWrapper):
    """An attention function whose calls are recorded, and whose outputs are patched."""

    def __init__(
        self, attention_function: Callable[..., Any], recording: Recording, name: str
    ) -> None:
        super().__init__(attention_function)
        self.recording, self.name = recording, name

    def __call__(self, *inputs: Tensor, **options: Any) -> Any:
        result = super().__call__(*inputs, **options)
        weights = partial(_find_weights, self.attention_function, result, inputs, options)
        query, key, value = inputs
        call = KernelCall(query, key, value, scale=options.get("scale"), enable_gqa=True)
        self.recording.see(self.name, weights, call.projections)
        output, *others = result if isinstance(result, tuple) else (result,)
        patched = self.recording.patch(self.name, output)
        return result if patched is output else (patched, *others) if others else patched


def _find_weights(
    function: Callable[..., Any], result: Any, inputs: tuple[Tensor, ...], options: dict[str, Any]
) -> Tensor:
    """Return the attention weights of a call of an attention function.

    Raises:
        ValueError: If the function does not return them and has no method that computes them, or
            if they have another shape than (B, H, L, S).
    """
    query, key, _ = inputs
    if isinstance(result, tuple) and result[1] is not None:
        weights: Tensor = result[1].detach()
    else:
        offered = offered_weights(function)
        if offered is None:
            raise ValueError(
                "its attention function returns none and has no method attention_weights"
            )
        weights = offered(query, key, **{k: options[k] for k in options if k != "dropout"})
    wanted = *query.shape[:-1], key.shape[-2]
    if weights.shape != wanted:
        raise ValueError(
            f"weights must be of shape (B, H, L, S) = {wanted}, got {tuple(weights.shape)}"
        )
    return weights


def _describe_missing(model: nn.Module, recording: Recording) -> Iterator[str]:
    """Describe all attention that was executed and could not be recorded."""

    def describe(names: Iterable[str]) -> str:
        kinds = {name: type(model.get_submodule(name)).__name__ for name in sorted(names)}
        return ", ".join(f"{name!r} ({kind})" for name, kind in kinds.items())

    if recording.has_hypotheses:
        yield (
            "the rows of the recorded weights are hypotheses of a beam search, in another order "
            "after each step; for those of a result, record one forward pass over it, and for word "
            "alignments call align"
        )
    for name, error in recording.failed.items():
        yield f"no attention weights could be computed in {describe([name])}: {error}"
    missing = recording.find_unseen()
    if missing:
        yield f"no attention weights could be recorded in {describe(missing)}: {VISIBLE}"
    is_explained = recording.failed or missing
    if recording.has_run and not (recording.recorded or is_explained):
        seen = sorted(recording.seen)
        reason = f"only selects none of {seen}" if seen else VISIBLE
        yield f"no attention weights were recorded in {type(model).__name__}: {reason}"
