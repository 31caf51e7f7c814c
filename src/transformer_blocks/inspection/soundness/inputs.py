"""Inputs: a batch as a model receives it, from which other batches of its sequences are made.

The user passes what the model is called with in practice: a tensor, a tuple of arguments or a
mapping of keyword arguments. :func:`~transformer_blocks.inspection.soundness.reading.read_inputs`
finds out which of its tensors are sequences, which are masks of padding, and which value of a mask
marks a real token. From :class:`Inputs`, others are made: the same sequences alone, in another
order, or with more padding, and the masks follow; or other tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import NotTriedError, perturb

PADDING = -1  # instead of a position: no token of the inputs


@dataclass(frozen=True)
class Argument:
    """One argument of the model.

    Attributes:
        name: Its name in the signature, or its number.
        value: What the user passes.
        kind: ``"content"``: ids (B, L) or vectors (B, L, D). ``"indices"``: another number for each
            token, such as its position, or its label. ``"mask"``: the padding mask (B, L).
            ``"lengths"``: the number of real tokens (B,). ``"pairs"``: a mask of queries and keys.
            ``"rows"``: a tensor with one entry for each row. ``"unread"``: a mask of another shape.
            ``"fixed"``: anything else.
        groups: The sequences whose positions its dimensions are; two for a mask of pairs.
        filler: What it holds at padded positions.
        real: What a mask holds at the positions of real tokens.
        has_rows: Whether a mask of queries and keys has an entry, or some heads, for each row.
    """

    name: str
    value: Any
    kind: str = "fixed"
    groups: tuple[int, ...] = ()
    filler: Any = 0
    real: Any = None
    has_rows: bool = False


@dataclass(frozen=True)
class Group:
    """Sequences of one length: ids or vectors, and what belongs to them.

    Attributes:
        name: Name of the first argument of the group.
        role: ``"source"`` or ``"target"``, if the name says so; empty otherwise.
        real: Which positions hold real tokens, of shape (B, L).
        has_mask: Whether an argument tells the model which positions are padded.
        has_padding_id: Whether the model finds padded positions by their id.
    """

    name: str
    role: str
    real: Tensor
    has_mask: bool = False
    has_padding_id: bool = False

    @property
    def length(self) -> int:
        """L, the padded length."""
        return self.real.shape[1]

    @property
    def longest(self) -> int:
        """The row of the longest sequence."""
        return int(self.real.sum(1).argmax())

    def at(self, position: int) -> Tensor:
        """Where the real tokens at one position are, of shape (B, L)."""
        return self.real & (torch.arange(self.length) == position)

    @property
    def has_known_padding(self) -> bool:
        """Whether the model can know which positions are padded."""
        return self.has_mask or self.has_padding_id

    @property
    def side(self) -> str:
        """The side of the padding: right, left, none, or mixed."""
        real = self.real.long()
        if bool(self.real.all()):
            return "none"
        if bool((real.diff(dim=1) <= 0).all()):
            return "right"
        return "left" if bool((real.diff(dim=1) >= 0).all()) else "mixed"


@dataclass(frozen=True)
class Inputs:
    """The arguments of a model, and what they mean."""

    arguments: tuple[Argument, ...]
    groups: tuple[Group, ...]
    batch_size: int
    is_mapping: bool

    def take(
        self, rows: Sequence[int], index: Mapping[int, Tensor], stay: tuple[str, ...] = ()
    ) -> "Inputs":
        """Make a batch of some rows, in which groups may have other positions.

        Args:
            rows: The row from which each row is made.
            index: Positions in these rows, of shape (rows, L), by group; -1 is padding. The other
                groups keep all their positions.
            stay: Kinds of arguments that stay as they are.
        """
        chosen = torch.tensor(rows)
        places, groups = [], []
        for number, group in enumerate(self.groups):
            place = index.get(number, torch.arange(group.length).repeat(len(chosen), 1))
            real = (place != PADDING) & group.real[chosen[:, None], place.clamp(min=0)]
            places.append(place)
            groups.append(replace(group, real=real))
        arguments = []
        for argument in self.arguments:
            if argument.kind not in stay:
                own = [(places[number], groups[number].real) for number in argument.groups]
                value = _take(argument, self.batch_size, chosen, *own)
                argument = replace(argument, value=value)
            arguments.append(argument)
        return replace(
            self, arguments=tuple(arguments), groups=tuple(groups), batch_size=len(chosen)
        )

    def alone(self, *rows: int, without: int | None = None) -> "Inputs":
        """One row without its padding, once or repeated; one group may lose its last token."""
        index = {
            number: group.real[rows[0]].nonzero().flatten().repeat(len(rows), 1)
            for number, group in enumerate(self.groups)
        }
        if without is not None:
            index[without] = index[without][:, :-1]
        return self.take(rows, index)

    def padded(
        self, group: int, extra: int, side: str, rows: Sequence[int] | None = None
    ) -> "Inputs":
        """Some rows, with other padding in one of the groups."""
        rows = range(self.batch_size) if rows is None else rows
        real = self.groups[group].real
        length = int(real.sum(1).max()) + extra
        index = torch.full((len(rows), length), PADDING)
        for line, row in zip(index, rows, strict=True):
            positions = real[row].nonzero().flatten()
            start = 0 if side != "left" else length - len(positions)
            line[start : start + len(positions)] = positions
        return self.take(rows, {group: index})

    def contents(self, group: int) -> dict[int, Tensor]:
        """The ids and vectors of a group, by the number of the argument."""
        return {
            number: argument.value
            for number, argument in enumerate(self.arguments)
            if argument.kind == "content" and argument.groups == (group,)
        }

    def replaced(self, values: Mapping[int, Any]) -> "Inputs":
        """The inputs with other values of some arguments, by number."""
        arguments = (
            replace(argument, value=values.get(number, argument.value))
            for number, argument in enumerate(self.arguments)
        )
        return replace(self, arguments=tuple(arguments))

    def changed(self, group: int, where: Tensor, seed: int) -> "Inputs":
        """The inputs with other tokens or vectors in a group, where a mask (B, L) is true."""
        values = {}
        for number, value in self.contents(group).items():
            chosen, real = (each.to(value.device) for each in (where, self.groups[group].real))
            values[number] = other = value.clone()
            other[chosen] = perturb(value[chosen], value[real], seed)
        return self.replaced(values)

    def inverted(self, group: int) -> "Inputs":
        """The inputs with the opposite padding masks in a group."""
        arguments = []
        for each in self.arguments:
            if each.kind == "mask" and each.groups == (group,):
                real, hidden = (torch.full_like(each.value, x) for x in (each.real, each.filler))
                value = torch.where(each.value == hidden, real, hidden)
                each = replace(each, value=value)
            arguments.append(each)
        return replace(self, arguments=tuple(arguments))

    def build(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make positional and keyword arguments, which the model may modify."""
        values = [each.value for each in self.arguments]
        values = [value.clone() if isinstance(value, Tensor) else value for value in values]
        if not self.is_mapping:
            return tuple(values), {}
        return (), dict(zip([each.name for each in self.arguments], values, strict=True))


def _take(argument: Argument, batch_size: int, rows: Tensor, *own: tuple[Tensor, Tensor]) -> Any:
    """Make an argument of a batch from its rows, and its groups' positions and real tokens."""
    value, kind = argument.value, argument.kind
    if kind == "fixed":
        return value
    if kind == "unread":
        raise NotTriedError(
            "a mask must have the shape of padding, or of queries and keys, "
            f"got {argument.name} of shape {tuple(value.shape)}"
        )
    rows = rows.to(value.device)
    if kind == "rows":
        return value[rows]
    if kind == "lengths":
        return own[0][1].sum(1).to(value)
    index = [place.to(value.device) for place, _ in own]
    if kind == "pairs":
        return build_pairs(argument, batch_size, rows, *index)
    shape = value.shape
    if kind == "mask":
        value = value.reshape(shape[0], shape[-1])  # (B, 1, L) or (B, 1, 1, L)
    taken = value[rows[:, None], index[0].clamp(min=0)]
    taken[index[0] == PADDING] = argument.filler
    if kind == "mask":
        taken = taken.reshape(len(rows), *shape[1:-1], taken.shape[-1])
    return taken


def build_pairs(
    argument: Argument, batch_size: int, rows: Tensor, queries: Tensor, keys: Tensor
) -> Tensor:
    """Make the mask of queries and keys of another batch.

    The mask has shape (L, S), (B, L, S), (B * H, L, S) or (B, H, L, S), where B may be 1.
    """
    value: Tensor = argument.value
    is_shared = not argument.has_rows
    masks = value.reshape(1 if is_shared else batch_size, -1, *value.shape[-2:])
    if is_shared and is_toeplitz(value):
        steps = [torch.arange(each.shape[1], device=value.device) for each in (queries, keys)]
        distance = steps[1] - steps[0][:, None]
        ahead = masks[..., 0, distance.clamp(min=0, max=value.shape[-1] - 1)]
        behind = masks[..., (-distance).clamp(min=0, max=value.shape[-2] - 1), 0]
        taken = torch.where(distance >= 0, ahead, behind)
    else:
        is_padded = bool((queries == PADDING).any() or (keys == PADDING).any())
        if is_padded and (is_shared or argument.real is None):
            raise NotTriedError(f"the mask {argument.name} of queries and keys cannot be padded")
        if is_shared:
            if bool((queries != queries[:1]).any() or (keys != keys[:1]).any()):
                raise NotTriedError(f"the mask {argument.name} is the same for all rows")
            rows, queries, keys = rows[:1] * 0, queries[:1], keys[:1]
        queries = torch.where(queries == PADDING, queries.amax(1, keepdim=True), queries)
        taken = masks[rows[:, None, None], :, queries[:, :, None], keys[:, None]]  # (B, L, S, H)
        taken[(keys == PADDING)[:, None].expand(taken.shape[:3])] = argument.filler
        taken = taken.movedim(-1, 1)
    middle = (-1, *value.shape[1:-2]) if value.dim() > 2 else ()
    return taken.reshape(*middle, *taken.shape[-2:])


def is_toeplitz(mask: Tensor) -> bool:
    """Return whether a mask depends only on the distance of query and key, as a causal one does."""
    return bool((mask[..., 1:, 1:] == mask[..., :-1, :-1]).all())
