"""Unit 11: decoding with a cache. Chapters 12 and 16 of the book.

The searches do not know the model. It has two methods: ``step(tokens)`` takes the last token of
each of N hypotheses, an integer tensor of shape (N,), and returns the logits of their next tokens,
of shape (N, V). ``reorder(rows)`` takes an integer tensor: afterwards, hypothesis i continues what
hypothesis ``rows[i]`` was.
"""

from typing import Any

from torch import Tensor


class KeyValueCache:
    """The keys and values of earlier positions, so that a step computes only the newest."""

    def __init__(self) -> None:
        raise NotImplementedError

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions, each of shape (B, H, L, d_k).

        Returns:
            The keys and values of all positions so far, each of shape (B, H, S, d_k).
        """
        raise NotImplementedError

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may occur several times or never."""
        raise NotImplementedError


def greedy_search(model: Any, start: int, end_id: int, max_length: int) -> list[int]:
    """Take the most probable token at each step.

    Args:
        model: The model; one hypothesis.
        start: The first token that the model receives.
        end_id: The token that ends a sequence.
        max_length: Largest number of tokens to choose, the end token included.

    Returns:
        The tokens, without ``start`` and the end token.
    """
    raise NotImplementedError


def beam_search(
    model: Any,
    start: int,
    end_id: int,
    beam_size: int,
    max_length: int,
    length_penalty: float = 0.6,
) -> tuple[list[int], float]:
    """Search the hypothesis with the best score.

    The score is the log-probability / ((5 + length) / 6)^length_penalty. The length counts the end
    token. At each step all beams are extended by all tokens. Of these candidates, in order of their
    log-probabilities, those among the best ``beam_size`` that end are finished; the best
    ``beam_size`` that do not end are the new beams. After ``max_length`` steps the beams are
    finished as they are, without an end token.

    Args:
        model: The model. It begins with one hypothesis, and is reordered after each step.
        start: The first token that the model receives.
        end_id: The token that ends a sequence.
        beam_size: Number of beams.
        max_length: Number of steps. A search may stop earlier if no beam can become better than
            what is finished.
        length_penalty: The exponent; larger values favour longer sequences.

    Returns:
        The tokens of the best hypothesis, without ``start`` and the end token, and its score.
    """
    raise NotImplementedError
