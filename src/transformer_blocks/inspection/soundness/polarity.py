"""Polarity of masks: whether a mask hides padding, and not the real tokens."""

from transformer_blocks.inspection.soundness.dependence import change_tokens, choose_positions
from transformer_blocks.inspection.soundness.example import Layout, NotTriedError
from transformer_blocks.inspection.soundness.padding import EXTRA, RESAMPLED, padded_layout
from transformer_blocks.inspection.soundness.subject import Subject


def check_polarity(subject: Subject) -> list[str]:
    """Check that masks hide padding and not the real tokens; find inverted ones."""
    groups = [n for n, group in enumerate(subject.example.groups) if _has_mask(subject, n)]
    by_id = [n for n, group in enumerate(subject.example.groups) if group.has_padding_id]
    if not groups and not by_id:
        raise NotTriedError("no argument of the example is a padding mask")
    if subject.group is None and subject.resampled:
        raise NotTriedError(RESAMPLED)
    problems, reasons = [], []
    for number in by_id:
        if number not in groups and _depends_only_on_padding(subject, number):
            problems.append(
                f"the mask that the model makes from {subject.example.groups[number].name} is "
                "inverted: outputs depend on padding and on no other real token"
            )
    for number in groups:
        name = subject.example.groups[number].name
        try:
            given, flipped = _compare_masks(subject, number, padded_layout(subject, number))
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
    if not problems and groups and len(reasons) == len(groups):
        raise NotTriedError("; ".join(reasons))
    return problems


def _has_mask(subject: Subject, group: int) -> bool:
    return any(
        each.kind == "mask" and each.groups == (group,) for each in subject.example.arguments
    )


def _compare_masks(
    subject: Subject, group: int, layout: Layout
) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Return which tokens are visible with the given mask, and with the inverted mask."""
    given, inverted = (_find_visible_tokens(subject, group, layout, flip) for flip in (None, group))
    return given, inverted


def _find_visible_tokens(
    subject: Subject, group: int, layout: Layout, flip: int | None
) -> tuple[bool, bool]:
    """Return whether outputs depend on padding, and whether they depend on other real tokens."""
    example = subject.example
    expected = subject.outputs(layout, flip=flip)
    finite = [bool(each.isfinite().all()) for each in expected]
    noisy = subject.outputs(layout, flip=flip, noise=group)
    real = example.is_real(layout, group)
    rows = [row for row in range(len(real)) if not bool(real[row].all()) and finite[row]]
    sees_padding = any(
        bool(subject.measure(expected[row], noisy[row], exact=True).any()) for row in rows
    )
    positions = choose_positions(example.groups[group].length)
    return sees_padding, _sees_real_tokens(subject, group, layout, positions, rows, flip)


def _sees_real_tokens(
    subject: Subject,
    group: int,
    layout: Layout,
    positions: list[int],
    rows: list[int],
    flip: int | None = None,
) -> bool:
    """Return whether outputs of some rows depend on real tokens at other positions."""
    expected, real = subject.outputs(layout, flip=flip), subject.example.groups[group].real
    for position in positions:
        values = change_tokens(subject, group, position)
        outputs = subject.outputs(layout, flip=flip, values=values)
        for row in rows:
            sizes = subject.measure(expected[row], outputs[row], exact=True)
            if group == subject.group:
                sizes = sizes[real[layout.rows[row]].nonzero().flatten() != position]
            if bool(sizes.any()):
                return True
    return False


def _depends_only_on_padding(subject: Subject, number: int) -> bool:
    """Return whether outputs depend on padding, and on no other real token.

    The model finds padding by its id. So its mask cannot be inverted, but padding can be replaced
    by other ids.
    """
    if number in subject.fixed:
        raise NotTriedError("the length of the inputs cannot be changed")
    example = subject.example
    longest = example.groups[number].longest
    positions = example.groups[number].real[longest].nonzero().flatten().tolist()
    changes = []
    for side in ("left", "right"):
        layout = example.padded(number, EXTRA, side, [longest])
        before, filled = subject.outputs(layout)[0], subject.outputs(layout, noise=number)[0]
        changes.append(bool(subject.measure(before, filled, exact=True).any()))
        if _sees_real_tokens(subject, number, layout, positions, [0]):
            return False
    return any(changes)
