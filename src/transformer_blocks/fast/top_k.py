"""Top-k: the largest numbers of each row, found block by block, in an order without ties.

Greedy decoding and beam search select the most probable of tens of thousands of tokens at every
step. On a CPU, ``torch.topk`` compares one number at a time, whereas ``torch.amax`` compares many
at once with vector instructions. The ``count`` largest numbers lie in the ``count`` blocks with the
largest maxima, so :func:`top_k` first finds those blocks by their maxima, and then runs
``torch.topk`` on these blocks alone.

Equals ``torch.topk(scores, count)``, except that equal numbers come in the order of their indices,
so that a search finds the same sequences in a batch of any size and in a compiled program.
"""

import math

import torch
from torch import Tensor

__all__ = ["top_k"]

BLOCK_SIZE = 128  # numbers whose maximum is taken at once
MIN_NUMBERS = 2**15  # a smaller tensor is given to torch.topk as a whole


def top_k(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest numbers of each row, as ``torch.topk(scores, count)`` does.

    The values are equal to those of ``torch.topk``. Of equal numbers, the first ones are chosen, in
    the order of their indices.

    Args:
        scores: Numbers to compare, of shape (N, V).
        count: Number of values to return per row; at most V.

    Returns:
        The values, largest first, and their indices in the row, both of shape (N, count).

    Example:
        >>> import torch
        >>> from transformer_blocks.fast.top_k import top_k
        >>> scores = torch.randn(4, 32_000)
        >>> values, indices = top_k(scores, 5)
        >>> expected = torch.topk(scores, 5)
        >>> torch.equal(values, expected.values) and torch.equal(indices, expected.indices)
        True
    """
    (rows, width), device = scores.shape, scores.device
    blocks = width // BLOCK_SIZE
    # The number of rows may be a symbol in compiled code, where operators have no overhead.
    is_small = not torch.compiler.is_compiling() and scores.numel() < MIN_NUMBERS
    if device.type != "cpu" or is_small or blocks < count:
        return _largest(scores, count)
    end = blocks * BLOCK_SIZE
    maxima = scores[:, :end].unflatten(1, (blocks, BLOCK_SIZE)).amax(-1)  # (N, blocks)
    chosen = _largest(maxima, count)[1].sort(dim=-1).values  # (N, count)
    within_block = torch.arange(BLOCK_SIZE, device=device)
    in_blocks = (chosen[..., None] * BLOCK_SIZE + within_block).flatten(1)
    remainder = torch.arange(end, width, device=device).expand(rows, -1)
    candidates = torch.cat((in_blocks, remainder), dim=1)
    values, places = _largest(scores.gather(1, candidates), count)
    return values, candidates.gather(1, places)


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row, the first of equal ones first.

    ``torch.topk`` returns equal numbers in any order, which is corrected where there are any.
    Compiled code cannot tell: it finds the numbers one by one.

    Args:
        scores: Numbers to compare, of shape (N, V).
        count: Number of values to return per row.

    Returns:
        The values, largest first, and their indices.
    """
    if count > 1 and not torch.compiler.is_compiling():
        values, indices = scores.topk(min(count + 1, scores.shape[1]))
        if (values[:, 1:] == values[:, :-1]).any():
            values, indices = scores.sort(dim=-1, descending=True, stable=True)
        return values[:, :count], indices[:, :count]
    lowest = torch.finfo(scores.dtype).min
    scores, found = scores.clamp_min(lowest), []  # negative infinity is left to those found already
    for _ in range(count):
        found.append(scores.max(-1, keepdim=True))
        scores = scores.scatter(-1, found[-1].indices, -math.inf)
    values, indices = (torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))
    return values.masked_fill(values == lowest, -math.inf), indices
