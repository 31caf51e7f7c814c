"""Properties of outputs: how they may depend on positions, on padding and on the other rows.

Each check calls the model with changed inputs. It returns the violations as sentences, or raises
:class:`NotTriedError` with the reason why the property cannot be checked.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.inspection.comparison import measure_deviation
from transformer_blocks.inspection.example import (
    Argument,
    Layout,
    NotTriedError,
    change,
    is_toeplitz,
)
from transformer_blocks.inspection.subject import Subject, describe, first_line

PROBED = 16  # positions of a long sequence that are changed, one at a time
EXTRA = 3  # positions of padding that are added


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

    @property
    def earlier(self) -> Tensor:
        """Where an output depends on an earlier input, of shape (B, L, L)."""
        return self.sizes.gt(0).tril(-1)


def check_determinism(subject: Subject) -> list[str]:
    """Check that two equal calls give equal, finite outputs, and do not modify their inputs."""
    example, layout = subject.example, subject.example.given()
    args, kwargs = example.build(layout)
    before, named_before = example.build(layout)
    outputs = []
    for _ in range(2):  # with other random numbers in the second call
        outputs.append(subject.run(args, kwargs, len(layout.rows)))
    problems = []
    pairs = [*zip(args, before, strict=True), *((kwargs[k], named_before[k]) for k in kwargs)]
    names = [argument.name for argument in example.arguments]
    for name, (after, value) in zip(names, pairs, strict=True):
        if isinstance(after, Tensor) and not torch.equal(after, value):
            problems.append(f"a call modifies its input {name}")
    is_module = isinstance(subject.model, nn.Module)
    hint = "dropout may be left on" if is_module else "set the model within to evaluation mode"
    first, second = (subject.select(output, layout) for output in outputs)
    subject.deviation = measure_deviation(torch.cat([each.flatten() for each in first]))
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        wrong = (~a.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if wrong:
            problems.append(f"the output{subject.at(wrong[0])} of row {row} is not finite")
            continue
        sizes = subject.changes(a, b)
        if bool(sizes.any()):
            problems.append(
                f"two equal calls differ{subject.at(int(sizes.argmax()))} of "
                f"row {row}, {describe(float(sizes.max()))}; {hint}"
            )
    return problems


def find_dependence(subject: Subject, *, flip: int | None = None) -> Dependence:
    """Change each position of the sequence to which the outputs belong, one at a time."""
    example, layout, group = subject.example, subject.example.given(), subject.group
    if group is None:
        raise NotTriedError("there is one output for each row, not one for each position")
    real = example.groups[group].real
    rows, length = real.shape
    expected = subject(layout, flip=flip)
    sizes = torch.zeros(rows, length, length)
    probed = torch.tensor(probe(length))
    for position in probed.tolist():
        changed = real[:, position]
        if not bool(changed.any()):
            continue
        output = subject(layout, values=change_tokens(subject, group, position), flip=flip)
        own = [subject.select(each, layout) for each in (expected, output)]
        for row, (a, b) in enumerate(zip(*own, strict=True)):
            if bool(changed[row]):
                sizes[row, real[row], position] = subject.changes(a, b, exact=True).float()
    return Dependence(sizes, torch.zeros(length).bool().index_fill(0, probed, True), real)


def probe(length: int) -> list[int]:
    """Choose the positions to change: all of a short sequence, or some of a long one."""
    return torch.linspace(0, length - 1, min(length, PROBED)).round().long().tolist()


def change_tokens(
    subject: Subject, group: int, position: int, rows: Tensor | None = None
) -> dict[int, Tensor]:
    """Change the real tokens at one position of a group, in some rows or in all."""
    example = subject.example
    real = example.groups[group].real
    chosen = real[:, position] if rows is None else rows & real[:, position]
    values: dict[int, Tensor] = {}
    done: list[tuple[Tensor, Tensor]] = []
    for number in example.contents(group):
        value = example.arguments[number].value
        same = [changed for original, changed in done if original is value]
        where = chosen.to(value.device)
        values[number] = (
            same[0] if same else change(value, where, position, value[real.to(value.device)])
        )
        done.append((value, values[number]))
    return values


def check_causality(subject: Subject, dependence: Dependence) -> list[str]:
    """Check that no output depends on a later position, and that outputs depend on earlier ones."""
    problems = []
    for row, output, position in dependence.later.nonzero().tolist():
        size = describe(float(dependence.sizes[row, output, position]))
        problems.append(
            f"position {output} of row {row} changes with position {position}, which comes later, "
            f"{size}"
        )
    if not bool(dependence.earlier.any()):
        return [*problems, "no output depends on an earlier position"]
    if not bool(dependence.probed.all()):
        return problems
    has_earlier = dependence.real.cumsum(1).roll(1, 1) > 0
    has_earlier[:, 0] = False
    alone = dependence.real & has_earlier & ~dependence.earlier.any(dim=2)
    return problems + [
        f"position {output} of row {row} changes with no earlier position"
        for row, output in alone.nonzero().tolist()
    ]


def is_causal(subject: Subject, dependence: Dependence) -> bool:
    """Decide whether outputs must not depend on later positions.

    They must not if the model or its arguments say so, if it has a source and a target, or if they
    depend on all earlier positions and on much fewer later ones, as with a shifted causal mask.
    """
    later, earlier = int(dependence.later.sum()), int(dependence.earlier.sum())
    if not later:
        return earlier > 0
    own = subject.example.groups[subject.group or 0]
    others = [group for group in subject.example.groups if group is not own]
    is_decoder = "target" in own.roles and "query" not in own.name.lower()
    if (is_decoder and others) or declares_causal(subject):
        return True
    pairs = dependence.real[:, :, None] & (dependence.real & dependence.probed)[:, None]
    return earlier == int(pairs.tril(-1).sum()) and later < 0.7 * int(pairs.triu(1).sum())


def declares_causal(subject: Subject) -> bool:
    """Whether the model or one of its arguments says that it is causal."""
    model = subject.model
    for argument in subject.example.arguments:
        if "causal" in argument.name.lower() and argument.value is True:
            return True
        if argument.kind == "pairs" and _is_triangular(argument):
            return True
    config = getattr(model, "config", None)
    is_both = getattr(config, "is_encoder_decoder", False)
    if getattr(config, "is_decoder", False) and not is_both:
        return True
    if "CausalLM" in type(model).__name__ or "GPT" in type(model).__name__:
        return True
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return not is_both and any(
        getattr(module, name, None) is True
        for module in modules
        for name in ("causal", "is_causal")
    )


def _is_triangular(argument: Argument) -> bool:
    """Whether a mask of queries and keys hides all later keys and no earlier ones."""
    mask: Tensor = argument.value
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1] or len(mask) < 2 or not is_toeplitz(mask):
        return False
    later, earlier = mask[0, 1:], mask[1:, 0]
    return bool((later == later[0]).all() and (earlier != later[0]).all())


def padded_layouts(subject: Subject, group: int) -> Layout:
    """The batch with padding in the sequences of a group: as given, or added if there is none."""
    side = subject.example.groups[group].side
    if side != "none":
        return subject.example.given()
    if group in subject.fixed:
        raise NotTriedError("the example has no padding, and the length cannot be changed")
    return subject.example.padded(group, EXTRA, "right")


def check_polarity(subject: Subject) -> list[str]:
    """Check that masks hide padding and not the real tokens; find inverted ones."""
    groups = [n for n, group in enumerate(subject.example.groups) if _has_mask(subject, n)]
    by_id = [n for n, group in enumerate(subject.example.groups) if group.has_padding_id]
    if not groups and not by_id:
        raise NotTriedError("no argument of the example is a padding mask")
    problems, reasons = [], []
    for number in by_id:
        if number not in groups and not _visible_by_id(subject, number):
            problems.append(
                f"the mask that the model makes from {subject.example.groups[number].name} is "
                "inverted: outputs depend on padding and on no other real token"
            )
    for number in groups:
        name = subject.example.groups[number].name
        try:
            given, flipped = _both_visible(subject, number, padded_layouts(subject, number))
            if given == flipped and number not in subject.fixed:
                # In a causal model, padding at the right comes later, and no mask is needed.
                left = subject.example.padded(number, EXTRA, "left")
                given, flipped = _both_visible(subject, number, left)
        except NotTriedError as reason:
            reasons.append(str(reason))
            continue
        if given == flipped:
            reasons.append(f"the mask of {name} makes no difference here")
        elif given != (False, True) and flipped == (False, True):
            problems.append(
                f"the mask of {name} is inverted: it hides the real tokens, and with the opposite "
                "mask, padding is hidden"
            )
    if not problems and groups and len(reasons) == len(groups):
        raise NotTriedError("; ".join(reasons))
    return problems


def _has_mask(subject: Subject, group: int) -> bool:
    return any(
        each.kind == "mask" and each.groups == (group,) for each in subject.example.arguments
    )


def _both_visible(
    subject: Subject, group: int, layout: Layout
) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Return what is visible with the mask as it is, and with its opposite."""
    return _visible(subject, group, layout, None), _visible(subject, group, layout, group)


def _visible(subject: Subject, group: int, layout: Layout, flip: int | None) -> tuple[bool, bool]:
    """Return whether outputs depend on padding, and whether they depend on other real tokens."""
    example = subject.example
    plain = subject.real(layout, flip=flip)
    finite = [bool(each.isfinite().all()) for each in plain]
    noisy = subject.real(layout, flip=flip, noise=group)
    real = example.is_real(layout, group)
    rows = [row for row in range(len(real)) if not bool(real[row].all()) and finite[row]]
    sees_padding = any(
        bool(subject.changes(plain[row], noisy[row], exact=True).any()) for row in rows
    )
    sees_real = False
    for position in probe(example.groups[group].length):
        values = change_tokens(subject, group, position)
        after = subject.real(layout, flip=flip, values=values)
        for row in rows:
            sizes = subject.changes(plain[row], after[row], exact=True)
            if group == subject.group:
                kept = example.groups[group].real[row].nonzero().flatten() != position
                sizes = sizes[kept]
            sees_real |= bool(sizes.any())
        if sees_real:
            break
    return sees_padding, sees_real


def _visible_by_id(subject: Subject, number: int) -> bool:
    """Whether outputs depend on other real tokens, if they depend on what stands beside their own.

    The model finds padding by its id, so that its mask cannot be changed, but padding can.
    """
    if number in subject.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    example = subject.example
    longest = int(example.groups[number].real.sum(1).argmax())
    changes = []
    for side in ("left", "right"):
        layout = example.padded(number, EXTRA, side, [longest])
        before, filled = subject.real(layout)[0], subject.real(layout, noise=number)[0]
        changes.append(bool(subject.changes(before, filled, exact=True).any()))
        for position in example.groups[number].real[longest].nonzero().flatten().tolist():
            values = change_tokens(subject, number, position)
            sizes = subject.changes(before, subject.real(layout, values=values)[0], exact=True)
            if subject.group == number:
                real = example.groups[number].real[longest].nonzero().flatten()
                sizes = sizes[real != position]
            if bool(sizes.any()):
                return True
    return not any(changes)


def check_padding_content(subject: Subject) -> list[str]:
    """Check that what stands at padded positions does not change the outputs of real tokens."""
    problems = []
    for number in told(subject):
        group = subject.example.groups[number]
        found = []
        if group.has_mask:
            layout = padded_layouts(subject, number)
            noisy = zip(subject.real(layout), subject.real(layout, noise=number), strict=True)
            found = compare(subject, noisy, f"with the content of its padding ({group.name})")
        if not group.has_mask or (found and has_ids(subject, number)):
            # A model that finds padding by its id must find that id, so leave out the padding.
            pairs = compare_without(subject, number)
            confirmed = compare(subject, pairs, f"with its padding ({group.name})")
            problems += (found or confirmed) if confirmed else []
        else:
            problems += found
    return problems


def has_ids(subject: Subject, number: int) -> bool:
    """Whether a group holds ids, and the model knows one of padding."""
    example = subject.example
    values = [example.arguments[content].value for content in example.contents(number)]
    known = getattr(getattr(subject.model, "config", None), "pad_token_id", None) is not None
    has_id = known or example.groups[number].has_padding_id
    return has_id and not any(value.is_floating_point() for value in values)


def compare_without(subject: Subject, number: int) -> list[tuple[Tensor, Tensor]]:
    """Return the outputs of each row, alone, without and with padding in one group."""
    if number in subject.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    example = subject.example
    group = example.groups[number]
    side = "left" if group.side == "left" else "right"
    counts = group.real.sum(1)
    pairs = []
    for row in range(example.batch_size):
        extra = int(counts.max() - counts[row]) or EXTRA
        without, padded = (
            subject.real(example.padded(number, size, side, [row]))[0] for size in (0, extra)
        )
        pairs.append((without, padded))
    return pairs


def told(subject: Subject) -> list[int]:
    """The groups whose padding the model is told of."""
    found = [n for n, group in enumerate(subject.example.groups) if group.is_told]
    if not found:
        raise NotTriedError(
            "the example has neither a padding mask nor lengths; pass them or a padding_id"
        )
    return found


def check_padding_amount(subject: Subject) -> list[str]:
    """Check that more padding on the same side changes nothing."""
    problems = []
    for number in told(subject):
        group = subject.example.groups[number]
        if number in subject.fixed:
            raise NotTriedError("the length of the inputs cannot be changed")
        if group.side == "mixed":
            raise NotTriedError("the example has padding on both sides of a sequence or within it")
        side = "left" if group.side == "left" else "right"
        less = subject.real(subject.example.padded(number, 0, side))
        more = subject.real(subject.example.padded(number, EXTRA, side))
        problems += compare(
            subject,
            zip(less, more, strict=True),
            f"with {EXTRA} more positions of padding at the {side} ({group.name})",
        )
    return problems


def check_padding_side(subject: Subject) -> list[str]:
    """Check that padding on the other side changes nothing, where the model can be told of it.

    A model that counts its positions from the first column needs ``position_ids`` for padding at
    the left. If it has no such argument, nothing can be said about its outputs.
    """
    problems = []
    for number in told(subject):
        group = subject.example.groups[number]
        if number in subject.fixed:
            raise NotTriedError("the length of the inputs cannot be changed")
        if group.side == "mixed":
            raise NotTriedError("the example has padding on both sides of a sequence or within it")
        side, other = ("left", "right") if group.side == "left" else ("right", "left")
        expected = subject.real(subject.example.padded(number, 0, side))
        layout = subject.example.padded(number, EXTRA, other)
        outputs = subject.real(layout)
        if not all(bool(each.isfinite().all()) for each in outputs):
            raise NotTriedError(
                f"with padding at the {other}, outputs are not finite: a row whose keys are all "
                "masked may give NaN"
            )
        found = compare_sides(subject, expected, outputs, other, group.name)
        if found and subject.group is None:
            raise NotTriedError("outputs differ; the model may read the output of one column")
        if found and not has_positions(subject, number):
            positions = positions_of(subject, number, layout)
            told_so = subject.example.padded(number, 0, side)
            again = subject.real(told_so, more=positions_of(subject, number, told_so))
            if compare_sides(subject, expected, again, other, group.name):
                raise NotTriedError("position_ids do not count from 0, so that they are not known")
            after = subject.real(layout, more=positions)
            found = compare_sides(subject, expected, after, other, group.name)
        problems += found
    return problems


def compare_sides(
    subject: Subject, before: list[Tensor], after: list[Tensor], side: str, name: str
) -> list[str]:
    """Describe the changes by padding on another side."""
    return compare(subject, zip(before, after, strict=True), f"with padding at the {side} ({name})")


def has_positions(subject: Subject, group: int) -> bool:
    """Whether the example passes the positions of the tokens of a group."""
    return any(
        argument.kind == "beside" and argument.groups == (group,) and "pos" in argument.name
        for argument in subject.example.arguments
    )


def positions_of(subject: Subject, group: int, layout: Layout) -> dict[str, Tensor]:
    """Count the positions of the real tokens, if the model has an argument for them."""
    model = subject.model
    function = model.forward if isinstance(model, nn.Module) else model
    if "position_ids" not in inspect.signature(function).parameters or group != 0:
        raise NotTriedError(
            "outputs differ, and the model has no argument position_ids, by which it could be told"
        )
    count = subject.example.is_real(layout, group).long().cumsum(1) - 1
    content = subject.example.arguments[subject.example.contents(group)[0]].value
    return {"position_ids": count.clamp(min=0).to(content.device)}


def compare(subject: Subject, pairs: Any, what: str) -> list[str]:
    """Describe the largest change in each row, given pairs of outputs of real tokens."""
    problems = []
    for row, (before, after) in enumerate(pairs):
        sizes = subject.changes(before, after)
        if bool(sizes.any()):
            position = int(sizes.argmax())
            problems.append(
                f"the output{subject.at(position)} of row {row} changes {what}, "
                f"{describe(float(sizes[position]))}"
            )
    return problems


def check_batch(subject: Subject) -> list[str]:
    """Check that each row has the outputs that it has alone, whatever the other rows hold."""
    example, given = subject.example, subject.example.given()
    expected = subject.real(given)
    problems = []
    alone = []
    for row in range(example.batch_size):
        try:
            alone.append((expected[row], subject.real(example.given([row]))[0]))
        except NotTriedError:
            raise
        except Exception as error:
            return [f"row {row} alone: {type(error).__name__}: {first_line(error)}"]
    problems += compare(subject, alone, "if its row is processed alone")
    can_trim = not subject.fixed and any(
        group.is_told and group.side != "none" for group in example.groups
    )
    if can_trim and not problems:
        trimmed = [
            (expected[row], subject.real(example.alone(row))[0])
            for row in range(example.batch_size)
        ]
        problems += compare(subject, trimmed, "if its row is processed alone without padding")
    if example.batch_size < 2:
        return problems
    order = [*reversed(range(example.batch_size))]
    reordered = subject.real(example.given(order))
    pairs = [(expected[row], reordered[order.index(row)]) for row in range(example.batch_size)]
    problems += compare(subject, pairs, "if the order of the rows is reversed")
    first = torch.zeros(example.batch_size, dtype=torch.bool).index_fill(0, torch.tensor([0]), True)
    values: dict[int, Tensor] = {}
    for number, group in enumerate(example.groups):
        for position in group.real[0].nonzero().flatten().tolist():
            changed = change_tokens(subject, number, position, first)
            for argument, value in changed.items():
                before = values.get(argument, example.arguments[argument].value).clone()
                before[0, position] = value[0, position]
                values[argument] = before
    after = subject.real(given, values=values)
    others = list(zip(expected, after, strict=True))
    others[0] = (expected[0], expected[0])
    return problems + compare(subject, others, "if row 0 holds another sequence")
