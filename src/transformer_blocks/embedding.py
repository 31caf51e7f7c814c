r"""Embeddings: from word numbers to vectors that know their place.

A token id is looked up in a table of learned vectors (section 3.4). Attention treats its keys as a
set, so without more a sentence would be a bag of words; each position therefore adds a vector of
its own (section 3.5). The paper's are waves of different lengths, fast ones for near, slow ones for
far:

.. math::

   PE_{(pos, 2i)} &= \sin(pos / 10000^{2i/d_{model}}) \\
   PE_{(pos, 2i+1)} &= \cos(pos / 10000^{2i/d_{model}})

Moving by k positions turns each (sine, cosine) pair by a fixed angle, the same wherever one starts:
"three words back" is a linear map that a head can learn.

Next chapter: :mod:`transformer_blocks.masks`, what must not be seen.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import (
    check_device,
    check_flag,
    check_integer,
    check_size,
    check_tensor,
    check_vectors,
)


class TokenEmbedding(nn.Module):
    r"""Look up a vector for each token id, times :math:`\sqrt{d_{model}}` (section 3.4).

    The vectors start with a standard deviation of :math:`1/\sqrt{d_{model}}`, so that the scaled
    ones are as large as the positions that are added to them. That also suits an output projection
    that shares the table (section 3.4: "tied"): ``projection.weight = embedding.weight``.

    Args:
        vocabulary_size: V, the number of different ids.
        d_model: Width of a vector.
        check_ids: Whether to search the ids for unknown ones first. On a CPU they are noticed
            anyway; on CUDA they end the program, and the search waits for the device.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=100, d_model=16)
        >>> projection = nn.Linear(16, 100, bias=False)
        >>> projection.weight = embedding.weight  # one table reads words and writes them
        >>> words = torch.tensor([[3, 14, 15]])
        >>> torch.equal(projection(embedding(words)).argmax(-1), words)
        True
    """

    def __init__(self, vocabulary_size: int, d_model: int, *, check_ids: bool = False) -> None:
        check_size(vocabulary_size=vocabulary_size, d_model=d_model)
        check_flag(check_ids=check_ids)
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.check_ids = check_ids
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up every token.

        Args:
            tokens: Token ids, int32 or int64. Shape (B, L).

        Returns:
            Vectors. Shape (B, L, d_model).

        Raises:
            TypeError: If ``tokens`` is of another dtype.
            ValueError: If its shape is not (B, L), or it is on another device than the table.
            IndexError: If an id is not in the table, on a CPU or with ``check_ids``.
        """
        check_tensor("tokens", tokens)
        if tokens.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"tokens must be int32 or int64 ids, got dtype={tokens.dtype}")
        if tokens.dim() != 2:
            raise ValueError(f"tokens must have shape (B, L), got {tuple(tokens.shape)}")
        check_device("tokens", tokens, self.weight, self)
        if self.check_ids:
            self._check_ids(tokens)
        try:
            vectors = F.embedding(tokens, self.weight)
        except IndexError:
            self._check_ids(tokens)  # and say which
            raise
        return vectors * math.sqrt(self.weight.shape[1])

    def _check_ids(self, tokens: Tensor) -> None:
        vocabulary_size = self.weight.shape[0]
        if tokens.numel() and not (
            tokens.min().item() >= 0 and tokens.max().item() < vocabulary_size
        ):
            unknown = (tokens < 0) | (tokens >= vocabulary_size)
            sentence, position = unknown.nonzero()[0].tolist()
            raise IndexError(
                f"token ids must be in 0..{vocabulary_size - 1} (vocabulary_size="
                f"{vocabulary_size}), got id {tokens[sentence, position].item()} "
                f"at position {position} of sentence {sentence}"
            )

    def extra_repr(self) -> str:
        """Show the table's size when the module is printed."""
        vocabulary_size, d_model = self.weight.shape
        return f"vocabulary_size={vocabulary_size}, d_model={d_model}"


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """Compute the paper's waves, in float64: a row per position, sines and cosines in turn.

    Args:
        length: Number of positions.
        d_model: Width of a row; with an odd one the last sine has no cosine.

    Returns:
        Numbers between -1 and 1, on the CPU. Shape (length, d_model).

    Raises:
        ValueError: If a size is not positive.
    """
    check_size(length=length, d_model=d_model)
    position = torch.arange(length, dtype=torch.float64, device="cpu")
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")  # 2i
    angle = position[:, None] / 10000.0 ** (even / d_model)  # (length, ceil(d_model / 2))
    waves = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    return waves[:, :d_model]


class SinusoidalPositionalEncoding(nn.Module):
    """Add the paper's waves, so that every vector knows its position. Nothing is learned.

    The waves are kept in float32 or better whatever the model's dtype is (bfloat16 cannot even
    count to 257) and rounded once, when they are added. They are never on the meta device: no state
    dict could bring them back from there.

    Args:
        d_model: Width of the vectors; may be odd.
        max_length: Number of positions to prepare.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> positions = SinusoidalPositionalEncoding(d_model=16)
        >>> x = torch.zeros(1, 5, 16)
        >>> whole = positions(x)
        >>> last = positions(x[:, 4:], offset=4)  # the newest word alone, as in decoding
        >>> torch.equal(whole[:, 4:], last)
        True
    """

    table: Tensor

    def __init__(self, d_model: int, *, max_length: int = 5000) -> None:
        check_size(d_model=d_model, max_length=max_length)
        super().__init__()
        self.d_model = d_model
        self.max_length = max_length
        table = sinusoidal_table(max_length, d_model).float()
        device = torch.get_default_device()
        table = table if device.type == "meta" else table.to(device)
        self.register_buffer("table", table, persistent=False)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "SinusoidalPositionalEncoding":
        """Compute the constants anew after a move: rounding or ``to_empty`` would lose them."""
        before = self.table.device
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = before if self.table.is_meta else self.table.device
        dtype = torch.promote_types(self.table.dtype, torch.float32)
        table = sinusoidal_table(self.max_length, self.d_model)
        self.table = table.to(dtype).to(device)  # some devices have no float64
        return self

    def forward(self, x: Tensor, *, offset: int = 0) -> Tensor:
        """Add a wave vector to each position.

        Args:
            x: Shape (B, L, d_model).
            offset: The position of the first vector; above 0 when the earlier ones are done.

        Returns:
            ``x`` plus positions. Shape (B, L, d_model).

        Raises:
            TypeError: If ``x`` is no tensor of real numbers, or ``offset`` no whole number.
            ValueError: If the shape does not fit, or the positions pass ``max_length``.
        """
        check_vectors("x", x, self.d_model)
        if not x.is_meta:  # which has no values to be on another device than
            check_device("x", x, self.table, self)
        return x + _positions(self.table, x.shape[1], offset).to(x.device, x.dtype)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"d_model={self.d_model}, max_length={self.max_length}"


class LearnedPositionalEncoding(nn.Module):
    """Add a learned vector to each position: what BERT and GPT-2 do (row E of the paper's table 3).

    Args:
        d_model: Width of the vectors.
        max_length: Number of positions; later ones do not exist.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> positions = LearnedPositionalEncoding(d_model=16, max_length=8)
        >>> positions(torch.zeros(1, 9, 16))
        Traceback (most recent call last):
        ValueError: positions must stay below max_length, got offset=0 + length=9 > max_length=8
    """

    def __init__(self, d_model: int, *, max_length: int) -> None:
        check_size(d_model=d_model, max_length=max_length)
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, *, offset: int = 0) -> Tensor:
        """Add a learned vector to each position.

        Args:
            x: Shape (B, L, d_model).
            offset: The position of the first vector.

        Returns:
            ``x`` plus positions. Shape (B, L, d_model).

        Raises:
            TypeError: If ``x`` is no tensor of real numbers, or ``offset`` no whole number.
            ValueError: If the shape does not fit, or the positions pass ``max_length``.
        """
        check_vectors("x", x, self.weight.shape[1], self)
        return x + _positions(self.weight, x.shape[1], offset)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        max_length, d_model = self.weight.shape
        return f"d_model={d_model}, max_length={max_length}"


def _positions(table: Tensor, length: int, offset: int) -> Tensor:
    """Cut the rows offset..offset+length-1 out of a table of positions."""
    check_integer(offset=offset)
    max_length = table.shape[0]
    if offset < 0:
        raise ValueError(f"offset must not be negative, got offset={offset}")
    if offset + length > max_length:
        raise ValueError(
            f"positions must stay below max_length, got offset={offset} + length={length} "
            f"> max_length={max_length}"
        )
    return table[offset : offset + length]
