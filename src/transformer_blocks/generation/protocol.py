"""The interface between a model and a decoding algorithm: what a step takes and returns."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class NonFiniteLogitsError(ValueError):
    """A model computed logits that are NaN or infinite, so that no token can be chosen."""


class StepModel(Protocol):
    """A model that decodes a batch of N sequences step by step.

    It holds the state of the prefixes decoded so far, such as a cache or the state of a recurrent
    network; a step receives the newest tokens only.
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest token of each sequence, and compute the logits of the next one.

        Args:
            tokens: Token ids, of shape (N,).

        Returns:
            Logits, of shape (N, V).
        """
        ...

    def reorder(self, rows: Tensor) -> None:
        """Reorder the state along the batch dimension: row i becomes a copy of row ``rows[i]``.

        Args:
            rows: Indices into the batch, int64, on the CPU, of shape (M,). An index may occur
                several times, or not at all.
        """
        ...


@dataclass(frozen=True)
class Generation:
    """A generated sequence.

    Attributes:
        tokens: The token ids, without the start token and the end token.
        score: Sum of the log-probabilities of the tokens, including that of the end token.
        finished: Whether the model generated the end token; if not, the sequence was cut at
            ``max_length``.
    """

    tokens: list[int]
    score: float
    finished: bool
