"""Masks: which keys a query must not attend to.

Without a mask, every query attends to every key. Two kinds of keys must be masked. The sequences of
a batch have different lengths, and the shorter ones are filled up with padding, which carries no
meaning. And a decoder that is trained to predict the next token must not attend to that token,
which is part of its input (section 3.2.3 of the paper).

**The mask rule of this package: a mask is boolean, and True hides.** ``True`` marks a *masked*
position, a key that the query must not attend to, as in ``Tensor.masked_fill`` and
``torch.nn.MultiheadAttention``. (``F.scaled_dot_product_attention`` has the opposite rule; the mask
is inverted in one line, where that function is called.) Because ``True`` hides, masks are combined
with ``|``: a position is masked if one mask *or* the other masks it.

The rows of a mask are queries, its columns are keys. Its shape is (L, S), the same for the whole
batch and all heads, or (B, H, L, S), where B, H and L may be 1 to broadcast. A mask of shape (B, S)
would be read as (L, S) if B equals L: :func:`padding_mask` and :func:`length_mask` return
(B, 1, 1, S).

**Fully masked rows give zeros.** If every key of a query is masked, its attention weights and its
output (before the output projection) are zero, not NaN, and the gradients are finite. This holds in
every implementation, dtype and mode.

**NaN is not masked.** A masked key has the weight zero, and zero times NaN is NaN, so masked
positions must hold finite numbers too. In explicit attention, a non-finite query makes its own
output non-finite, and a non-finite key or value does so for every query that attends to it. Torch's
fused kernel on a CPU may return zeros instead; where it loses a NaN, we do not restore it. A
non-finite key or value at a masked position may affect other outputs of its sequence as well; which
ones depends on the implementation. (An encoder prepared by
:func:`~transformer_blocks.inference.prepare` removes padding where there is enough of it, and the
removed positions affect nothing.)

Next: :mod:`transformer_blocks.attention`, where masks are applied.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import Ids, Mask, Size, checked
from transformer_blocks._tables import align_columns

MASKED, UNMASKED = "x", "."


@checked
def causal_mask(
    query_length: Size, key_length: Size | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """Build a causal mask: position i attends to positions 0..i and to no later one.

    Without it, a decoder trained to predict token i + 1 would find that token among its own keys
    and learn to copy it (section 3.2.3, "masked" attention).

    With more keys than queries the mask is aligned to the bottom right: the *last* query attends to
    every key, as in a decoding step, whose queries are the newest positions of a longer sequence.

    Args:
        query_length: L, the number of queries.
        key_length: S, the number of keys; L by default.
        device: Device of the mask.

    Returns:
        Boolean mask of shape (L, S); True hides.

    Raises:
        TypeError: If a length is not an integer.
        ValueError: If a length is not positive.

    Example:
        >>> from transformer_blocks import causal_mask, format_mask
        >>> print(format_mask(causal_mask(3)))
           0 1 2
        0  . x x
        1  . . x
        2  . . .
        >>> print(format_mask(causal_mask(1, 3)))  # one new query attends to the whole past
           0 1 2
        0  . . .
    """
    key_length = query_length if key_length is None else key_length
    mask = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
    return mask.triu_(key_length - query_length + 1)  # in place, as a mask may take gigabytes


@checked
def padding_mask(tokens: Annotated[Tensor, Ids("B S")], padding_id: int = 0) -> Tensor:
    """Build a padding mask: no query attends to padding, which fills up shorter sequences.

    For sequences without token ids, such as time series, :func:`length_mask` builds the same mask.

    Args:
        tokens: Token ids of a padded batch, of shape (B, S).
        padding_id: Id of the padding token.

    Returns:
        Boolean mask of shape (B, 1, 1, S), the same for all heads and queries; True hides.

    Raises:
        TypeError: If ``tokens`` is not an integer tensor, or ``padding_id`` is not an integer.
        ValueError: If ``tokens`` has another shape.

    Example:
        >>> import torch
        >>> from transformer_blocks import causal_mask, format_mask, padding_mask
        >>> tokens = torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> print(format_mask(padding_mask(tokens)))
        sequence 0, all heads
           0 1 2
        *  . . .
        sequence 1, all heads
           0 1 2
        *  . x x
        >>> (padding_mask(tokens) | causal_mask(3)).shape  # masked by one or by the other
        torch.Size([2, 1, 3, 3])
    """
    return (tokens == padding_id)[:, None, None, :]


@checked
def length_mask(lengths: Annotated[Tensor, Ids("B")], max_length: Size) -> Tensor:
    """Build a padding mask from lengths: no query attends to what follows a sequence's end.

    It is :func:`padding_mask` for sequences that are no text, such as time series, whose padding
    has no id. (TensorFlow's ``sequence_mask`` has the opposite rule: True marks real positions.)

    Args:
        lengths: Length of each sequence, of shape (B,). A sequence of length 0 is fully masked.
        max_length: S, the length of the padded batch, usually ``x.shape[1]``. A sequence that is
            as long or longer has no masked position.

    Returns:
        Boolean mask of shape (B, 1, 1, S), the same for all heads and queries; True hides. It is on
        the device of ``lengths``.

    Raises:
        TypeError: If ``lengths`` is not an integer tensor, or ``max_length`` is not an integer.
        ValueError: If ``lengths`` has another shape, or ``max_length`` is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder, format_mask, length_mask
        >>> series, lengths = torch.randn(2, 5, 16), torch.tensor([5, 2])
        >>> mask = length_mask(lengths, 5)
        >>> print(format_mask(mask[1:]))
        all sequences, all heads
           0 1 2 3 4
        *  . . x x x
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> before = encoder(series, mask=mask)
        >>> series[1, 2:] += 1.0  # change the padding of the second series ...
        >>> after = encoder(series, mask=mask)
        >>> torch.equal(before[1, :2], after[1, :2])  # ... its two outputs do not change
        True
    """
    positions = torch.arange(max_length, device=lengths.device)
    return (positions >= lengths[:, None])[:, None, None, :]


@checked
def sliding_window_mask(
    query_length: Size,
    key_length: Size | None = None,
    *,
    window: Size,
    device: torch.device | str | None = None,
) -> Tensor:
    """Build a two-sided sliding-window mask: attend to ``window - 1`` positions before and after.

    For a causal window, add ``| causal_mask(L)``, or pass ``causal=True`` to the attention: a
    position then attends to the last ``window`` positions, itself included.

    With a window, the cost of attention can grow linearly with the length instead of
    quadratically, and information still crosses longer distances, since each layer of a stack
    carries it one window further ("Longformer", Beltagy et al. 2020,
    https://arxiv.org/abs/2004.05150, section 3.1; "Mistral 7B", Jiang et al. 2023,
    https://arxiv.org/abs/2310.06825, section 2). This mask alone does not reduce the cost: all
    scores are computed, and then some of them are masked.
    :class:`~transformer_blocks.SlidingWindowAttention` computes those in the window alone.

    The last query has the position of the last key: a decoding step with a cache uses
    ``sliding_window_mask(1, cache.length + 1, window=w)``.

    Args:
        query_length: L, the number of queries.
        key_length: S, the number of keys; L by default.
        window: Window size, in positions: keys at a distance of ``window`` or more are masked. With
            1, a position attends only to itself.
        device: Device of the mask.

    Returns:
        Boolean mask of shape (L, S); True hides.

    Raises:
        TypeError: If a length or the window is not an integer.
        ValueError: If a length or the window is not positive.

    Example:
        >>> from transformer_blocks import causal_mask, format_mask, sliding_window_mask
        >>> print(format_mask(sliding_window_mask(4, window=2)))  # two-sided
           0 1 2 3
        0  . . x x
        1  . . . x
        2  x . . .
        3  x x . .
        >>> print(format_mask(sliding_window_mask(4, window=2) | causal_mask(4)))  # causal
           0 1 2 3
        0  . x x x
        1  . . x x
        2  x . . x
        3  x x . .
    """
    key_length = query_length if key_length is None else key_length
    offset = key_length - query_length  # the last query has the position of the last key
    window = min(window, 2**40)  # as far as any position, and no sum overflows
    band = torch.ones(query_length, key_length, dtype=torch.bool, device=device)
    # In place: a matrix of distances would take eight times the memory of the mask.
    band.triu_(offset - window + 1).tril_(offset + window - 1)
    return band.bitwise_xor_(True)  # all but the band; torch.compile refuses eq_(False)


@checked
def document_mask(
    documents: Annotated[Tensor, Ids("B L")],
    key_documents: Annotated[Tensor, Ids("B S")] | None = None,
) -> Tensor:
    """Build a document mask: a position attends only to its own document.

    Several short documents can then share one sequence of the batch, without padding. For long
    sequences, :func:`~transformer_blocks.packed_mask` is the same mask with less memory and work.

    Args:
        documents: Id of the document that each query belongs to, of shape (B, L).
        key_documents: Id of the document that each key belongs to, of shape (B, S); the same as
            ``documents`` by default, for self-attention.

    Returns:
        Boolean mask of shape (B, 1, L, S), the same for all heads; True hides.

    Raises:
        TypeError: If one of them is not an integer tensor.
        ValueError: If one of them has another shape.

    Example:
        >>> import torch
        >>> from transformer_blocks import causal_mask, document_mask, format_mask
        >>> documents = torch.tensor([[1, 1, 2, 2, 2]])
        >>> print(format_mask(document_mask(documents) | causal_mask(5)))
        all sequences, all heads
           0 1 2 3 4
        0  . x x x x
        1  . . x x x
        2  x x . x x
        3  x x . . x
        4  x x . . .
    """
    key_documents = documents if key_documents is None else key_documents
    return (documents[:, :, None] != key_documents[:, None, :])[:, None]


@checked
def format_mask(
    mask: Mask, *, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None
) -> str:
    """Format a mask as a text table: a row per query, a column per key, ``x`` where masked.

    Args:
        mask: Boolean mask of shape (L, S) or (B, H, L, S); True hides.
        queries: A label for each query, for example its token; positions by default.
        keys: A label for each key; positions by default.

    Returns:
        The table as text; one table for each sequence and head for which the mask differs.

    Raises:
        TypeError: If ``mask`` is not boolean, or a label is not a string.
        ValueError: If the shape of ``mask`` is neither (L, S) nor (B, H, L, S), or the labels do
            not fit it.

    Example:
        >>> from transformer_blocks import causal_mask, format_mask
        >>> words = ["私", "は", "猫"]
        >>> print(format_mask(causal_mask(3), queries=words, keys=words))
            私 は 猫
        私  .  x  x
        は  .  .  x
        猫  .  .  .
    """
    if mask.dim() not in (2, 4):
        raise ValueError(f"mask must have shape (L, S) or (B, H, L, S), got {tuple(mask.shape)}")
    keys = [str(position) for position in range(mask.shape[-1])] if keys is None else keys
    if mask.dim() == 4 and mask.shape[2] == 1:
        queries = ["*"]  # one row for all queries
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
    for sequence, heads in enumerate(mask):
        for head, table in enumerate(heads):
            sequences = "all sequences" if mask.shape[0] == 1 else f"sequence {sequence}"
            head_names = "all heads" if mask.shape[1] == 1 else f"head {head}"
            tables.append(f"{sequences}, {head_names}\n{_format_table(table, queries, keys)}")
    return "\n".join(tables)


def _format_table(mask: Tensor, queries: Sequence[str], keys: Sequence[str]) -> str:
    """Format a mask of shape (L, S)."""
    marks = [[MASKED if is_masked else UNMASKED for is_masked in row] for row in mask.tolist()]
    return align_columns(marks, queries=queries, keys=keys)
