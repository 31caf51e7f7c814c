"""Batches: equal calls are equal, and each row has the outputs that it has alone."""

import torch
from torch import Tensor

from transformer_blocks.inspection.comparison import (
    NotTriedError,
    describe,
    is_valid,
    measure_scales,
)
from transformer_blocks.inspection.soundness.tested import TestedModel, check_output, first_line


def check_determinism(tested: TestedModel) -> list[str]:
    """Check that two equal calls give equal, finite outputs, and do not modify their inputs."""
    inputs, first = tested.inputs, tested.outputs(tested.inputs)
    tested.scales = measure_scales(torch.cat(first))
    args, kwargs = inputs.build()
    again = check_output(tested.run(*args, **kwargs), inputs.batch_size)  # other random numbers
    problems = [
        f"a call modifies its input {argument.name}"
        for argument, value in zip(inputs.arguments, (*args, *kwargs.values()), strict=True)
        if isinstance(value, Tensor) and not _is_same(value, argument.value)
    ]
    is_finite = [is_valid(output).all(dim=1) & output.isfinite().any(dim=1) for output in first]
    problems += [
        f"the output{tested.at(int(finite.long().argmin()))} of row {row} is not finite"
        for row, finite in enumerate(is_finite)
        if not bool(finite.all())
    ]
    return problems + [
        f"two equal calls differ{tested.at(position)} of row {row}, {describe(size)}; the model "
        "draws random numbers, as dropout does in training mode, or keeps something of earlier "
        "calls"
        for row, position, size in tested.find_changes(first, tested.select(again, inputs))
        if bool(is_finite[row].all())
    ]


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape and numbers; NaN is the same as NaN."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def check_batch(tested: TestedModel) -> list[str]:
    """Check that the outputs of each row do not depend on the other rows."""
    inputs = tested.inputs
    expected = tested.outputs(inputs)
    alone: list[Tensor] = []
    for row in range(inputs.batch_size):
        try:
            alone += tested.outputs(inputs.take([row], {}))
        except NotTriedError:
            raise
        except Exception as error:
            return [f"row {row} alone raises {type(error).__name__}: {first_line(error)}"]
    problems = tested.compare(expected, alone, "if its row is processed alone")
    is_padded = any(group.has_known_padding and group.side != "none" for group in inputs.groups)
    if is_padded and not tested.resampled and not tested.fixed and not problems:
        trimmed = [tested.outputs(inputs.alone(row))[0] for row in range(inputs.batch_size)]
        return tested.compare(expected, trimmed, "if its row is processed alone without padding")
    return problems
