"""The loop of greedy decoding and sampling, and the functions that beam search shares with it."""

import math
from collections.abc import Callable, Collection, Sequence, Set, Sized
from typing import Annotated, Any

import torch
from torch import Tensor

from transformer_blocks._contracts import Count, Ids, Size, check_tensor, raise_type_error
from transformer_blocks.fast.top_k import top_k
from transformer_blocks.generation.protocol import Generation, NonFiniteLogitsError, StepModel


def _is_step_model(name: str, model: Any, *_: object) -> None:
    for method in ("step", "reorder"):
        if isinstance(model, type) or not callable(getattr(model, method, None)):
            has_generate = callable(getattr(model, "generate", None))
            hint = "; call its method generate instead" if has_generate else ""
            raise_type_error(name, f"an object with a method {method}", model, hint)


CheckedModel = Annotated[StepModel, _is_step_model]
Start = Annotated[Tensor, Ids("N")]
EndId = Count | Collection[Count]
MaxLength = Size | Sequence[Size]


def generate(
    model: StepModel,
    start: Tensor,
    choose: Callable[[Tensor, list[int], int], tuple[Tensor, Tensor]],
    limits: Sequence[int],
    ends: Set[int],
) -> list[Generation]:
    """Generate sequences token by token; a finished sequence is removed from the batch.

    Args:
        model: Model that computes the logits of the next token.
        start: First token of each sequence, of shape (N,).
        choose: Function that runs a step of the model and chooses the next tokens. It receives the
            newest tokens of the M unfinished sequences, of shape (M,), the indices of these
            sequences, and the number of the step, from 0. It returns the next tokens and their
            log-probabilities, both of shape (M,).
        limits: Maximum number of tokens of each sequence, including the end token.
        ends: Ids of the end tokens.

    Returns:
        N generated sequences, in the order of ``start``.
    """
    tokens = start
    unfinished = list(range(len(start)))  # the sequence in each row of the batch
    sequences: list[list[int]] = [[] for _ in unfinished]
    scores = [0.0 for _ in unfinished]
    finished = [False for _ in unfinished]
    for step in range(max(limits, default=0)):
        if not unfinished:
            break
        tokens, log_probabilities = choose(tokens, unfinished, step)
        chosen = log_probabilities.tolist()
        check_not_nan(chosen, step)
        for sequence, token, score in zip(unfinished, tokens.tolist(), chosen, strict=True):
            scores[sequence] += score
            if token in ends:
                finished[sequence] = True
            else:
                sequences[sequence].append(token)
        rows = [row for row, i in enumerate(unfinished) if not finished[i] and step + 1 < limits[i]]
        if len(rows) < len(unfinished):
            unfinished = [unfinished[row] for row in rows]
            tokens = tokens[rows]
            if unfinished:
                model.reorder(torch.tensor(rows, device="cpu"))
    return [Generation(*result) for result in zip(sequences, scores, finished, strict=True)]


def step_log_probabilities(model: StepModel, tokens: Tensor, ends: Set[int]) -> Tensor:
    """Run a step, and return the log-probabilities of the next tokens, of shape (N, V).

    ``ends`` are the ids of the end tokens.

    Raises:
        TypeError: If the model returned no tensor.
        ValueError: If the logits have another shape, or an end token is not in the vocabulary.
    """
    logits, rows = model.step(tokens), len(tokens)
    check_tensor("logits", logits)
    if logits.dim() != 2 or len(logits) != rows:
        raise ValueError(f"logits must have shape (N, V) = ({rows}, V), got {tuple(logits.shape)}")
    check_ends(ends, logits.shape[1])
    return to_log_probabilities(logits)


def best_extensions(log_probabilities: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Select the most probable extensions of the hypotheses of each sequence.

    An extension of a hypothesis by a token has the sum of the hypothesis's score and the token's
    log-probability as its score.

    Args:
        log_probabilities: Log-probabilities of the next tokens, of shape (B K, V).
        scores: Score of each hypothesis, of shape (B, K). The K hypotheses of a sequence are
            adjacent rows of ``log_probabilities``.
        count: Number of extensions to return; all K V if there are fewer.

    Returns:
        The scores of the best extensions, best first, and their indices among the K V extensions of
        their sequence, both of shape (B, count).
    """
    summed = log_probabilities + scores.to(log_probabilities).reshape(-1, 1)  # (B K, V)
    candidates = summed.view(scores.shape[0], -1)  # (B, K V)
    return top_k(candidates, min(count, candidates.shape[1]))


def limits_and_ends(
    start: Sized, max_length: int | Sequence[int], end_id: int | Collection[int] | None
) -> tuple[list[int], Set[int]]:
    """Return the maximum number of tokens of each sequence, and the ids of the end tokens.

    Raises:
        ValueError: If ``max_length`` is a list of another length than ``start``.
    """
    limits = [max_length] * len(start) if isinstance(max_length, int) else list(max_length)
    if len(limits) != len(start):
        raise ValueError(
            f"max_length must be one number, or one for each of the {len(start)} sequences, "
            f"got {len(limits)}"
        )
    return limits, frozenset([end_id] if isinstance(end_id, int) else end_id or ())


def check_ends(ends: Set[int], vocabulary_size: int) -> None:
    """Raise ``ValueError`` unless the end tokens are in the model's vocabulary."""
    if (end_id := max(ends, default=0)) >= vocabulary_size:
        rule = f"end_id must be below the vocabulary size {vocabulary_size}"
        raise ValueError(f"{rule}, got end_id={end_id}")


def check_not_nan(scores: Sequence[float], step: int) -> None:
    """Raise if a log-probability is NaN: no token can be chosen by comparing NaN.

    Raises:
        NonFiniteLogitsError: If one is NaN.
    """
    if any(map(math.isnan, scores)):
        raise NonFiniteLogitsError(f"logits must be finite, got NaN or infinity at step {step + 1}")


def to_log_probabilities(logits: Tensor) -> Tensor:
    """Compute the log-softmax of logits, of shape (N, V), in float32 or a wider dtype.

    A row that holds NaN or positive infinity becomes NaN; a logit of negative infinity is a
    probability of 0.
    """
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
