"""Padding: its content, amount and side must not change the outputs of real tokens."""

from torch import Tensor

from transformer_blocks.inspection.comparison import is_valid
from transformer_blocks.inspection.soundness.example import Example, NotTriedError
from transformer_blocks.inspection.soundness.reading import find_parameters
from transformer_blocks.inspection.soundness.subject import Subject

EXTRA = 3  # positions of padding that are added
RESAMPLED = "the outputs have positions that are not those of the inputs"


def find_masked_groups(subject: Subject) -> list[int]:
    """Return the groups whose padding the model can know, from a mask, lengths or an id."""
    if subject.resampled:
        raise NotTriedError(RESAMPLED)
    found = [n for n, group in enumerate(subject.example.groups) if group.has_known_padding]
    if not found:
        raise NotTriedError(
            "the example has neither a padding mask nor lengths; pass them or a padding_id"
        )
    return found


def find_side(subject: Subject, group: int) -> str:
    """Return the side at which a group is padded, or can be padded: left or right."""
    if group in subject.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    side = subject.example.groups[group].side
    if side == "mixed":
        raise NotTriedError("the example has padding on both sides of a sequence or within it")
    return "left" if side == "left" else "right"


def with_padding(subject: Subject, group: int) -> Example:
    """The example with padding in the sequences of a group, which is added if there is none."""
    side = subject.example.groups[group].side
    if side != "none":
        return subject.example
    if group in subject.fixed:
        raise NotTriedError("the example has no padding, and the length cannot be changed")
    return subject.example.padded(group, EXTRA, "right")


def check_padding_content(subject: Subject) -> list[str]:
    """Check that the content of padded positions does not change the outputs of real tokens."""
    problems = []
    for number in find_masked_groups(subject):
        group = subject.example.groups[number]
        if group.has_mask and not has_ids(subject, number):
            padded = with_padding(subject, number)
            noisy = padded.changed(number, ~padded.groups[number].real, seed=1)
            before, after = subject.outputs(padded), subject.outputs(noisy)
            what = f"with the content of its padding ({group.name})"
        else:  # a model that finds padding by its id must find that id, so leave out the padding
            before, after = outputs_without(subject, number)
            what = f"with its padding ({group.name})"
        problems += subject.compare(before, after, what)
    return problems


def has_ids(subject: Subject, number: int) -> bool:
    """Return whether a group holds ids, and the model knows the id of padding."""
    example = subject.example
    values = example.contents(number).values()
    known = getattr(getattr(subject.model, "config", None), "pad_token_id", None) is not None
    has_id = known or example.groups[number].has_padding_id
    return has_id and not any(value.is_floating_point() for value in values)


def outputs_without(subject: Subject, number: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of each row, alone, without and with padding in one group."""
    if number in subject.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    example = subject.example
    group = example.groups[number]
    side = "left" if group.side == "left" else "right"
    counts = group.real.sum(1)
    before: list[Tensor] = []
    after: list[Tensor] = []
    for row in range(example.batch_size):
        extra = int(counts.max() - counts[row]) or EXTRA
        before += subject.outputs(example.padded(number, 0, side, [row]))
        after += subject.outputs(example.padded(number, extra, side, [row]))
    return before, after


def check_padding_amount(subject: Subject) -> list[str]:
    """Check that more padding on the same side changes nothing."""
    problems = []
    for number in find_masked_groups(subject):
        name, side = subject.example.groups[number].name, find_side(subject, number)
        less = subject.outputs(subject.example.padded(number, 0, side))
        more = subject.outputs(subject.example.padded(number, EXTRA, side))
        what = f"with {EXTRA} more positions of padding at the {side} ({name})"
        problems += subject.compare(less, more, what)
    return problems


def check_padding_side(subject: Subject) -> list[str]:
    """Check that padding on the other side changes nothing, if the model knows the positions.

    A model that counts its positions from the first column needs ``position_ids`` for padding at
    the left. If it has no such argument, nothing can be said about its outputs.
    """
    problems = []
    for number in find_masked_groups(subject):
        side = find_side(subject, number)
        other = "right" if side == "left" else "left"
        what = f"with padding at the {other} ({subject.example.groups[number].name})"
        given = subject.example.padded(number, 0, side)
        padded = subject.example.padded(number, EXTRA, other)
        positions = [count_positions(subject, number, each) for each in (given, padded)]
        expected = subject.outputs(given, **positions[0])
        outputs = subject.outputs(padded, **positions[1])
        if not all(bool(is_valid(each).all()) for each in outputs):
            raise NotTriedError(
                f"with padding at the {other}, outputs are not finite: a row whose keys are all "
                "masked may give NaN"
            )
        found = subject.compare(expected, outputs, what)
        if found and subject.group is None:
            raise NotTriedError("outputs differ; the model may read the output of one column")
        if found and not positions[0] and not has_positions(subject, number):
            raise NotTriedError(
                "outputs differ, and the model has no argument position_ids, by which it could be "
                "told"
            )
        problems += found
    return problems


def has_positions(subject: Subject, group: int) -> bool:
    """Return whether the example passes the positions of the tokens of a group."""
    return any(
        argument.kind == "indices" and argument.groups == (group,) and "pos" in argument.name
        for argument in subject.example.arguments
    )


def count_positions(subject: Subject, group: int, example: Example) -> dict[str, Tensor]:
    """Count the positions of the real tokens, if the model has an argument that is not passed.

    It is of the first group.
    """
    takes_positions = "position_ids" in find_parameters(subject.model)
    if group or has_positions(subject, group) or not takes_positions:
        return {}
    count = example.groups[group].real.long().cumsum(1) - 1
    content = next(iter(example.contents(group).values()))
    return {"position_ids": count.clamp(min=0).to(content.device)}
