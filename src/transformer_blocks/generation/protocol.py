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


class TopKStepModel(StepModel, Protocol):
    """A step model that can also select the most probable extensions, in the same computation.

    The method is optional: greedy decoding and beam search call it if a model has one.
    :class:`~transformer_blocks.generation.IncrementalDecoder` has it for the sake of compiled
    steps, in which output layer, log-softmax and top-k are one program.
    """

    def step_top_k(
        self, tokens: Tensor, scores: Tensor, count: int
    ) -> tuple[Tensor, Tensor, int] | None:
        """Append the newest token of each hypothesis, and find the most probable extensions.

        An extension of a hypothesis by a token has the sum of the hypothesis's score and the
        token's log-probability as its score.

        Args:
            tokens: Token ids, of shape (N,).
            scores: Score of each hypothesis, float64, on the CPU, of shape (B, K) with N = B K. The
                K hypotheses of a sequence are adjacent rows.
            count: Number of extensions to return for each sequence; all K V if there are fewer.

        Returns:
            The scores of the best extensions of each sequence, best first; their indices among its
            K V extensions, where V is the size of the vocabulary; and V. Or None if nothing was
            appended, so that :meth:`StepModel.step` has to be called instead.
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
