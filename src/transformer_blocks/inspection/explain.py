"""Explained masks: for each cell that is hidden, why; and what looks like a mistake.

A mask is a table of true and false, and by the time it reaches the attention nobody remembers which
of the reasons for hiding a cell it was: the key is padding, or stands in the future, or too far
back. :func:`explain_mask` tells them apart again, as text or as a coloured table in a notebook. It
also knows the usual mistakes by their looks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import ascii_letters

import torch
from torch import Tensor

from transformer_blocks.masks import UNMASKED, align_columns, build_causal_mask

SEVERAL, OTHER = "+", "another reason"
COLOURS = ("#5b6270", "#9a5300", "#1d5fb8", "#86389a", "#1b7a4b")  # white letters stand out on all


@dataclass(frozen=True)
class MaskExplanation:
    """A mask of one sentence and head, with the reasons; print it, or show it in a notebook.

    Attributes:
        queries: A label for each row.
        keys: A label for each column.
        reasons: For each cell, why it is hidden; nothing where it is visible.
        warnings: What looks like a mistake.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    reasons: tuple[tuple[tuple[str, ...], ...], ...]
    warnings: tuple[str, ...]

    @property
    def letters(self) -> dict[str, str]:
        """The letter that stands for each reason, in the order in which they are met."""
        found: dict[str, str] = {}
        for cell in (cell for row in self.reasons for cell in row):
            for reason in cell:
                if reason not in found:
                    taken = {UNMASKED, SEVERAL, " ", *found.values()}
                    free = (letter for letter in reason + ascii_letters if letter not in taken)
                    found[reason] = next(free, "?")
        return found

    def __repr__(self) -> str:
        """Draw the table, its legend and the warnings."""
        letters = self.letters
        rows = [
            [_mark([letters[reason] for reason in cell]) for cell in row] for row in self.reasons
        ]
        legend = [f"{letter} {reason}" for reason, letter in letters.items()]
        if any(len(cell) > 1 for row in self.reasons for cell in row):
            legend.append(f"{SEVERAL} several of them")
        lines = [align_columns(rows, queries=self.queries, keys=self.keys)]
        lines += [f"hidden as: {', '.join(legend)}"] if legend else ["nothing is hidden"]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Draw it as a table whose cells tell their reasons under the pointer."""
        letters = self.letters
        colours = {reason: COLOURS[number % len(COLOURS)] for number, reason in enumerate(letters)}
        border = "border:1px solid #8886;padding:.2em .5em;text-align:center"
        heads = "".join(f"<th style='{border}'>{escape(key)}</th>" for key in self.keys)
        lines = [f"<table style='border-collapse:collapse'><tr><th></th>{heads}</tr>"]
        for query, row in zip(self.queries, self.reasons, strict=True):
            cells = [f"<th style='{border};text-align:left'>{escape(query)}</th>"]
            for cell in row:
                mark = _mark([letters[reason] for reason in cell])
                paint = f";background:{colours[cell[0]]};color:#fff" if cell else ""
                why = escape("hidden as " + " and ".join(cell) if cell else "visible", quote=True)
                cells.append(f'<td style="{border}{paint}" title="{why}">{escape(mark)}</td>')
            lines.append(f"<tr>{''.join(cells)}</tr>")
        lines.append("</table>")
        legend = [f"<b>{escape(letter)}</b> {escape(reason)}" for reason, letter in letters.items()]
        lines.append(f"<p>{', '.join(legend) or 'nothing is hidden'}</p>")
        lines += [f"<p><b>warning:</b> {escape(warning)}</p>" for warning in self.warnings]
        return "\n".join(lines)


def explain_mask(
    mask: Tensor | Mapping[str, Tensor],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    sentence: int = 0,
    head: int = 0,
) -> MaskExplanation:
    """Tell why each cell of a mask is hidden, and warn of what looks like a mistake.

    Give the masks by name before they are joined, and each cell knows its reasons. A single mask
    is taken apart by its looks: columns hidden for everybody at the end are *padding*, a hidden
    triangle at the upper right is the *future*, one at the lower left lies outside a *window*; the
    rest is hidden for *another reason*.

    Args:
        mask: Boolean, True hides; or several by name, to be joined. Each of shape (L, S) or
            (B, H, L, S), where B, H and L may be 1.
        queries: A label for each row, for example the tokens; positions if not given.
        keys: A label for each column.
        sentence: Which sentence to show.
        head: Which head.

    Returns:
        The explanation: print it, or leave it at the end of a notebook's cell.

    Raises:
        TypeError: If a mask is not boolean.
        ValueError: If shapes or labels do not fit.

    Example:
        >>> tokens = torch.tensor([[7, 8, 9, 0]])
        >>> words = ["the", "cat", "sleeps", "<pad>"]
        >>> print(explain_mask(padding_mask(tokens) | causal_mask(4), queries=words, keys=words))
                the cat sleeps <pad>
        the     .   f   f      +
        cat     .   .   f      +
        sleeps  .   .   .      +
        <pad>   .   .   .      p
        hidden as: f future, p padding, + several of them
        >>> print(explain_mask(~causal_mask(3)))  # False hides, elsewhere
           0 1 2
        0  a . .
        1  a a .
        2  a a a
        hidden as: a another reason
        warning: the mask looks inverted: turned round, it would hide future; True hides
        warning: query 2 may see nothing: it gets zeros
    """
    named = dict(mask) if isinstance(mask, Mapping) else {"": mask}
    if not named:
        raise ValueError("mask must be a tensor, or at least one by name, got none")
    tables = {name: _table(each, sentence, head) for name, each in named.items()}
    length = max(table.shape[0] for table in tables.values())
    key_length = max(table.shape[1] for table in tables.values())
    for name, table in tables.items():
        if table.shape[1] != key_length or table.shape[0] not in (1, length):
            raise ValueError(
                f"masks must be of one size, got {tuple(table.shape)} for {name!r} beside "
                f"{(length, key_length)}"
            )
        tables[name] = table.expand(length, key_length)
    joined = torch.stack(list(tables.values())).any(dim=0)
    row_labels = tuple(map(str, range(length))) if queries is None else tuple(queries)
    key_labels = tuple(map(str, range(key_length))) if keys is None else tuple(keys)
    if (len(row_labels), len(key_labels)) != (length, key_length):
        raise ValueError(
            f"labels must match the mask's shape {(length, key_length)}, "
            f"got {len(row_labels)} queries and {len(key_labels)} keys"
        )
    if not isinstance(mask, Mapping):
        tables = _guess(joined)
    cells = {name: table.tolist() for name, table in tables.items()}
    reasons = tuple(
        tuple(
            tuple(name for name, table in cells.items() if table[row][key])
            for key in range(key_length)
        )
        for row in range(length)
    )
    flat = any(each.dim() == 2 and len(each) > 1 for each in named.values())
    warnings = _warnings(joined, row_labels, rows_are_queries=flat)
    return MaskExplanation(row_labels, key_labels, reasons, tuple(warnings))


def _mark(letters: Sequence[str]) -> str:
    return letters[0] if len(letters) == 1 else SEVERAL if letters else UNMASKED


def _table(mask: Tensor, sentence: int, head: int) -> Tensor:
    """Take the table of one sentence and head out of a mask. Shape (L, S)."""
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, where True hides a key, got dtype={mask.dtype}")
    if mask.dim() == 2:
        return mask.cpu()
    if mask.dim() != 4:
        raise ValueError(f"mask must have shape (L, S) or (B, H, L, S), got {tuple(mask.shape)}")
    if not (len(mask) and mask.shape[1]):
        raise ValueError(f"mask must have a sentence and a head to show, got {tuple(mask.shape)}")
    places = []
    for name, wanted, size in (("sentence", sentence, len(mask)), ("head", head, mask.shape[1])):
        if size > 1 and not 0 <= wanted < size:
            raise ValueError(f"{name} must be in 0..{size - 1}, got {name}={wanted}")
        places.append(wanted if size > 1 else 0)
    return mask[places[0], places[1]].cpu()


def _guess(table: Tensor) -> dict[str, Tensor]:
    """Take a mask apart by its looks."""
    length, key_length = table.shape
    if not table.numel():
        return {}
    future = build_causal_mask(length, key_length, None)
    # How far a key lies behind its query; the last query stands at the last key.
    behind = torch.arange(length)[:, None] + key_length - length - torch.arange(key_length)[None, :]
    columns = table.all(dim=0).flip(0).cummin(dim=0).values.flip(0)  # the last ones, hidden for all
    padding = columns.expand_as(table) & (length > 1 or not columns.all())
    found = {}
    rest = table & ~padding
    if future.any() and (table | ~future).all() and (rest & future).any():
        found["future"] = future
        rest = rest & ~future
    visible = behind[~table & (behind >= 0)]
    width = int(visible.max()) if len(visible) else 0  # how far back anyone may look
    far = behind > width
    if length > 1 and width and (rest & far).any() and not (rest & ~far).any():
        found["outside the window"] = far & table
        rest = rest & ~far
    if padding.any():
        found["padding"] = padding
    if rest.any():
        found[OTHER] = rest
    return found


def _warnings(table: Tensor, queries: Sequence[str], *, rows_are_queries: bool) -> list[str]:
    """Name what looks like a mistake; a mask of two dimensions says that its rows are queries."""
    length, key_length = table.shape
    if not table.numel():
        return []
    warnings = []
    future = build_causal_mask(length, key_length, None)
    found, turned = _guess(table), _guess(~table)
    if OTHER in found and turned and OTHER not in turned:
        if list(turned) == ["padding"]:
            warnings.append(
                "the mask hides the beginning and shows the end: right for padding on the left, "
                "inverted for padding on the right; True hides"
            )
        else:
            warnings.append(
                f"the mask looks inverted: turned round, it would hide {' and '.join(turned)}; "
                "True hides"
            )
    if (
        rows_are_queries
        and 1 < length == key_length
        and not bool((table == (future | table.all(dim=0))).all())
    ):
        ends = [key_length - int(row.flip(0).int().cumprod(0).sum()) for row in table]
        are_suffixes = not any(bool(row[:end].any()) for row, end in zip(table, ends, strict=True))
        if are_suffixes and len(set(ends)) > 1:
            warnings.append(
                f"shape {(length, key_length)} has two meanings: it is read as (L, S), a row a "
                "query; if a row is the padding of a sentence, give it as (B, 1, 1, S), as "
                "padding_mask(tokens) does"
            )
    for query, row in zip(queries, table.tolist(), strict=True):
        if all(row):
            warnings.append(f"query {query} may see nothing: it gets zeros")
    return warnings
