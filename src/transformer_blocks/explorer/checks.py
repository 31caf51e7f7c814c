"""Checks of what pages and figures show: attention weights, tokens and masks."""

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from transformer_blocks._contracts import (
    Rule,
    check_boolean,
    check_tensor,
    instance_of,
    raise_type_error,
)


def check_tokens(name: str, tokens: Sequence[str]) -> None:
    """Raise unless an argument is a sequence of strings, and not one string.

    Raises:
        TypeError: If it is not.

    Example:
        >>> from transformer_blocks.explorer.checks import check_tokens
        >>> check_tokens("keys", ["the", 5])
        Traceback (most recent call last):
        TypeError: keys[1] must be a string, got keys[1]=5
    """
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Sequence):
        raise_type_error(name, "a sequence of strings", tokens)
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise_type_error(f"{name}[{index}]", "a string", token)


Text = Annotated[str, instance_of(str)]
Tokens = Annotated[Sequence[str], Rule("a sequence of strings", check_tokens)]


def check_weights(
    name: str,
    weights: Tensor,
    axes: tuple[str, ...],
    queries: Sequence[str],
    keys: Sequence[str],
    mask: Tensor | None,
) -> None:
    """Raise unless weights and mask have values, and one row or column for each token.

    Args:
        name: What error messages call the weights.
        weights: Attention weights, of shape (*axes, L, S).
        axes: Names of the axes before those of the queries and keys.
        queries: The L tokens of the queries.
        keys: The S tokens of the keys.
        mask: Boolean mask of shape (L, S), or None.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the shapes do not fit, or a tensor is empty or on the meta device.
    """
    check_tensor(name, weights)
    size = len(queries), len(keys)
    if weights.dim() != len(axes) + 2 or tuple(weights.shape[-2:]) != size:
        raise ValueError(
            f"{name} must have shape ({', '.join((*axes, 'L', 'S'))}) with (L, S) = {size} tokens, "
            f"got {tuple(weights.shape)}"
        )
    if not weights.numel():
        raise ValueError(f"{name} must not be empty, got shape {tuple(weights.shape)}")
    if not weights.is_floating_point():
        raise TypeError(f"{name} must be floating-point numbers, got dtype={weights.dtype}")
    if mask is not None:
        check_boolean("mask", mask)
        if tuple(mask.shape) != size:
            raise ValueError(f"mask must have shape (L, S) = {size}, got {tuple(mask.shape)}")
    for each, tensor in ((name, weights), ("mask", mask)):
        if tensor is not None and tensor.is_meta:
            raise ValueError(f"{each} must have values, got a tensor on the meta device")
