"""Dependence: which outputs of a model change with which of its inputs, and causality.

A check of a property returns the violations as sentences, or raises :class:`NotTriedError` with the
reason why the property cannot be checked. This holds for the other files of this package too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import describe, is_valid
from transformer_blocks.inspection.soundness.example import (
    Argument,
    Example,
    NotTriedError,
    is_toeplitz,
)
from transformer_blocks.inspection.soundness.subject import Subject

PROBED = 16  # positions of a long sequence that are changed, one at a time
ROUNDING = 1e-4  # change by rounding, as a part of a change that another token causes
DISTANCES = 7  # between tokens that change places; relative positions may be exact up to 8 only
BLOCK = 64  # positions that kernels and chunked models compute at once; also 128, 256, ...


@dataclass(frozen=True)
class Dependence:
    """How much each output changes with each input, in standard deviations; zero if not at all.

    Attributes:
        sizes: Of shape (B, L, L): row, output position, input position.
        probed: Which input positions were changed, of shape (L,).
        real: Which positions hold real tokens, of shape (B, L).
    """

    sizes: Tensor
    probed: Tensor
    real: Tensor

    @property
    def later(self) -> Tensor:
        """Where an output depends on a later input, of shape (B, L, L)."""
        return self.sizes.gt(0).triu(1)

    def find_hidden(self, subject: Subject, group: int) -> Tensor:
        """Where the user or the masks of the example hide inputs from outputs, (B, L, L)."""
        hidden = torch.zeros_like(self.sizes, dtype=torch.bool)
        if subject.dependence_mask is not None:
            return hidden | subject.dependence_mask.expand(len(hidden), 1, -1, -1)[:, 0].cpu()
        for argument in subject.example.arguments:
            if argument.kind == "pairs" and argument.groups == (group, group):
                mask: Tensor = argument.value.detach().cpu()
                own = mask.diagonal(dim1=-2, dim2=-1).flatten().double().mode().values
                mask = (mask != own).view(-1, *mask.shape[-2:])  # (1 | B * H, L, L)
                heads = mask.view(len(hidden) if argument.has_rows else 1, -1, *mask.shape[-2:])
                hidden |= heads.all(1)
            elif argument.name.startswith("document") and argument.groups == (group,):
                hidden |= (argument.value[:, :, None] != argument.value[:, None]).cpu()
        return hidden

    @property
    def earlier(self) -> Tensor:
        """Where an output depends on an earlier input, of shape (B, L, L)."""
        return self.sizes.gt(0).tril(-1)


def find_dependence(subject: Subject, group: int) -> Dependence:
    """Change each position of the sequence to which the outputs belong, one at a time."""
    example = subject.example
    real = example.groups[group].real
    rows, length = real.shape
    expected = subject.outputs(example)
    sizes = torch.zeros(rows, length, length)
    probed = torch.tensor(choose_positions(length))
    for position in probed.tolist():
        where = example.groups[group].at(position)
        if not bool(where.any()):
            continue
        outputs = subject.outputs(example.changed(group, where, seed=position))
        for row, (a, b) in enumerate(zip(expected, outputs, strict=True)):
            if bool(where[row].any()):
                sizes[row, real[row], position] = subject.measure(a, b, exact=True).float()
    return Dependence(sizes, torch.zeros(length).bool().index_fill(0, probed, True), real)


def choose_positions(length: int) -> list[int]:
    """Choose the positions to change: all of a short sequence; some, and borders, of a long one."""
    evenly = torch.linspace(0, length - 1, min(length, PROBED)).round().long().tolist()
    borders = [BLOCK << doubled for doubled in range(length.bit_length())]
    beside = {border + side for border in borders for side in (-1, 0)}
    return sorted({*evenly, *(position for position in beside if position < length)})


def check_causality(subject: Subject, group: int, dependence: Dependence) -> list[str]:
    """Check that no output depends on a later position, and that outputs depend on earlier ones."""
    hidden, is_causal = dependence.find_hidden(subject, group), True
    wrong, why = dependence.later, "which comes later"
    if subject.dependence_mask is not None:
        wrong, why = dependence.sizes.gt(0) & hidden, "which dependence_mask hides"
        is_causal = bool((hidden | torch.ones_like(hidden).tril()).all())
    problems = [
        f"position {output} of row {row} changes with position {position}, {why}, "
        f"{describe(float(dependence.sizes[row, output, position]))}"
        for row, output, position in wrong.nonzero().tolist()
    ]
    if not problems and is_causal and group not in subject.fixed:
        problems = [*check_prefix(subject, group), *check_longer(subject, group)]
    if not bool(dependence.earlier.any()):
        return [*problems, "no output depends on an earlier position"]
    if not bool(dependence.probed.all()):
        return problems
    has_earlier = (dependence.real[:, None] & ~hidden).tril(-1).any(2)
    alone = dependence.real & has_earlier & ~dependence.earlier.any(dim=2)
    return problems + [
        f"position {output} of row {row} changes with no earlier position"
        for row, output in alone.nonzero().tolist()
    ]


def check_prefix(subject: Subject, group: int) -> list[str]:
    """Check that the outputs of a prefix are the same without the last token."""
    example = subject.example
    row = example.groups[group].longest
    whole = [output[:-1] for output in subject.outputs(example.alone(row))]
    prefix = subject.outputs(example.alone(row, without=group))
    return subject.compare(whole, prefix, "if its last token is left out", first_row=row)


def check_longer(subject: Subject, group: int) -> list[str]:
    """Check sequences beyond the length of the example, whose last tokens are all changed.

    The tokens of one row are repeated to fill two more blocks, or fewer if the model allows fewer.
    Positions that a table does not have raise an error on a CPU, and end the program on a GPU.
    """
    example = subject.example
    if any(value.device.type != "cpu" for value in example.contents(group).values()):
        return []
    pairs = [each for each in example.arguments if each.kind == "pairs"]
    if any(each.has_rows or not is_toeplitz(each.value) for each in pairs):
        return []  # a mask that has the length of the example
    row = example.groups[group].longest
    alone = example.alone(row)
    tokens = alone.groups[group].length
    block = BLOCK * (tokens // BLOCK + 1)
    for length in (block + BLOCK + 2, block + 2, BLOCK // 2 + 2, BLOCK // 4 + 2):
        try:
            repeated = alone.take([0], {group: torch.arange(length)[None] % tokens})
            return _check_suffixes(subject, group, repeated, row)
        except Exception:  # whatever a model raises that takes fewer tokens
            continue
    return []


def _check_suffixes(subject: Subject, group: int, example: Example, row: int) -> list[str]:
    """Change all tokens from a position on: no output before it changes."""
    length = example.groups[group].length
    expected, problems = subject.outputs(example)[0], []
    for position in choose_positions(length)[1:]:
        suffix = torch.arange(length)[None] >= position
        outputs = subject.outputs(example.changed(group, suffix, seed=1))[0]
        sizes = subject.measure(expected[:position], outputs[:position], exact=True)
        if bool(is_valid(expected).all() and sizes.any()):
            problems.append(
                f"position {int(sizes.argmax())} of row {row}, repeated to {length} tokens, "
                f"changes with the tokens from {position} on, {describe(float(sizes.max()))}"
            )
    return problems


def check_order(subject: Subject) -> list[str]:
    """Check that outputs depend on the order of the tokens, and not only on which ones there are.

    The last token stays where it is. The output there, or all outputs that belong to another
    sequence, must change if the tokens before it change places, and if only the two nearest do:
    these have one position if positions are limited to a maximum.
    """
    if subject.group is None:
        raise NotTriedError("there is one output for each row, which may be meant to have no order")
    groups, expected = subject.example.groups, subject.outputs(subject.example)
    answers = [_find_unordered(subject, number, expected) for number in range(len(groups))]
    if all(answer is None for answer in answers):
        raise NotTriedError(
            "no output depends on the ids of other tokens; vectors may have positions already"
        )
    return [
        f"outputs depend on the {answer} of {group.name}, and not on their order"
        for group, answer in zip(groups, answers, strict=True)
        if answer
    ]


def _find_unordered(subject: Subject, number: int, expected: list[Tensor]) -> str | None:
    """Name the ids of a group whose order has no effect; None if no outputs depend on the ids."""
    example = subject.example
    group, contents = example.groups[number], example.contents(number)
    if any(value.is_floating_point() for value in contents.values()):
        return None  # vectors, to which positions may have been added
    compared = slice(-1 if number == subject.group else 0, None)

    def largest_change(places: Tensor, *, exact: bool = False) -> float:
        """Return how much outputs change if each position holds the token of another one."""
        values = {each: value.gather(1, places.to(value)) for each, value in contents.items()}
        outputs = subject.outputs(example.replaced(values))
        pairs = zip(expected, outputs, strict=True)
        changes = [subject.measure(a, b, exact=exact)[compared] for a, b in pairs]
        return max((float(change.max()) for change in changes if change.numel()), default=0.0)

    given = torch.arange(group.length).repeat(example.batch_size, 1)
    repeated, reversed_, rolled = (given.clone() for _ in range(3))
    for row, real in enumerate(group.real):
        before, last = real.nonzero().flatten().tensor_split([-1])
        repeated[row, before] = last
        reversed_[row, before], rolled[row, before] = before.flip(0), before.roll(1)
    if not largest_change(repeated):
        return None
    if not largest_change(reversed_) and not largest_change(rolled):
        return "tokens"
    return _find_equal_positions(subject, number, compared)


def _find_equal_positions(subject: Subject, number: int, compared: slice) -> str:
    """Describe two positions whose tokens can change places; an empty string if there are none.

    The longest sequence is repeated. In one row the last token but one, and a token some positions
    before it, change places, and in another row the one has a copy of the other.
    """
    example = subject.example
    row = example.groups[number].longest
    *before, _ = example.groups[number].real[row].nonzero().flatten().tolist()
    distances = range(1, min(len(before), DISTANCES + 1))
    index = torch.arange(example.groups[number].length).repeat(1 + 2 * len(distances), 1)
    for distance in distances:
        near, far = before[-1], before[-1 - distance]
        index[2 * distance - 1 :, near][:2] = far
        index[2 * distance - 1, far] = near
    repeated = example.take([row] * len(index), {})
    values = {
        each: value.gather(1, index.to(value.device))
        for each, value in repeated.contents(number).items()
    }
    first, *others = subject.outputs(repeated.replaced(values))
    sizes = [float(subject.measure(first, each, exact=True)[compared].max()) for each in others]
    for distance, (of_swap, of_copy) in enumerate(zip(sizes[::2], sizes[1::2], strict=True), 1):
        if of_swap < ROUNDING * of_copy:
            return f"tokens {distance} positions apart" if distance > 1 else "last tokens"
    return ""


def is_causal(subject: Subject, group: int, dependence: Dependence) -> bool:
    """Decide whether outputs must not depend on later positions.

    They must not if the arguments of the model say so, if it has a source and a target, or if they
    depend on all earlier positions and on much fewer later ones, as with a shifted causal mask.
    """
    later, earlier = int(dependence.later.sum()), int(dependence.earlier.sum())
    if not later:
        return earlier > 0
    own = subject.example.groups[group]
    is_target = "target" in own.roles and "query" not in own.name.lower()
    if (is_target and len(subject.example.groups) > 1) or declares_causal(subject):
        return True
    pairs = dependence.real[:, :, None] & (dependence.real & dependence.probed)[:, None]
    return earlier == int(pairs.tril(-1).sum()) and later < 0.7 * int(pairs.triu(1).sum())


def declares_causal(subject: Subject) -> bool:
    """Return whether one of the model's arguments says that it is causal."""
    return any(
        ("causal" in argument.name.lower() and argument.value is True)
        or (argument.kind == "pairs" and _is_triangular(argument))
        for argument in subject.example.arguments
    )


def _is_triangular(argument: Argument) -> bool:
    """Return whether a mask of queries and keys hides all later keys and no earlier ones."""
    masks = argument.value.flatten(0, -3) if argument.value.dim() > 2 else argument.value[None]
    mask: Tensor = masks[0]
    if not is_toeplitz(mask) or mask.shape[0] != mask.shape[1] or len(mask) < 2:
        return False
    if bool((masks != mask).any()):
        return False
    later, earlier = mask[0, 1:], mask[1:, 0]
    return bool((later == later[0]).all() and (earlier != later[0]).all())
