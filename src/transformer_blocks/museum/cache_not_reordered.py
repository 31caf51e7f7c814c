"""A cache that is not reordered.

After each step of a beam search, the cache must follow the hypotheses that were kept. The search of
transformers reordered the cache if it had the name past_key_values. Mamba and other models with a
recurrent state keep it under other names. Their states stayed where they were, and each hypothesis
continued with the state of another one.

Greedy decoding was right, and no shape was wrong. A report of March 2024 says only that the text of
Mamba becomes worse with each further beam. The cause was found in June 2026, more than two years
later. For some models, the tests of beam search had passed without any reordering; once it was no
longer skipped, their caches turned out not to support it.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_cache
from transformer_blocks.museum.exhibit import Exhibit, seeded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


class Recurrence(nn.Module):
    """A causal language model whose state is a decaying sum of the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(10, 16), nn.Linear(16, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of whole sequences (B, L)."""
        steps = BrokenSteps(self)
        return torch.stack([steps.step(column) for column in tokens.unbind(1)], dim=1)


class BrokenSteps:
    """Decodes step by step; its caches have names, and are None before the first step."""

    def __init__(self, model: Recurrence) -> None:
        self.model = model
        self.caches: dict[str, Tensor | None] = {"past_key_values": None, "state": None}

    def step(self, tokens: Tensor) -> Tensor:
        """Add the newest tokens (N,) to the state, and compute the next logits (N, V)."""
        new, old = self.model.embedding(tokens), self.caches["state"]
        self.caches["state"] = state = new if old is None else 0.8 * old + new
        return self.model.output(state)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        # the fault: the cache of this model has another name
        cache = self.caches["past_key_values"]
        if cache is not None:
            self.caches["past_key_values"] = cache[rows]


class MendedSteps(BrokenSteps):
    """Reorders every cache, whatever its name."""

    def reorder(self, rows: Tensor) -> None:
        """Reorder the caches along the batch dimension."""
        for name, cache in self.caches.items():
            if cache is not None:
                self.caches[name] = cache[rows]


def examine(new_steps: Callable[[], BrokenSteps]) -> Report:
    """Compare the steps of a beam search with a full pass."""
    return check_cache(new_steps().model, new_steps, TOKENS)


EXHIBIT = Exhibit(
    theme="caches",
    source="https://github.com/huggingface/transformers/issues/46612",
    found_by="cache",
    broken=seeded(lambda: partial(BrokenSteps, Recurrence())),
    mended=seeded(lambda: partial(MendedSteps, Recurrence())),
    examine=examine,
)
