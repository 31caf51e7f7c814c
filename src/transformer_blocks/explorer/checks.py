"""Checks of what pages and figures show: attention weights, tokens and masks."""

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from transformer_blocks._contracts import instance_of

Text = Annotated[str, instance_of(str)]
Tokens = Sequence[Text]


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
