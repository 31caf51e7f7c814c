"""Masks: which positions must not be seen.

Attention lets every position look at every other one. Two things must stay hidden. A batch holds
sentences of different lengths, filled up with padding that means nothing; and a decoder that learns
to predict the next word must not read it off the answer (section 3.2.3 of "Attention Is All You
Need", Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; "the paper" from here on).

**The rule of this package: a mask is boolean, and True hides.** It is the sense of
``Tensor.masked_fill`` and of ``torch.nn.MultiheadAttention``: ``True`` marks the cell to strike
out. (``F.scaled_dot_product_attention`` means the opposite; :func:`fused_attention` alone knows.)
Because ``True`` hides, masks combine with ``|``: hidden by one *or* by the other.

The rows of a mask are the queries, who looks; the columns are the keys, what is looked at. A mask
has the shape (L, S) when it is the same for all sentences, and (B, H, L, S) otherwise, where B, H
and L may be 1 to mean "the same for all".

A query that may see nothing at all receives zeros: there is nothing to mix.

A mask sets attention weights to zero, and zero times NaN is NaN. So masked positions must hold
finite numbers too. NaN and infinity are never hidden: on every path, a query that is not finite
shows in its own output, and a key or value that is not finite shows in the output of every query
that attends to it. At a masked position, it may show in any other output of its sequence as well,
and in which depends on the path. (An encoder prepared by :func:`~transformer_blocks.prepare` leaves
padding out where there is enough of it, and then nothing of it shows.)

Next chapter: :mod:`transformer_blocks.attention`, where masks are put to use.
"""

import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_blocks._checks import (
    check_boolean,
    check_integer,
    check_size,
    check_tensor,
    refuse,
)

HIDDEN, VISIBLE = "x", "."


def causal_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Hide the future: position i may look at positions 0..i, never at a later one.

    Without it, a decoder trained to predict word i + 1 would find that word among its own keys and
    learn to copy instead of to translate (section 3.2.3, "masked" attention).

    With more keys than queries the *last* query sees every key (aligned to the bottom right), as
    in step-by-step decoding, where the queries are the newest positions of a longer sequence.

    Args:
        query_length: L, the number of positions that look.
        key_length: S, the number of positions looked at; L if not given.
        device: Where the mask is made.

    Returns:
        Boolean mask, True hides. Shape (L, S).

    Example:
        >>> print(format_mask(causal_mask(3)))
           0 1 2
        0  . x x
        1  . . x
        2  . . .
        >>> print(format_mask(causal_mask(1, 3)))  # one new query sees the whole past
           0 1 2
        0  . . .
    """
    key_length = query_length if key_length is None else key_length
    check_size(query_length=query_length, key_length=key_length)
    return build_causal_mask(query_length, key_length, device)


def build_causal_mask(
    query_length: int, key_length: int, device: torch.device | str | None
) -> Tensor:
    """Build the causal mask without checks, for kernels: sizes may be zero or symbolic."""
    every_cell = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
    return every_cell.triu_(key_length - query_length + 1)  # in place: a table may take gigabytes


def padding_mask(tokens: Tensor, padding_id: int = 0) -> Tensor:
    """Hide the padding of a batch: keys that only fill a sentence up to the longest one.

    Args:
        tokens: Token ids. Shape (B, S).
        padding_id: The id that stands for "nothing here".

    Returns:
        Boolean mask, True hides. Shape (B, 1, 1, S), the same for every head and every query.

    Raises:
        TypeError: If ``tokens`` is not an integer tensor, or ``padding_id`` no integer.
        ValueError: If ``tokens`` has another shape.

    Example:
        >>> tokens = torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> print(format_mask(padding_mask(tokens)))
        sentence 0, every head
           0 1 2
        *  . . .
        sentence 1, every head
           0 1 2
        *  . x x
        >>> (padding_mask(tokens) | causal_mask(3)).shape  # hidden by one or by the other
        torch.Size([2, 1, 3, 3])
    """
    check_tensor("tokens", tokens)
    check_integer(padding_id=padding_id)
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise TypeError(f"tokens must be integer ids, got dtype={tokens.dtype}")
    if tokens.dim() != 2:
        raise ValueError(f"tokens must have shape (B, S), got {tuple(tokens.shape)}")
    return (tokens == padding_id)[:, None, None, :]


def sliding_window_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    window: int,
    device: torch.device | str | None = None,
) -> Tensor:
    """Hide what is far: a position sees those less than ``window`` steps away, on both sides.

    The work of attention then grows with the length and no longer with its square, and words still
    hear from afar: through a stack of layers, each hands on what it saw ("Longformer", Beltagy et
    al. 2020, https://arxiv.org/abs/2004.05150, section 3.1; "Mistral 7B", Jiang et al. 2023,
    https://arxiv.org/abs/2310.06825, section 2). These blocks save no work by it: the mask says
    what is seen, and all is computed.

    Where attention is causal, by ``causal=True`` or ``| causal_mask(L)``, what is left are the last
    ``window`` words, the newest included. The last query stands where the last key stands: a step
    with a cache takes ``sliding_window_mask(1, cache.length + 1, window=w)``.

    Args:
        query_length: L, the number of positions that look.
        key_length: S, the number of positions looked at; L if not given.
        window: How far one sees; 1 is to see oneself.
        device: Where the mask is made.

    Returns:
        Boolean mask, True hides. Shape (L, S).

    Example:
        >>> print(format_mask(sliding_window_mask(4, window=2)))
           0 1 2 3
        0  . . x x
        1  . . . x
        2  x . . .
        3  x x . .
        >>> print(format_mask(sliding_window_mask(4, window=2) | causal_mask(4)))
           0 1 2 3
        0  . x x x
        1  . . x x
        2  x . . x
        3  x x . .
    """
    key_length = query_length if key_length is None else key_length
    check_size(query_length=query_length, key_length=key_length, window=window)
    ahead = key_length - query_length  # the last query has the position of the last key
    visible = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
    # In place, as a table of distances would take eight times the memory of the mask.
    return visible.triu_(ahead - window + 1).tril_(ahead + window - 1).eq_(False)


def document_mask(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """Hide the other documents of a row: several short texts can share one without padding.

    Args:
        documents: The number of the document that each position belongs to. Shape (B, L).
        key_documents: The same of the keys, if they are others. Shape (B, S).

    Returns:
        Boolean mask, True hides. Shape (B, 1, L, S).

    Raises:
        TypeError: If one is not an integer tensor.
        ValueError: If one has another shape.

    Example:
        >>> documents = torch.tensor([[1, 1, 2, 2, 2]])
        >>> print(format_mask(document_mask(documents) | causal_mask(5)))
        every sentence, every head
           0 1 2 3 4
        0  . x x x x
        1  . . x x x
        2  x x . x x
        3  x x . . x
        4  x x . . .
    """
    key_documents = documents if key_documents is None else key_documents
    for name, numbers in (("documents", documents), ("key_documents", key_documents)):
        check_tensor(name, numbers)
        if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
            raise TypeError(f"{name} must be integer numbers, got dtype={numbers.dtype}")
        if numbers.dim() != 2 or numbers.shape[0] != documents.shape[0]:
            raise ValueError(
                "documents and key_documents must have shapes (B, L) and (B, S), "
                f"got {tuple(documents.shape)} and {tuple(key_documents.shape)}"
            )
    return (documents[:, :, None] != key_documents[:, None, :])[:, None]


def check_mask(
    mask: Tensor,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    device: torch.device | None = None,
    name: str = "mask",
) -> None:
    """Raise unless ``mask`` is boolean and fits attention of shape (B, H, L, S).

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If its shape is neither (L, S) nor (B|1, H|1, L|1, S), or it is on another
            device than the queries.
    """
    check_boolean(name, mask)
    if device is not None and mask.device != device:
        raise ValueError(
            f"{name} must be on the device of the queries, {device}, got device={mask.device}"
        )
    shape = tuple(mask.shape)
    if len(shape) == 2 and shape == (queries, keys):  # symbols are compared only if they must be
        return
    fits = len(shape) == 4 and shape[3] == keys
    for size, full in zip(shape, (batch, heads, queries), strict=False):
        fits = fits and size in (1, full)
    if not fits:
        raise ValueError(
            f"{name} must have shape (L, S) = ({queries}, {keys}) or (B|1, H|1, L|1, S) = "
            f"({batch}|1, {heads}|1, {queries}|1, {keys}), got {shape}; "
            "padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )


def format_mask(
    mask: Tensor, *, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None
) -> str:
    """Draw a mask as a table to read: a row per query, a column per key, ``x`` where hidden.

    Args:
        mask: Boolean, True hides. Shape (L, S) or (B, H, L, S).
        queries: A label for each row, for example the tokens; positions if not given.
        keys: A label for each column.

    Returns:
        The table as text; one table for each sentence and head that the mask tells apart.

    Raises:
        TypeError: If ``mask`` is not boolean, or a label no string.
        ValueError: If its shape is neither (L, S) nor (B, H, L, S), or labels do not fit.

    Example:
        >>> words = ["私", "は", "猫"]
        >>> print(format_mask(causal_mask(3), queries=words, keys=words))
            私 は 猫
        私  .  x  x
        は  .  .  x
        猫  .  .  .
    """
    check_boolean("mask", mask)
    if mask.dim() not in (2, 4):
        raise ValueError(f"mask must have shape (L, S) or (B, H, L, S), got {tuple(mask.shape)}")
    for name, labels in (("queries", queries), ("keys", keys)):
        if labels is not None and not (
            isinstance(labels, Sequence) and all(isinstance(label, str) for label in labels)
        ):
            refuse(name, "a list of strings", labels)
    keys = [str(position) for position in range(mask.shape[-1])] if keys is None else keys
    if mask.dim() == 4 and mask.shape[2] == 1:
        queries = ["*"]  # one row serves every query
    elif queries is None:
        queries = [str(position) for position in range(mask.shape[-2])]
    if (len(queries), len(keys)) != tuple(mask.shape[-2:]):
        raise ValueError(
            f"queries and keys must match the mask's shape {tuple(mask.shape)}, "
            f"got {len(queries)} and {len(keys)} labels"
        )
    if mask.dim() == 2:
        return _format_table(mask, queries, keys)
    tables = []
    for sentence, heads in enumerate(mask):
        for head, table in enumerate(heads):
            of_batch = "every sentence" if mask.shape[0] == 1 else f"sentence {sentence}"
            of_head = "every head" if mask.shape[1] == 1 else f"head {head}"
            tables.append(f"{of_batch}, {of_head}\n{_format_table(table, queries, keys)}")
    return "\n".join(tables)


def _format_table(mask: Tensor, queries: Sequence[str], keys: Sequence[str]) -> str:
    """Draw one (L, S) mask."""
    marks = [[HIDDEN if hidden else VISIBLE for hidden in row] for row in mask.tolist()]
    return align_columns(marks, queries=queries, keys=keys)


def align_columns(
    marks: Sequence[Sequence[str]], *, queries: Sequence[str], keys: Sequence[str]
) -> str:
    """Draw a table of marks, one letter each, under labels of any width."""
    margin = max((_columns(label) for label in queries), default=0)
    lines = [_pad("", margin) + "  " + " ".join(keys)]
    for label, row in zip(queries, marks, strict=True):
        cells = (_pad(mark, _columns(key)) for mark, key in zip(row, keys, strict=True))
        lines.append(_pad(label, margin) + "  " + " ".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def _columns(text: str) -> int:
    """Count the terminal columns of ``text``: kanji and kana take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _pad(text: str, columns: int) -> str:
    return text + " " * (columns - _columns(text))
