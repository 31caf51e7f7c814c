"""Examples: read a batch as a model receives it, and build other batches of the same sequences.

An example is what the model is called with in practice: a tensor, a tuple of arguments or a mapping
of keyword arguments. :func:`read_example` finds out which of its tensors are sequences, which are
masks of padding, and which value of a mask marks a real token. From then on, a batch is described
by a :class:`Layout`, which lists for each row the positions of the example that it contains. So the
same sequences can be built alone, in another order, or with more padding, and the masks follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import perturb

PADDING = -1  # in a layout: a position that holds no token of the example


class NotTriedError(Exception):
    """A check cannot be run; the message is the reason."""


@dataclass(frozen=True)
class Argument:
    """One argument of the model.

    Attributes:
        name: Its name in the signature, or its number.
        value: What the example passes.
        kind: ``"content"``: ids (B, L) or vectors (B, L, D). ``"indices"``: another number for each
            token, such as its position. ``"mask"``: the padding mask (B, L). ``"lengths"``: the
            number of real tokens (B,). ``"pairs"``: a mask of queries and keys. ``"rows"``: a
            tensor with one entry for each row. ``"fixed"``: anything else.
        groups: The sequences whose positions its dimensions are; two for a mask of pairs.
        filler: What it holds at padded positions.
        real: What a mask holds at the positions of real tokens.
    """

    name: str
    value: Any
    kind: str = "fixed"
    groups: tuple[int, ...] = ()
    filler: Any = 0
    real: Any = None


@dataclass(frozen=True)
class Group:
    """Sequences of one length: ids or vectors, and what belongs to them.

    Attributes:
        name: Name of the first argument of the group.
        roles: ``"source"`` or ``"target"``, as far as the names of the arguments say so.
        real: Which positions hold real tokens, of shape (B, L).
        has_mask: Whether an argument tells the model which positions are padded.
        has_padding_id: Whether the model finds padded positions by their id.
    """

    name: str
    roles: frozenset[str]
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
class Layout:
    """Which positions of the example each row of a batch contains.

    Attributes:
        rows: The row of the example from which each row is made.
        index: For each group, the positions in that row, of shape (rows, L); -1 is padding.
    """

    rows: tuple[int, ...]
    index: tuple[Tensor, ...]


@dataclass(frozen=True)
class Example:
    """The arguments of a model, and what they mean."""

    arguments: tuple[Argument, ...]
    groups: tuple[Group, ...]
    batch_size: int
    is_mapping: bool

    def given(self, rows: Sequence[int] | None = None) -> Layout:
        """The batch as it was given, or some of its rows."""
        rows = tuple(range(self.batch_size) if rows is None else rows)
        return Layout(
            rows,
            tuple(torch.arange(group.length).repeat(len(rows), 1) for group in self.groups),
        )

    def alone(self, *rows: int, without: int | None = None) -> Layout:
        """One row without its padding, once or repeated; one group may lose its last token."""
        index = [
            group.real[rows[0]].nonzero().flatten().repeat(len(rows), 1) for group in self.groups
        ]
        if without is not None:
            index[without] = index[without][:, :-1]
        return Layout(rows, tuple(index))

    def padded(
        self, group: int, extra: int, side: str, rows: Sequence[int] | None = None
    ) -> Layout:
        """Some rows, with other padding in one of the groups."""
        given = self.given(rows)
        real = self.groups[group].real
        length = int(real.sum(1).max()) + extra
        index = torch.full((len(given.rows), length), PADDING)
        for line, row in zip(index, given.rows, strict=True):
            positions = real[row].nonzero().flatten()
            start = 0 if side != "left" else length - len(positions)
            line[start : start + len(positions)] = positions
        return Layout(given.rows, (*given.index[:group], index, *given.index[group + 1 :]))

    def is_real(self, layout: Layout, group: int) -> Tensor:
        """Which positions of a batch hold real tokens, of shape (rows, L)."""
        index = layout.index[group]
        rows = torch.tensor(layout.rows)[:, None]
        return (index != PADDING) & self.groups[group].real[rows, index.clamp(min=0)]

    def refilled(self, group: int, layout: Layout) -> "Example":
        """The example of another batch, all of whose tokens in one group are real.

        Masks of queries and keys, positions and other indices stay if the length does.
        """
        arguments, groups = [], []
        for argument in self.arguments:
            value = argument.value
            if argument.kind not in ("pairs", "indices"):
                value = self.build_argument(argument, layout)
            elif layout.index[group].shape[1] != self.groups[group].length:
                if argument.kind == "pairs" and not (value.dim() == 2 and is_toeplitz(value)):
                    raise NotTriedError(f"the mask {argument.name} has the length of the example")
                value = self.build_argument(argument, layout)
            arguments.append(replace(argument, value=value))
        for number, each in enumerate(self.groups):
            real = self.is_real(layout, number) | (number == group)
            groups.append(replace(each, real=real))
        return replace(
            self,
            arguments=tuple(arguments),
            groups=tuple(groups),
            batch_size=len(layout.rows),
        )

    def contents(self, group: int) -> dict[int, Tensor]:
        """The ids and vectors of a group, by the number of the argument."""
        return {
            number: argument.value
            for number, argument in enumerate(self.arguments)
            if argument.kind == "content" and argument.groups == (group,)
        }

    def build(
        self,
        layout: Layout,
        *,
        values: Mapping[int, Tensor] | None = None,
        noise: int | None = None,
        flip: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make the arguments of a batch.

        Args:
            layout: The positions that each row contains.
            values: Tensors that replace those of arguments, by number.
            noise: A group whose padded positions hold other tokens or vectors.
            flip: A group whose padding masks are inverted.
            more: Keyword arguments that the example does not have.
        """
        built: list[Any] = []
        for number, argument in enumerate(self.arguments):
            argument = replace(argument, value=(values or {}).get(number, argument.value))
            value = self.build_argument(argument, layout)
            kind, group = argument.kind, next(iter(argument.groups), None)
            if kind == "content" and group == noise:
                value = self._add_noise(value, argument, layout)
            if kind == "mask" and group == flip:
                real, hidden = (torch.full_like(value, x) for x in (argument.real, argument.filler))
                value = torch.where(value == hidden, real, hidden)
            built.append(value)
        if not self.is_mapping:
            return tuple(built), dict(more or {})
        names = [argument.name for argument in self.arguments]
        return (), dict(zip(names, built, strict=True)) | dict(more or {})

    def build_argument(self, argument: Argument, layout: Layout) -> Any:
        """Make one argument of a batch."""
        value = argument.value
        if argument.kind == "fixed":
            return value.clone() if isinstance(value, Tensor) else value
        rows = torch.tensor(layout.rows, device=value.device)
        if argument.kind == "rows":
            return value[rows]
        if argument.kind == "lengths":
            real = self.is_real(layout, argument.groups[0])
            return real.sum(1).to(value)
        index = [layout.index[group].to(value.device) for group in argument.groups]
        if argument.kind == "pairs":
            return build_pairs(argument, rows, index[0], index[1])
        shape = value.shape
        if argument.kind == "mask":
            value = value.reshape(shape[0], shape[-1])  # (B, 1, 1, L)
        taken = value[rows[:, None], index[0].clamp(min=0)]
        taken[index[0] == PADDING] = argument.filler
        if argument.kind == "mask":
            taken = taken.reshape(len(rows), *shape[1:-1], taken.shape[-1])
        return taken

    def _add_noise(self, value: Tensor, argument: Argument, layout: Layout) -> Tensor:
        """Replace the content of padded positions by other tokens or vectors."""
        padded = (~self.is_real(layout, argument.groups[0])).to(value.device)
        real = argument.value[self.groups[argument.groups[0]].real.to(value.device)]
        noisy = value.clone()
        noisy[padded] = draw_others(value[padded], real, seed=1)
        return noisy


def draw_others(original: Tensor, real: Tensor, seed: int) -> Tensor:
    """Replace tokens by others of the real ones, or add noise to vectors."""
    try:
        return perturb(original, real, seed)
    except ValueError as error:  # one id only
        raise NotTriedError(str(error).replace("x must", "the example must")) from None


def build_pairs(argument: Argument, rows: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Make the mask of queries and keys of another batch."""
    value: Tensor = argument.value
    if queries.shape[1] == value.shape[-2] and keys.shape[1] == value.shape[-1]:
        given = [torch.arange(size, device=value.device) for size in value.shape[-2:]]
        if bool((queries == given[0]).all() and (keys == given[1]).all()):
            return value.clone() if value.dim() == 2 else value[rows]
    if value.dim() == 2 and is_toeplitz(value):
        steps = [torch.arange(each.shape[1], device=value.device) for each in (queries, keys)]
        distance = steps[1] - steps[0][:, None]
        ahead = value[0][distance.clamp(min=0, max=value.shape[1] - 1)]
        behind = value[:, 0][(-distance).clamp(min=0, max=value.shape[0] - 1)]
        return torch.where(distance >= 0, ahead, behind)
    is_padded = bool((queries == PADDING).any() or (keys == PADDING).any())
    if is_padded and (value.dim() == 2 or argument.real is None):
        raise NotTriedError(f"the mask {argument.name} of queries and keys cannot be padded")
    if value.dim() == 2:
        if bool((queries != queries[:1]).any() or (keys != keys[:1]).any()):
            raise NotTriedError(f"the mask {argument.name} is the same for all rows")
        return value[queries[0][:, None], keys[0]]
    moved = value.movedim((-2, -1), (1, 2))  # (B, L, S, ...)
    queries = torch.where(queries == PADDING, queries.amax(1, keepdim=True), queries)
    taken = moved[rows[:, None, None], queries[:, :, None], keys[:, None]]
    taken[(keys == PADDING)[:, None].expand(taken.shape[:3])] = argument.filler
    return taken.movedim((1, 2), (-2, -1))


def is_toeplitz(mask: Tensor) -> bool:
    """Return whether a mask depends only on the distance of query and key, as a causal one does."""
    return bool((mask[1:, 1:] == mask[:-1, :-1]).all())
