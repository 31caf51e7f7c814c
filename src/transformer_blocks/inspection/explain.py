"""Explained masks: why each position is masked, and what looks like a mistake.

A mask is a boolean matrix, and once several masks are combined, it no longer shows why a key is
masked: the key may be padding, a future position, or outside of a sliding window.
:func:`explain_mask` shows the reason for each masked position as text. It also recognises the most
common mistakes by their patterns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_blocks._contracts import Mask, checked
from transformer_blocks._tables import align_columns
from transformer_blocks.masks import UNMASKED, causal_mask

SEVERAL, UNKNOWN = "+", "another reason"


@dataclass(frozen=True)
class MaskExplanation:
    """The mask of one sequence and head with its reasons; print it.

    Attributes:
        queries: A label for each query, one per row.
        keys: A label for each key, one per column.
        reasons: For each query and key, the reasons why the key is masked; empty if it is not.
        warnings: A sentence for each pattern that looks like a mistake.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    reasons: tuple[tuple[tuple[str, ...], ...], ...]
    warnings: tuple[str, ...]

    @property
    def letters(self) -> dict[str, str]:
        """A letter for each reason, its first, in order of occurrence."""
        found = (reason for row in self.reasons for cell in row for reason in cell)
        return {reason: reason[0] for reason in found}

    def __repr__(self) -> str:
        """Format the table, its legend and the warnings as text."""
        letters = self.letters
        rows = [
            [_mark([letters[reason] for reason in cell]) for cell in row] for row in self.reasons
        ]
        legend = [f"{letter} {reason}" for reason, letter in letters.items()]
        if any(len(cell) > 1 for row in self.reasons for cell in row):
            legend.append(f"{SEVERAL} several of them")
        lines = [align_columns(rows, queries=self.queries, keys=self.keys)]
        lines += [f"masked as: {', '.join(legend)}"] if legend else ["nothing is masked"]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


@checked
def explain_mask(
    mask: Mask,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    sequence: int = 0,
    head: int = 0,
) -> MaskExplanation:
    """Explain why each position is masked, and warn of patterns that look like mistakes.

    The reasons are recognised by their patterns: the last columns, masked for all queries, are
    *padding*; the upper right triangle is the *future*; the lower left triangle is outside of a
    *window*; anything else is masked for *another reason*.

    Args:
        mask: Boolean mask, where True hides, of shape (L, S) or (B, H, L, S), where B and H may be
            1.
        queries: A label for each query, for example its token; positions by default.
        keys: A label for each key; positions by default.
        sequence: Index of the sequence of the batch to show.
        head: Index of the head to show.

    Returns:
        The explanation: print it, or leave it as the last line of a notebook's cell.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If its shape or the labels do not fit.
        IndexError: If there is no such sequence or head.

    Example:
        >>> import torch
        >>> from transformer_blocks import causal_mask, padding_mask
        >>> from transformer_blocks.inspection import explain_mask
        >>> tokens = torch.tensor([[7, 8, 9, 0]])
        >>> words = ["the", "cat", "sleeps", "<pad>"]
        >>> print(explain_mask(padding_mask(tokens) | causal_mask(4), queries=words, keys=words))
                the cat sleeps <pad>
        the     .   f   f      +
        cat     .   .   f      +
        sleeps  .   .   .      +
        <pad>   .   .   .      p
        masked as: f future, p padding, + several of them
        >>> explain_mask(torch.ones(5, 5).triu(2).bool()).warnings
        ('the mask looks causal but is shifted: each query attends to the next position',)
        >>> print(explain_mask(~causal_mask(3)))  # a mask of the opposite rule, where False hides
           0 1 2
        0  a . .
        1  a a .
        2  a a a
        masked as: a another reason
        warning: the mask looks inverted: its inverse would hide future; True hides
        warning: query 2 is fully masked: its output is zero
    """
    table = _select(mask, sequence, head)
    length, key_length = table.shape
    row_labels = tuple(map(str, range(length))) if queries is None else tuple(queries)
    key_labels = tuple(map(str, range(key_length))) if keys is None else tuple(keys)
    if (len(row_labels), len(key_labels)) != (length, key_length):
        raise ValueError(
            f"labels must match the mask's shape {(length, key_length)}, "
            f"got {len(row_labels)} queries and {len(key_labels)} keys"
        )
    cells = {name: each.tolist() for name, each in _recognise(table).items()}
    reasons = tuple(
        tuple(
            tuple(name for name, each in cells.items() if each[row][key])
            for key in range(key_length)
        )
        for row in range(length)
    )
    warnings = _find_mistakes(table, row_labels)
    return MaskExplanation(row_labels, key_labels, reasons, tuple(warnings))


def _mark(letters: Sequence[str]) -> str:
    return letters[0] if len(letters) == 1 else SEVERAL if letters else UNMASKED


def _select(mask: Tensor, sequence: int, head: int) -> Tensor:
    """Select the mask of one sequence and head, of shape (L, S)."""
    mask = mask[None, None] if mask.dim() == 2 else mask
    if mask.dim() != 4:
        raise ValueError(f"mask must have shape (L, S) or (B, H, L, S), got {tuple(mask.shape)}")
    for index in (sequence, head):
        mask = mask[index if len(mask) > 1 else 0]
    return mask.cpu()


def _recognise(table: Tensor) -> dict[str, Tensor]:
    """Split a mask into masks by reason, which are recognised by their patterns."""
    length, key_length = table.shape
    if not table.numel():
        return {}
    future = causal_mask(length, key_length)
    distance = _measure_distances(table)
    # The last columns, masked for all queries.
    columns = table.all(dim=0).flip(0).cummin(dim=0).values.flip(0)
    padding = columns.expand_as(table) & (length > 1 or not columns.all())
    reasons = {}
    rest = table & ~padding
    if future.any() and (table | ~future).all() and (rest & future).any():
        reasons["future"] = future
        rest = rest & ~future
    attended = distance[~table & (distance >= 0)]
    window = int(attended.max()) if len(attended) else 0  # largest distance that is not masked
    is_distant = distance > window
    if length > 1 and window and (rest & is_distant).any() and not (rest & ~is_distant).any():
        reasons["outside the window"] = is_distant & table
        rest = rest & ~is_distant
    if padding.any():
        reasons["padding"] = padding
    if rest.any():
        reasons[UNKNOWN] = rest
    return reasons


def _measure_distances(table: Tensor) -> Tensor:
    """Subtract positions of keys from those of queries; the last query has the last key's."""
    length, key_length = table.shape
    return torch.arange(length)[:, None] + key_length - length - torch.arange(key_length)


def _find_mistakes(table: Tensor, queries: Sequence[str]) -> list[str]:
    """Describe patterns that look like mistakes."""
    if not table.numel():
        return []
    warnings = []
    reasons, inverse = _recognise(table), _recognise(~table)
    future = reasons.get("future", torch.zeros_like(table))
    first = table.all(dim=0).cummin(dim=0).values  # the keys before the first that is not hidden
    hides_first = bool(first.any()) and not bool(first.all())
    if UNKNOWN in reasons and hides_first and table.equal(first | future):
        where = " before it was combined with the causal mask" if "future" in reasons else ""
        warnings.append(
            "the mask hides the first keys and not the last ones: right for padding on the left, "
            f"inverted{where} for padding on the right; True hides"
        )
    elif UNKNOWN in reasons and inverse and UNKNOWN not in inverse:
        warnings.append(
            f"the mask looks inverted: its inverse would hide {' and '.join(inverse)}; True hides"
        )
    if UNKNOWN in reasons:
        rest = table & ~reasons.get("padding", torch.zeros_like(table))
        distance = _measure_distances(table)
        hidden = distance <= distance[rest].max()  # what a shifted causal mask would hide
        shift = int(distance[rest].max()) + 1
        known = {
            1: "no query attends to its own position",
            -1: "each query attends to the next position",
            table.shape[1] - table.shape[0]: "it is aligned to the top left, not the bottom right",
        }
        if shift and shift in known and table.equal(table & ~rest | hidden):
            warnings.append(f"the mask looks causal but is shifted: {known[shift]}")
    for query, row in zip(queries, table.tolist(), strict=True):
        if all(row):
            warnings.append(f"query {query} is fully masked: its output is zero")
    return warnings
