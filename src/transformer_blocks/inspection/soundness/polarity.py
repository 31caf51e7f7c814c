"""Polarity of masks: whether a mask hides padding, and not the real tokens."""

from torch import Tensor

from transformer_blocks.inspection.comparison import is_valid
from transformer_blocks.inspection.soundness.dependence import choose_positions
from transformer_blocks.inspection.soundness.example import Example, NotTriedError
from transformer_blocks.inspection.soundness.padding import EXTRA, RESAMPLED, with_padding
from transformer_blocks.inspection.soundness.subject import Subject


def check_polarity(subject: Subject) -> list[str]:
    """Check that masks hide padding and not the real tokens; find inverted ones."""
    masks = [each for each in subject.example.arguments if each.kind == "mask"]
    groups = sorted({each.groups[0] for each in masks})
    if not groups:
        raise NotTriedError("no argument of the example is a padding mask")
    if subject.resampled:
        raise NotTriedError(RESAMPLED)
    problems, reasons = [], []
    for number in groups:
        name = subject.example.groups[number].name
        try:
            given, flipped = _compare_masks(subject, number, with_padding(subject, number))
            if given == flipped and number not in subject.fixed:
                # In a causal model, padding at the right comes later, and no mask is needed.
                left = subject.example.padded(number, EXTRA, "left")
                given, flipped = _compare_masks(subject, number, left)
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
    if not problems and len(reasons) == len(groups):
        raise NotTriedError("; ".join(reasons))
    return problems


def _compare_masks(subject: Subject, group: int, example: Example) -> list[tuple[bool, bool]]:
    """Return which tokens are visible with the given mask, and with the inverted mask."""
    examples = example, example.inverted(group)
    return [_find_visible_tokens(subject, group, each) for each in examples]


def _find_visible_tokens(subject: Subject, group: int, example: Example) -> tuple[bool, bool]:
    """Return whether outputs depend on padding, and whether they depend on other real tokens."""
    expected, real = subject.outputs(example), example.groups[group].real
    finite = [bool(is_valid(each).all()) for each in expected]
    is_full = real.all(dim=1).tolist()
    rows = [row for row in range(len(expected)) if finite[row] and not is_full[row]]

    def find_changes(where: Tensor, seed: int) -> list[tuple[int, Tensor]]:
        """List the rows, and the changes of the outputs of their real tokens."""
        outputs = subject.outputs(example.changed(group, where, seed))
        return [(row, subject.measure(expected[row], outputs[row], exact=True)) for row in rows]

    sees_padding = any(bool(sizes.any()) for _, sizes in find_changes(~real, 1))
    for position in choose_positions(real.shape[1]):
        for row, sizes in find_changes(example.groups[group].at(position), position):
            if group == subject.group:
                sizes = sizes[real[row].nonzero().flatten() != position]
            if bool(sizes.any()):
                return sees_padding, True
    return sees_padding, False
