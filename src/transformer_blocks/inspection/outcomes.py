"""Checks of what surrounds a model: its loss, its decoding algorithm, a second implementation."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from transformer_blocks.inspection.checks import Report


def check_loss(
    function: Callable[[Sequence[tuple[Tensor, Tensor]]], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    padding_id: int,
    tolerance: float | None = None,
) -> Report:
    """Check that padding does not count in a loss, however a batch is divided.

    Args:
        function: Computes the loss of a whole batch, as the training program does, from a list of
            its parts: (logits, target) of each micro-batch or rank, of shapes (B_i, L, V) and
            (B_i, L).
        logits: Logits of the whole batch, of shape (B, L, V).
        target: Target ids, of shape (B, L), with padding.
        padding_id: Id of the padding token.
        tolerance: Largest relative difference that is ignored.
    """
    raise NotImplementedError


def check_search(search: Callable[..., Any]) -> Report:
    """Check a decoding algorithm, which is called as ``beam_search`` is.

    Args:
        search: ``search(model, start, beam_size=, end_id=, max_length=, length_penalty=)``, which
            returns for each start token its best sequence: a list of ids, a ``Generation``, or a
            list of them, best first.
    """
    raise NotImplementedError


def check_equivalence(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    tolerance: float | None = None,
) -> Report:
    """Compare the outputs and gradients of two models, and report the differences."""
    raise NotImplementedError
