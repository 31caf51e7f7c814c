"""Greedy search: always the likeliest next word."""

import torch
from torch import Tensor

from transformer_blocks._checks import check_size
from transformer_blocks.generation.protocol import Generation, StepModel


@torch.no_grad()
def greedy_search(
    model: StepModel, start: Tensor, *, end_id: int, max_length: int
) -> list[Generation]:
    """Write sentences by taking the likeliest token again and again.

    A sentence that has ended leaves the batch, so the model works only for those still growing.

    Args:
        model: What scores the next token; at its beginning.
        start: First token of each sentence, usually "begin of sentence". Shape (N,).
        end_id: The token that ends a sentence.
        max_length: Most tokens to write, the end token included.

    Returns:
        N sentences, in the order of ``start``.

    Raises:
        ValueError: If ``max_length`` is not positive, ``start`` has another shape, or the model's
            logits are not numbers.

    Example:
        >>> class CountDown:  # after n comes n - 1, whatever was before
        ...     def step(self, tokens):
        ...         return F.one_hot(tokens - 1, 10).float()
        ...
        ...     def select(self, rows): ...
        >>> [
        ...     g.tokens
        ...     for g in greedy_search(CountDown(), torch.tensor([4, 9]), end_id=0, max_length=6)
        ... ]
        [[3, 2, 1], [8, 7, 6, 5, 4, 3]]
    """
    check_size(max_length=max_length)
    if start.dim() != 1:
        raise ValueError(f"start must have shape (N,), got {tuple(start.shape)}")
    tokens = start
    alive = list(range(len(start)))  # the sentence that each row writes
    written: list[list[int]] = [[] for _ in alive]
    scores = [0.0 for _ in alive]
    ended = [False for _ in alive]
    for step in range(1, max_length + 1):
        if not alive:
            break
        log_probabilities = model.step(tokens).float().log_softmax(dim=-1)  # (N, V)
        best, tokens = log_probabilities.max(dim=-1)
        if not best.isfinite().all():
            raise ValueError(f"logits must be finite, got NaN or infinity at step {step}")
        for sentence, token, score in zip(alive, tokens.tolist(), best.tolist(), strict=True):
            scores[sentence] += score
            if token == end_id:
                ended[sentence] = True
            else:
                written[sentence].append(token)
        growing = (tokens != end_id).nonzero().flatten()
        if len(growing) < len(alive):
            alive = [alive[row] for row in growing.tolist()]
            tokens = tokens[growing]
            model.select(growing)
    return [Generation(*sentence) for sentence in zip(written, scores, ended, strict=True)]
