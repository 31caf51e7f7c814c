"""Greedy search: always the likeliest next word."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_blocks.generation.protocol import Generation, StepModel
from transformer_blocks.generation.stepping import top_k, write


@torch.inference_mode()
def greedy_search(
    model: StepModel, start: Tensor, *, end_id: int | None, max_length: int | Sequence[int]
) -> list[Generation]:
    """Write sentences by taking the likeliest token again and again.

    A sentence that has ended leaves the batch, so the model works only for those still growing.

    Args:
        model: What scores the next token; at its beginning.
        start: First token of each sentence, usually "begin of sentence". Shape (N,).
        end_id: The token that ends a sentence; None if there is none.
        max_length: Largest number of tokens to generate, the end token included; or a list with
            one such number for each sentence.

    Returns:
        N sentences, in the order of ``start``.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong kind.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are not numbers.

    Example:
        >>> class CountDown:  # after n comes n - 1, whatever was before
        ...     def step(self, tokens):
        ...         return F.one_hot(tokens - 1, 10).float()
        ...
        ...     def reorder(self, rows): ...
        >>> start = torch.tensor([4, 9])
        >>> for sentence in greedy_search(CountDown(), start, end_id=0, max_length=6):
        ...     print(sentence.tokens, sentence.ended)
        [3, 2, 1] True
        [8, 7, 6, 5, 4, 3] False
    """

    def choose(log_probabilities: Tensor, alive: list[int], step: int) -> Tensor:
        return top_k(log_probabilities, 1)[1][:, 0]

    return write(model, start, choose, end_id=end_id, max_length=max_length)
