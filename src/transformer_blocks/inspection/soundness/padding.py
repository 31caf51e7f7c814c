"""Padding: masks hide it, and its content, amount and side change no output of real tokens."""

from torch import Tensor

from transformer_blocks.inspection.comparison import NotTriedError, is_valid
from transformer_blocks.inspection.soundness.inputs import Inputs
from transformer_blocks.inspection.soundness.reading import find_parameters
from transformer_blocks.inspection.soundness.tested import TestedModel

EXTRA = 3  # positions of padding that are added
RESAMPLED = "the outputs have positions that are not those of the inputs"


def find_masked_groups(tested: TestedModel) -> list[int]:
    """Return the groups whose padding the model can know, from a mask, lengths or an id."""
    if tested.resampled:
        raise NotTriedError(RESAMPLED)
    found = [n for n, group in enumerate(tested.inputs.groups) if group.has_known_padding]
    if not found:
        raise NotTriedError(
            "the inputs have neither a padding mask nor lengths; pass them or a padding_id"
        )
    return found


def find_side(tested: TestedModel, group: int) -> str:
    """Return the side at which a group is padded, or can be padded: left or right."""
    if group in tested.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    side = tested.inputs.groups[group].side
    if side == "mixed":
        raise NotTriedError("the inputs have padding on both sides of a sequence or within it")
    return "left" if side == "left" else "right"


def with_padding(tested: TestedModel, group: int) -> Inputs:
    """The inputs with padding in the sequences of a group, which is added if there is none."""
    side = tested.inputs.groups[group].side
    if side != "none":
        return tested.inputs
    if group in tested.fixed:
        raise NotTriedError("the inputs have no padding, and the length cannot be changed")
    return tested.inputs.padded(group, EXTRA, "right")


def check_padding_content(tested: TestedModel) -> list[str]:
    """Check that the content of padded positions does not change the outputs of real tokens."""
    problems = []
    for number in find_masked_groups(tested):
        group = tested.inputs.groups[number]
        if group.has_mask and not has_ids(tested, number):
            padded = with_padding(tested, number)
            noisy = padded.changed(number, ~padded.groups[number].real, seed=1)
            before, after = tested.outputs(padded), tested.outputs(noisy)
            what = f"with the content of its padding ({group.name})"
        else:  # a model that finds padding by its id must find that id, so leave out the padding
            before, after = outputs_without(tested, number)
            what = f"with its padding ({group.name})"
        problems += tested.compare(before, after, what)
    return problems


def has_ids(tested: TestedModel, number: int) -> bool:
    """Return whether a group holds ids, and the model knows the id of padding."""
    inputs = tested.inputs
    values = inputs.contents(number).values()
    known = getattr(getattr(tested.model, "config", None), "pad_token_id", None) is not None
    has_id = known or inputs.groups[number].has_padding_id
    return has_id and not any(value.is_floating_point() for value in values)


def outputs_without(tested: TestedModel, number: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of each row, alone, without and with padding in one group."""
    side = find_side(tested, number)
    rows = range(tested.inputs.batch_size)
    before, after = (
        [tested.outputs(tested.inputs.padded(number, extra, side, [row]))[0] for row in rows]
        for extra in (0, EXTRA)
    )
    return before, after


def check_padding_amount(tested: TestedModel) -> list[str]:
    """Check that more padding on the same side changes nothing."""
    problems = []
    for number in find_masked_groups(tested):
        name, side = tested.inputs.groups[number].name, find_side(tested, number)
        less = tested.outputs(tested.inputs.padded(number, 0, side))
        more = tested.outputs(tested.inputs.padded(number, EXTRA, side))
        what = f"with {EXTRA} more positions of padding at the {side} ({name})"
        problems += tested.compare(less, more, what)
    return problems


def check_padding_side(tested: TestedModel) -> list[str]:
    """Check that padding on the other side changes nothing, if the model knows the positions.

    A model that counts its positions from the first column needs ``position_ids`` for padding at
    the left. If it has no such argument, nothing can be said about its outputs.
    """
    problems = []
    for number in find_masked_groups(tested):
        side = find_side(tested, number)
        other = "right" if side == "left" else "left"
        what = f"with padding at the {other} ({tested.inputs.groups[number].name})"
        less = tested.inputs.padded(number, 0, side)
        padded = tested.inputs.padded(number, EXTRA, other)
        positions = [count_positions(tested, number, each) for each in (less, padded)]
        expected = tested.outputs(less, **positions[0])
        outputs = tested.outputs(padded, **positions[1])
        if not all(bool(is_valid(each).all()) for each in outputs):
            raise NotTriedError(
                f"with padding at the {other}, outputs are not finite: a row whose keys are all "
                "masked may give NaN"
            )
        found = tested.compare(expected, outputs, what)
        if found and tested.group is None:
            raise NotTriedError("outputs differ; the model may read the output of one column")
        if found and not positions[0] and not has_positions(tested, number):
            raise NotTriedError(
                "outputs differ, and the model has no argument position_ids, by which it could be "
                "told"
            )
        problems += found
    return problems


def has_positions(tested: TestedModel, group: int) -> bool:
    """Return whether the inputs hold the positions of the tokens of a group."""
    return any(
        argument.kind == "indices" and argument.groups == (group,) and "pos" in argument.name
        for argument in tested.inputs.arguments
    )


def count_positions(tested: TestedModel, group: int, inputs: Inputs) -> dict[str, Tensor]:
    """Count the positions of the real tokens, if the model has an argument that is not passed.

    It is of the first group.
    """
    takes_positions = "position_ids" in find_parameters(tested.model)
    if group or has_positions(tested, group) or not takes_positions:
        return {}
    count = inputs.groups[group].real.long().cumsum(1) - 1
    content = next(iter(inputs.contents(group).values()))
    return {"position_ids": count.clamp(min=0).to(content.device)}


def check_polarity(tested: TestedModel) -> list[str]:
    """Check that masks hide padding and not the real tokens; find inverted ones."""
    masks = [each for each in tested.inputs.arguments if each.kind == "mask"]
    groups = sorted({each.groups[0] for each in masks})
    if not groups:
        raise NotTriedError("no argument of the inputs is a padding mask")
    if tested.resampled:
        raise NotTriedError(RESAMPLED)
    problems, reasons = [], []
    for number in groups:
        name = tested.inputs.groups[number].name
        try:
            original, flipped = _compare_masks(tested, number, with_padding(tested, number))
            if original == flipped and number not in tested.fixed:
                # In a causal model, padding at the right comes later, and no mask is needed.
                left = tested.inputs.padded(number, EXTRA, "left")
                original, flipped = _compare_masks(tested, number, left)
        except NotTriedError as reason:
            reasons.append(str(reason))
            continue
        if original == flipped:
            reasons.append(f"the mask of {name} makes no difference here")
        elif original != (False, True) and flipped == (False, True):
            problems.append(
                f"the mask of {name} is inverted: it hides the real tokens, and with the opposite "
                "mask, padding is hidden"
            )
    if not problems and len(reasons) == len(groups):
        raise NotTriedError("; ".join(reasons))
    return problems


def _compare_masks(tested: TestedModel, group: int, inputs: Inputs) -> list[tuple[bool, bool]]:
    """Return which tokens are visible with the mask, and with the inverted mask."""
    batches = inputs, inputs.inverted(group)
    return [_find_visible_tokens(tested, group, each) for each in batches]


def _find_visible_tokens(tested: TestedModel, group: int, inputs: Inputs) -> tuple[bool, bool]:
    """Return whether outputs depend on padding, and whether they depend on other real tokens."""
    expected, real = tested.outputs(inputs), inputs.groups[group].real
    rows = [
        row
        for row, output in enumerate(expected)
        if bool(is_valid(output).all()) and not bool(real[row].all())
    ]
    last = real.long().cumsum(1) == real.sum(1, keepdim=True)

    def changes(where: Tensor, compared: slice) -> bool:
        outputs = tested.outputs(inputs.changed(group, where, seed=1))
        pairs = [(expected[row][compared], outputs[row][compared]) for row in rows]
        return any(bool(tested.measure(*pair, exact=True).any()) for pair in pairs)

    of_last = slice(-1 if group == tested.group else 0, None)  # which depends on its own token too
    return changes(~real, slice(None)), changes(real & ~last, of_last)
