"""Greedy decoding: the most probable token at each step."""

import torch
from torch import Tensor

from transformer_blocks._contracts import checked
from transformer_blocks.fast.top_k import top_k
from transformer_blocks.generation.protocol import Generation
from transformer_blocks.generation.stepping import (
    CheckedModel,
    EndId,
    MaxLength,
    Start,
    generate,
    limits_and_ends,
    step_log_probabilities,
)


@checked
@torch.inference_mode()
def greedy_search(
    model: CheckedModel, start: Start, *, end_id: EndId | None, max_length: MaxLength
) -> list[Generation]:
    """Generate sequences by taking the most probable token at each step.

    A finished sequence is removed from the batch, so that no step is computed for it.

    Args:
        model: Model that computes the logits of the next token. Its state must hold everything that
            precedes ``start``: the source or the prompt.
        start: First token of each sequence, usually the begin-of-sequence token, of shape (N,).
        end_id: Id of the end token, which finishes a sequence; or several such ids; None if there
            is none.
        max_length: Maximum number of tokens to generate, including the end token; or a list with
            one such number for each sequence.

    Returns:
        N generated sequences, in the order of ``start``.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong type.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are NaN or infinite.

    Example:
        >>> import torch
        >>> import torch.nn.functional as F
        >>> from transformer_blocks import greedy_search
        >>> class CountDown:  # n is followed by n - 1, whatever precedes it
        ...     def step(self, tokens):
        ...         return F.one_hot(tokens - 1, 10).float()
        ...
        ...     def reorder(self, rows): ...
        >>> start = torch.tensor([4, 9])
        >>> for sequence in greedy_search(CountDown(), start, end_id=0, max_length=6):
        ...     print(sequence.tokens, sequence.finished)
        [3, 2, 1] True
        [8, 7, 6, 5, 4, 3] False
    """
    limits, ends = limits_and_ends(start, max_length, end_id)

    def choose(tokens: Tensor, unfinished: list[int], step: int) -> tuple[Tensor, Tensor]:
        best, next_tokens = top_k(step_log_probabilities(model, tokens, ends), 1)
        return next_tokens[:, 0], best[:, 0]

    return generate(model, start, choose, limits, ends)
