"""Checks of what pages and figures show: attention weights, tokens and masks."""

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from transformer_blocks._contracts import Rule, instance_of, raise_type_error


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
    name: str, weights: Tensor, queries: Tokens, keys: Tokens, mask: Tensor | None
) -> None:
    """Raise unless weights and mask have values, and one row or column for each token.

    Args:
        name: What error messages call the weights.
        weights: Attention weights, of shape (..., L, S).
        queries: The L tokens of the queries.
        keys: The S tokens of the keys.
        mask: Boolean mask of shape (L, S), or None.

    Raises:
        ValueError: If the shapes do not fit, or a tensor is empty or on the meta device.
    """
    size, tensors = (len(queries), len(keys)), {name: weights}
    if mask is not None:
        tensors["mask"] = mask
    for each, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if (shape if tensor is mask else shape[-2:]) != size:
            raise ValueError(f"{each} must have shape (L, S) = {size} tokens, got {shape}")
        if not tensor.numel():
            raise ValueError(f"{each} must not be empty, got shape {shape}")
        if tensor.is_meta:
            raise ValueError(f"{each} must have values, got a tensor on the meta device")
