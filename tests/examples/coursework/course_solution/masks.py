"""Unit 4, solved."""

import torch
from torch import Tensor


def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
    key_length = query_length if key_length is None else key_length
    mask = torch.ones(query_length, key_length, dtype=torch.bool)
    return mask.triu(key_length - query_length + 1)


def padding_mask(tokens: Tensor, padding_id: int = 0) -> Tensor:
    return (tokens == padding_id)[:, None, None, :]
