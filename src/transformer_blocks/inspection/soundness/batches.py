"""Batches: equal calls are equal, and each row has the outputs that it has alone."""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection.comparison import describe, measure_deviation
from transformer_blocks.inspection.soundness.dependence import change_tokens
from transformer_blocks.inspection.soundness.example import NotTriedError
from transformer_blocks.inspection.soundness.subject import Subject, call, compare, first_line


def check_determinism(subject: Subject) -> list[str]:
    """Check that two equal calls give equal, finite outputs, and do not modify their inputs."""
    example, layout = subject.example, subject.example.given()
    args, kwargs = example.build(layout)
    args_before, kwargs_before = example.build(layout)
    before, after = (*args_before, *kwargs_before.values()), (*args, *kwargs.values())
    # With other random numbers in the second call.
    outputs = [call(subject.model, args, kwargs, len(layout.rows)) for _ in range(2)]
    problems = [
        f"a call modifies its input {argument.name}"
        for argument, old, new in zip(example.arguments, before, after, strict=True)
        if isinstance(new, Tensor) and not torch.equal(new, old)
    ]
    first, second = (subject.select(output, layout) for output in outputs)
    subject.deviation = measure_deviation(torch.cat([each.flatten() for each in first]))
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        wrong = (~a.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if wrong:
            problems.append(f"the output{subject.at(wrong[0])} of row {row} is not finite")
            continue
        sizes = subject.measure(a, b)
        if bool(sizes.any()):
            problems.append(
                f"two equal calls differ{subject.at(int(sizes.argmax()))} of "
                f"row {row}, {describe(float(sizes.max()))}; {_find_cause(subject)}"
            )
    return problems


def _find_cause(subject: Subject) -> str:
    """Describe why equal calls differ: by random numbers, if they are equal with the same ones."""
    first, second = (subject.outputs(subject.example.given()) for _ in range(2))
    if any(subject.find_changes(zip(first, second, strict=True))):
        return "the model may keep something of earlier calls"
    is_module = isinstance(subject.model, nn.Module)
    hint = "may be left on" if is_module else "may be on: set the model within to evaluation mode"
    return f"the model draws random numbers, and dropout {hint}"


def check_batch(subject: Subject) -> list[str]:
    """Check that the outputs of each row do not depend on the other rows."""
    example, given = subject.example, subject.example.given()
    expected = subject.outputs(given)
    alone = []
    for row in range(example.batch_size):
        try:
            alone.append((expected[row], subject.outputs(example.given([row]))[0]))
        except NotTriedError:
            raise
        except Exception as error:
            return [f"row {row} alone: {type(error).__name__}: {first_line(error)}"]
    problems = compare(subject, alone, "if its row is processed alone")
    is_mapped = subject.group is not None or not subject.resampled
    is_padded = any(group.has_known_padding and group.side != "none" for group in example.groups)
    if is_padded and is_mapped and not subject.fixed and not problems:
        trimmed = [
            (expected[row], subject.outputs(example.alone(row))[0])
            for row in range(example.batch_size)
        ]
        problems += compare(subject, trimmed, "if its row is processed alone without padding")
    if example.batch_size < 2:
        return problems
    order = [*reversed(range(example.batch_size))]
    reordered = subject.outputs(example.given(order))
    pairs = [(expected[row], reordered[order.index(row)]) for row in range(example.batch_size)]
    problems += compare(subject, pairs, "if the order of the rows is reversed")
    first = torch.arange(example.batch_size) == 0
    values: dict[int, Tensor] = {}
    for number, group in enumerate(example.groups):
        for position in group.real[0].nonzero().flatten().tolist():
            changed = change_tokens(subject, number, position, first)
            for argument, value in changed.items():
                before = values.get(argument, example.arguments[argument].value).clone()
                before[0, position] = value[0, position]
                values[argument] = before
    after = subject.outputs(given, values=values)
    others = list(zip(expected, after, strict=True))
    others[0] = (expected[0], expected[0])
    return problems + compare(subject, others, "if row 0 holds another sequence")
