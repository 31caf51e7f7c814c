"""Stepping: the loop of greedy search and of sampling, and what beam search shares with it."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer_blocks._checks import check_integer, check_size, check_tensor, refuse
from transformer_blocks.generation.protocol import Generation, StepModel

BLOCK = 128  # scores whose maximum is found at once
MANY = 2**15  # scores; fewer are searched one by one


def write(
    model: StepModel,
    start: Tensor,
    choose: Callable[[Tensor, list[int], int], Tensor],
    *,
    end_id: int | None,
    max_length: int | Sequence[int],
) -> list[Generation]:
    """Write one token after another; a sentence that has ended leaves the batch.

    Args:
        model: What scores the next token.
        start: First token of each sentence. Shape (N,).
        choose: Given log-probabilities (M, V), the numbers of the M sentences that are still
            growing, and the number of the step from 0, chooses their next tokens, (M,).
        end_id: The token that ends a sentence; None if there is none.
        max_length: Largest number of tokens to generate, the end token included; or a list with
            one such number for each sentence.

    Returns:
        N sentences, in the order of ``start``.
    """
    limits = check_search(model, start, end_id, max_length)
    tokens = start
    alive = list(range(len(start)))  # the sentence that each row writes
    written: list[list[int]] = [[] for _ in alive]
    scores = [0.0 for _ in alive]
    ended = [False for _ in alive]
    for step in range(max(limits, default=0)):
        if not alive:
            break
        log_probabilities = to_log_probabilities(model.step(tokens), len(alive))  # (M, V)
        check_end(end_id, log_probabilities.shape[1])
        tokens = choose(log_probabilities, alive, step)
        gains = log_probabilities.gather(1, tokens[:, None])[:, 0].tolist()
        check_numbers(gains, step)
        for sentence, token, gain in zip(alive, tokens.tolist(), gains, strict=True):
            scores[sentence] += gain
            if token == end_id:
                ended[sentence] = True
            else:
                written[sentence].append(token)
        growing = [not ended[sentence] and step + 1 < limits[sentence] for sentence in alive]
        rows = compact_rows(growing)
        if len(rows) < len(alive):
            alive = [alive[row] for row in rows]
            tokens = tokens[rows]
            if alive:
                model.reorder(torch.tensor(rows))
    return [Generation(*sentence) for sentence in zip(written, scores, ended, strict=True)]


def check_search(
    model: StepModel, start: Tensor, end_id: int | None, max_length: int | Sequence[int]
) -> list[int]:
    """Raise unless ``model`` can make steps, ``start`` holds ids, and the rest are whole numbers.

    Returns:
        The largest number of tokens of each sentence.

    Raises:
        TypeError: If one is of another kind.
        ValueError: If one has another size.
    """
    each = max_length if isinstance(max_length, Sequence) else [max_length]
    for length in each:
        check_size(max_length=length)
    if end_id is not None:
        check_integer(end_id=end_id)
        if end_id < 0:
            raise ValueError(f"end_id must be a token id or None, got end_id={end_id}")
    for method in ("step", "reorder"):
        if isinstance(model, type) or not callable(getattr(model, method, None)):
            refuse("model", f"an object with a method {method}", model)
    check_tensor("start", start)
    if start.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"start must hold int32 or int64 ids, got dtype={start.dtype}")
    if start.dim() != 1:
        raise ValueError(f"start must have shape (N,), got {tuple(start.shape)}")
    if not isinstance(max_length, Sequence):
        return [max_length] * len(start)
    if len(each) != len(start):
        raise ValueError(
            f"max_length must be one number, or one for each of the {len(start)} sentences, "
            f"got {len(each)}"
        )
    return list(each)


def check_end(end_id: int | None, vocabulary: int) -> None:
    """Raise unless the model can write the token that ends a sentence.

    Raises:
        ValueError: If its vocabulary is too small.
    """
    if end_id is not None and end_id >= vocabulary:
        raise ValueError(f"end_id must be below the vocabulary's {vocabulary}, got end_id={end_id}")


def check_numbers(scores: Sequence[float], step: int) -> None:
    """Raise if a score is not a number: an argmax of NaN is no word.

    Raises:
        ValueError: If one is NaN.
    """
    if any(map(math.isnan, scores)):
        raise ValueError(f"logits must be finite, got NaN or infinity at step {step + 1}")


def to_log_probabilities(logits: Tensor, rows: int) -> Tensor:
    """Normalise logits (N, V), in float32 or better; a row with NaN or infinity becomes NaN.

    Raises:
        TypeError: If the model gave no tensor.
        ValueError: If it gave another shape.
    """
    check_tensor("logits", logits)
    if logits.dim() != 2 or len(logits) != rows:
        raise ValueError(f"logits must have shape (N, V) = ({rows}, V), got {tuple(logits.shape)}")
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def top_k(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the largest scores of each row: what ``topk`` finds, several times faster.

    On a CPU, torch searches score by score, but computes the maximum of a block sixteen at a time.
    The ``count`` largest scores stand in the ``count`` blocks with the largest maxima.

    Args:
        scores: Shape (N, V).
        count: How many; with 1, the first of several that are equal.

    Returns:
        The scores, largest first, and their places in the row, both of shape (N, count).
    """

    def search(scores: Tensor) -> tuple[Tensor, Tensor]:
        best, places = scores.max(-1, keepdim=True) if count == 1 else scores.topk(count)
        return best, places

    (rows, width), device = scores.shape, scores.device
    blocks = width // BLOCK
    if device.type != "cpu" or scores.numel() < MANY or blocks < count:
        return search(scores)
    whole = blocks * BLOCK
    _, chosen = search(scores[:, :whole].unflatten(1, (blocks, BLOCK)).amax(-1))  # (N, count)
    inside = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=device)).flatten(1)
    rest = torch.arange(whole, width, device=device).expand(rows, -1)
    places = torch.cat((inside, rest), dim=1)
    best, found = search(scores.gather(1, places))
    return best, places.gather(1, found)


def compact_rows(growing: list[bool]) -> list[int]:
    """Name the rows that go on so that few move: the last take the places of those that leave.

    Example:
        >>> from transformer_blocks.generation.stepping import compact_rows
        >>> compact_rows([True, False, True, True])
        [0, 3, 2]
    """
    staying = sum(growing)
    movers = [row for row in range(staying, len(growing)) if growing[row]]
    return [row if growing[row] else movers.pop() for row in range(staying)]
