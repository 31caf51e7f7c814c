"""A causal mask aligned to the top left, with cached keys.

With a cache of keys and values, a decoding step has one query and many keys. The causal mask of
torch.nn.functional.scaled_dot_product_attention begins at the top left corner: the first query
attends to the first key only. The newest token, which is the only query, then attends to the oldest
key instead of to all of them.

There is no error, because the mask has the right shape, and the full forward pass in training is
right, because the diagonals from both corners of a square matrix are the same. The author of this
thread of January 2025 saw that each step computed the same vector, and asked whether he had
misunderstood the function. Several other libraries had the same fault.

:theme: masks
:source: https://github.com/pytorch/pytorch/issues/144858
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model with a cache of keys and values."""

    def attend_causally(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # the fault: the mask is aligned to the first key, not to the last
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.project(x)
        if cache:
            key, value = cache.append(key, value)
        return self.output(x + self.attend_causally(query, key, value))


class Mended(Broken):
    """The same, with the mask aligned to the bottom right."""

    def attend_causally(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length, keys = query.shape[1], key.shape[1]
        mask = torch.ones(length, keys, dtype=torch.bool, device=query.device)
        mask = mask.tril(diagonal=keys - length)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def examine(model: Broken) -> Soundness:
    """Compare the decoding steps with one full forward pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
