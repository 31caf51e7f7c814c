"""Exploring: from a model and its inputs to the page in one call."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import check, checked, raise_type_error
from transformer_blocks.explorer.arithmetic import Arithmetic, is_causal
from transformer_blocks.explorer.checks import Text, Tokens
from transformer_blocks.explorer.page import AttentionMaps, Explorer
from transformer_blocks.inspection import Projections, record_attention, record_projections

AXES = {
    "Encoder self-attention": ("source", "source"),
    "Decoder self-attention": ("target (input of the decoder)", "target (input of the decoder)"),
    "Cross-attention": ("target (input of the decoder)", "source"),
}
"""Names of the axes of queries and keys in encoder-decoder models."""


class _Stack(NamedTuple):
    """What layers that are shown together have in common."""

    pattern: str  # their names, with an asterisk for each number
    call: int
    is_causal: bool
    shape: torch.Size  # (H, L, S)


def _are_inputs(name: str, inputs: object, *_: object) -> None:
    if isinstance(inputs, str) or not isinstance(inputs, Tensor | Sequence | Mapping):
        raise_type_error(name, "a tensor, a sequence or a mapping of arguments", inputs)


def _are_tokens(name: str, tokens: Any, *_: object) -> None:
    for each in _sequences(tokens):
        check(Tokens, **{name: each})


Inputs = Annotated[Tensor | Sequence[object] | Mapping[str, object], _are_inputs]
ShownTokens = Annotated[Sequence[str] | tuple[Sequence[str], Sequence[str]], _are_tokens]


@checked
@torch.no_grad()
def explore(
    model: nn.Module,
    inputs: Inputs,
    *,
    tokens: ShownTokens | None = None,
    sequence: int = 0,
    title: Text = "Attention",
) -> Explorer:
    """Run a model once, and show all its attention weights on one page.

    The model is made of these blocks, of torch's or x-transformers' modules, or is a model of
    Hugging Face; see :func:`~transformer_blocks.record_attention`. It is run in evaluation mode,
    and is afterwards as before. Layers whose names differ in a number only are shown together.
    Where the weights of all layers and heads are zero, the page shows a masked position. If the
    weights are those of scaled dot-product attention, and the model computes them with a function
    that can be observed (:func:`~transformer_blocks.inspection.record_projections`), the page also
    holds the queries, keys and values from which they are computed, unless these are too many.
    The page counts layers, heads, positions and repeated calls of a layer from 0, as the indices of
    recorded weights.

    Args:
        model: The model.
        inputs: What the model is called with: a tensor, a sequence of positional arguments, or a
            mapping of keyword arguments, such as the output of a Hugging Face tokenizer.
        tokens: The tokens of the sequence to show, padding included, as strings; for an
            encoder-decoder model, a tuple of the source's tokens and of the decoder's input tokens.
            By default, positions are numbered from 0.
        sequence: Index of the sequence to show in the batch.
        title: Title of the page.

    Returns:
        The page. Save it with ``.save(path)``, or leave it as the last line of a notebook's cell.

    Raises:
        ValueError: If no attention weights could be recorded, if they have no values (on the meta
            device), if the number of tokens differs from the model's number of positions, or if the
            batch has no such sequence.
        TypeError: If an argument is of another type.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.explorer import explore
        >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, batch_first=True), 2)
        >>> page = explore(encoder, torch.randn(1, 3, 16), tokens=["the", "cat", "sleeps"])
        >>> page.maps
        [AttentionMaps('Self-attention', weights of shape (2, 4, 3, 3))]
    """
    stacks = _record(model, inputs, sequence)
    if not stacks:
        raise ValueError(f"model must compute attention, got none in {type(model).__name__}")
    maps: list[AttentionMaps] = []
    for stack, layers in stacks.items():
        queries, keys, kind = _find_tokens(tokens, stack)
        name = kind if stack.call == 0 else f"{kind}, call {stack.call}"
        if any(each.name == name for each in maps):
            name = f"{name} in {stack.pattern}"
        weights = torch.stack([each for each, _ in layers])  # (layers, H, L, S)
        is_zero = (weights == 0).all(dim=0).all(dim=0)
        mask = is_zero if is_zero.any() else None
        known = [each for _, each in layers if each is not None]
        arithmetic = Arithmetic.of(known, weights, mask, sequence=sequence)
        axes = AXES.get(kind, ("query", "key"))
        maps.append(AttentionMaps(name, weights, queries, keys, mask, False, arithmetic, *axes))
    return Explorer(maps, title, model=type(model).__name__)


def _record(
    model: nn.Module, inputs: Any, sequence: int
) -> dict[_Stack, list[tuple[Tensor, Projections | None]]]:
    """Run a model in evaluation mode, and group its layers into stacks.

    Returns:
        For each stack, the weights of each layer, of shape (H, L, S), with the queries, keys and
        values from which they were computed, where these were recorded.

    Raises:
        ValueError: If weights have no values, or the batch has no such sequence.
    """
    with ExitStack() as context:
        for module in model.modules():
            context.callback(setattr, module, "training", module.training)
        model.eval()
        projections = context.enter_context(record_projections(model))
        recorded = context.enter_context(record_attention(model))
        if isinstance(inputs, Mapping):
            model(**inputs)
        else:
            model(*([inputs] if isinstance(inputs, Tensor) else inputs))
    stacks: dict[_Stack, list[tuple[Tensor, Projections | None]]] = {}
    for name, calls in recorded.items():
        observed = projections.get(name, [])
        are_all = len(observed) == len(calls)  # and none has, for example, an explicit softmax
        pattern = re.sub(r"\d+", "*", name)
        for number, batch in enumerate(calls):
            if batch.is_meta:
                raise ValueError("model must compute values, got weights on the meta device")
            if not 0 <= sequence < len(batch):
                raise ValueError(
                    f"sequence must be in 0..{len(batch) - 1}, got sequence={sequence}"
                )
            weights = batch[sequence].float().cpu()  # (H, L, S)
            stack = _Stack(pattern, number, is_causal(weights), weights.shape)
            stacks.setdefault(stack, []).append((weights, observed[number] if are_all else None))
    return stacks


def _sequences(tokens: Any) -> tuple[Any, ...]:
    """Return the source's and the decoder's tokens, or the tokens of one sequence alone."""
    both = isinstance(tokens, tuple) and len(tokens) == 2
    both = both and all(isinstance(x, Sequence) and not isinstance(x, str) for x in tokens)
    return tokens if both else (tokens,)


def _find_tokens(tokens: Any, stack: _Stack) -> tuple[Tokens, Tokens | None, str]:
    """Find the tokens of the queries and of the keys, and name the attention.

    Returns:
        The queries' tokens, the keys' tokens (None for self-attention), and the name.
    """
    length, key_length = stack.shape[1:]
    choices: list[tuple[Tokens, Tokens | None, str]]
    if tokens is None:
        numbers = [str(position) for position in range(max(length, key_length))]
        choices = [
            (numbers, None, "Self-attention"),
            (numbers[:length], numbers[:key_length], "Attention"),
        ]
    elif len(_sequences(tokens)) == 1:
        choices = [(tokens, None, "Self-attention")]
    elif "decoder" in stack.pattern.lower():
        source, target = tokens
        choices = [(target, source, "Cross-attention"), (target, None, "Decoder self-attention")]
        if stack.is_causal:
            choices.reverse()
    else:
        choices = [(tokens[0], None, "Encoder self-attention")]
    for queries, keys, kind in choices:
        if (len(queries), len(queries if keys is None else keys)) == (length, key_length):
            return queries, keys, kind
    lengths = " and ".join(str(len(each)) for each in _sequences(tokens))
    raise ValueError(
        f"tokens must be those of all positions, padding included: {stack.pattern or 'model'} has "
        f"(L, S) = {(length, key_length)}, got {lengths} tokens"
    )
