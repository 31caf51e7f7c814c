"""A cache that is not reordered.

After each step of a beam search, the cache must follow the hypotheses that were kept. The search of
transformers reordered the cache if it had the name past_key_values. Mamba and other models with a
recurrent state keep it under other names. Their states stayed where they were, and each hypothesis
continued with the state of another one.

Greedy decoding was right, and no shape was wrong. A report of March 2024 says only that the text of
Mamba becomes worse with each further beam. The cause was found in June 2026, more than two years
later. For some models, the tests of beam search had passed without any reordering; once it was no
longer skipped, their caches turned out not to support it.

:theme: caches
:source: https://github.com/huggingface/transformers/issues/46612
:found by: cache
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
Caches = dict[str, Tensor | None]


class Broken(nn.Module):
    """A causal language model whose state is a decaying sum of the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(10, 16), nn.Linear(16, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of whole sequences (B, L)."""
        steps = Steps(self)
        return torch.stack([steps.step(column) for column in tokens.unbind(1)], dim=1)

    def reorder(self, caches: Caches, rows: Tensor) -> Caches:
        """Reorder the caches along the batch dimension."""
        # the fault: the cache of this model has another name
        cache = caches["past_key_values"]
        return caches if cache is None else {**caches, "past_key_values": cache[rows]}


class Steps:
    """Decodes step by step; its caches have names, and are None before the first step."""

    def __init__(self, model: Broken) -> None:
        self.model = model
        self.caches: Caches = {"past_key_values": None, "state": None}

    def step(self, tokens: Tensor) -> Tensor:
        """Add the newest tokens (N,) to the state, and compute the next logits (N, V)."""
        new, old = self.model.embedding(tokens), self.caches["state"]
        self.caches["state"] = state = new if old is None else 0.8 * old + new
        return self.model.output(state)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the caches along the batch dimension."""
        self.caches = self.model.reorder(self.caches, rows)


class Mended(Broken):
    """Reorders every cache, whatever its name."""

    def reorder(self, caches: Caches, rows: Tensor) -> Caches:
        """Reorder the caches along the batch dimension."""
        return {name: None if cache is None else cache[rows] for name, cache in caches.items()}


def examine(model: Broken) -> Soundness:
    """Compare the steps of a beam search with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
