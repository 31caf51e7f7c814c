"""Step models: what a search asks of a model, and what it returns."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class StepModel(Protocol):
    """A model in the middle of writing N sentences.

    It remembers what was written so far; the search only hands it the newest token of each row.
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Take the newest token of every row and score what may follow.

        Args:
            tokens: Token ids. Shape (N,).

        Returns:
            Logits. Shape (N, V).
        """
        ...

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order; a row may be named twice, or not at all.

        Args:
            rows: Row numbers, int64, on the CPU. Shape (M,).
        """
        ...


@dataclass(frozen=True)
class Generation:
    """One written sentence.

    Attributes:
        tokens: The ids, without the start and end tokens.
        score: Sum of the tokens' log-probabilities, the end token's included.
        ended: Whether the model ended the sentence itself, within ``max_length``.
    """

    tokens: list[int]
    score: float
    ended: bool
