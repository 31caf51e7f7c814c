"""Batches: equal calls are equal, and each row has the outputs that it has alone."""

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import describe, is_valid, measure_scales
from transformer_blocks.inspection.soundness.example import NotTriedError
from transformer_blocks.inspection.soundness.subject import Subject, call, first_line


def check_determinism(subject: Subject) -> list[str]:
    """Check that two equal calls give equal, finite outputs, and do not modify their inputs."""
    example = subject.example
    args, kwargs = example.build()
    # With other random numbers in the second call.
    outputs = [call(subject.model, args, kwargs, example.batch_size) for _ in range(2)]
    problems = [
        f"a call modifies its input {argument.name}"
        for argument, value in zip(example.arguments, (*args, *kwargs.values()), strict=True)
        if isinstance(value, Tensor) and not torch.equal(value, argument.value)
    ]
    first, second = (subject.select(output, example) for output in outputs)
    subject.scales = measure_scales(torch.cat(first))
    is_finite = [is_valid(output).all(dim=1) & output.isfinite().any(dim=1) for output in first]
    problems += [
        f"the output{subject.at(int(finite.long().argmin()))} of row {row} is not finite"
        for row, finite in enumerate(is_finite)
        if not bool(finite.all())
    ]
    return problems + [
        f"two equal calls differ{subject.at(position)} of row {row}, {describe(size)}; the model "
        "draws random numbers, as dropout does in training mode, or keeps something of earlier "
        "calls"
        for row, position, size in subject.find_changes(first, second)
        if bool(is_finite[row].all())
    ]


def check_batch(subject: Subject) -> list[str]:
    """Check that the outputs of each row do not depend on the other rows."""
    example = subject.example
    expected = subject.outputs(example)
    alone: list[Tensor] = []
    for row in range(example.batch_size):
        try:
            alone += subject.outputs(example.take([row], {}))
        except NotTriedError:
            raise
        except Exception as error:
            return [f"row {row} alone: {type(error).__name__}: {first_line(error)}"]
    problems = subject.compare(expected, alone, "if its row is processed alone")
    if problems and takes_sequence_first(subject):
        problems.insert(
            0,
            "the model seems to take the sequence as its first dimension: pass (L, B), or set "
            "batch_first=True",
        )
    is_padded = any(group.has_known_padding and group.side != "none" for group in example.groups)
    if is_padded and not subject.resampled and not subject.fixed and not problems:
        trimmed = [subject.outputs(example.alone(row))[0] for row in range(example.batch_size)]
        return subject.compare(expected, trimmed, "if its row is processed alone without padding")
    return problems


def takes_sequence_first(subject: Subject) -> bool:
    """Return whether the last column of a batch has the outputs that it has alone."""
    example = subject.example
    rows = range(example.batch_size)
    last = {
        number: torch.full((len(rows), 1), group.length - 1)
        for number, group in enumerate(example.groups)
    }
    try:
        batch, alone = subject(example)[:, -1:], subject(example.take(rows, last))
        return batch.dim() > 1 and not bool(subject.measure(batch, alone).any())
    except Exception:  # whatever a model raises that takes no such batch
        return False
