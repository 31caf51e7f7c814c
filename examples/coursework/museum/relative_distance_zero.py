"""Distances that are zero in every decoding step.

BERT can be used as a decoder, and with relative positions. In transformers, the distances between
queries and keys were computed from the number of queries alone. A full pass has as many queries as
keys. A cached step has one query, whose distance to each key became zero; broadcasting made the
shapes fit.

Training and evaluation, which use full passes, were right. In September 2022, a user compared the
attention weights of a small model with and without the cache: with absolute positions they were
equal, with relative ones they were not. The test that came with the correction makes this
comparison.

:theme: positions
:source: https://github.com/huggingface/transformers/issues/19045
:found by: cache
"""

import torch
from torch import Tensor, nn

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model of one layer, with a learned bias for each distance."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(12))

    def distances(self, queries: int, keys: int) -> Tensor:
        """Compute how many positions each key precedes each query; broadcastable to both."""
        # the fault: in a step, the only query is at the end of the keys
        return torch.arange(queries)[:, None] - torch.arange(queries)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        x = self.embedding(tokens)
        query, key, value = self.project(x)
        if cache:
            key, value = cache.append(key, value)
        distances = self.distances(query.shape[1], key.shape[1])
        scores = query @ key.mT / 4 + self.bias[distances.clamp(min=0)]
        weights = scores.masked_fill(distances < 0, -torch.inf).softmax(-1)
        return self.output(x + weights @ value)


class Mended(Broken):
    """Counts the distances from the last keys."""

    def distances(self, queries: int, keys: int) -> Tensor:
        """Compute how many positions each key precedes each query; broadcastable to both."""
        return torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
