"""The model under examination: call it with other batches, and compare what it returns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.inspection.comparison import (
    describe,
    epsilon,
    find_output,
    measure_changes,
)
from transformer_blocks.inspection.soundness.example import Example, NotTriedError

SEED = 0


@dataclass
class Subject:
    """A model, the example of its inputs, and what is known about its outputs.

    Attributes:
        model: The module or function.
        example: The batch, read.
        tolerance: Largest change that is ignored, in standard deviations of the outputs; None
            depends on the dtype.
        group: The sequence to whose positions the outputs belong; None if there is one output for
            each row.
        fixed: Groups whose length cannot be changed.
        resampled: Whether outputs have positions that are not those of a sequence, as those of a
            model that subsamples; ``group`` is None then.
        scales: Standard deviation of each feature of the outputs of the example.
        dependence_mask: Where outputs must not depend on inputs, if the user says so.
        recursive: Whether one layer is used several times on purpose.
    """

    model: Callable[..., Any]
    example: Example
    tolerance: float | None = None
    group: int | None = None
    fixed: frozenset[int] = frozenset()
    resampled: bool = False
    scales: Tensor | None = None
    dependence_mask: Tensor | None = None
    recursive: bool = False

    @property
    def module(self) -> nn.Module:
        """The model, if it is a module."""
        if not isinstance(self.model, nn.Module):
            raise NotTriedError("the model is a function; pass the module itself")
        return self.model

    def __call__(self, example: Example, **more: Any) -> Tensor:
        """Call the model with a batch; return its main output, of shape (rows, ...).

        Args:
            example: The batch: the example, or one that was made of it.
            more: Keyword arguments that the example does not have.
        """
        args, kwargs = example.build()
        torch.manual_seed(SEED)
        return call(self.model, args, kwargs | more, example.batch_size)

    def at(self, position: int) -> str:
        """Name a position of the real tokens, if outputs have positions."""
        return "" if self.group is None else f" at token {position}"

    def outputs(self, example: Example, **more: Any) -> list[Tensor]:
        """Call the model, and return for each row the outputs of its real tokens, (S, size)."""
        return self.select(self(example, **more), example)

    def select(self, output: Tensor, example: Example) -> list[Tensor]:
        """Select the outputs of the real tokens of each row."""
        if self.group is None:
            return [row.reshape(-1, row.shape[-1] if row.dim() else 1) for row in output]
        real = example.groups[self.group].real.to(output.device)
        length = output.shape[1]
        if length != real.shape[1]:
            if length > real.shape[1] or bool(real[:, length:].any()):
                raise NotTriedError(
                    f"the outputs have {length} positions and the inputs {real.shape[1]}"
                )
            real = real[:, :length]  # torch's nested tensors leave out positions that all rows pad
        output = output.reshape(*output.shape[:2], -1)
        return [row[chosen] for row, chosen in zip(output, real, strict=True)]

    def measure(self, first: Tensor, second: Tensor, *, exact: bool = False) -> Tensor:
        """Measure changes in standard deviations, (S,) of (S, size); those of rounding are zero.

        With ``exact``, both come from batches of the same shape, whose rounding is the same.
        """
        if first.shape != second.shape:
            raise NotTriedError(
                f"outputs have other shapes: {tuple(first.shape)} and {tuple(second.shape)}"
            )
        tolerance = self.tolerance
        if tolerance is None and exact:
            tolerance = max(1e-5, 16 * epsilon(first))
        is_known = self.scales is not None and len(self.scales) == first.shape[1]
        scales = self.scales if is_known else None  # outputs may have other features
        sizes = measure_changes(first, second, tolerance, scales=scales)
        return sizes.amax(dim=1) if sizes.shape[1] else torch.zeros(len(sizes))

    def find_changes(
        self, before: Sequence[Tensor], after: Sequence[Tensor]
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the row, position and size of the largest change of each row that has one."""
        for row, outputs in enumerate(zip(before, after, strict=True)):
            sizes = self.measure(*outputs)
            if bool(sizes.any()):
                position = int(sizes.argmax())
                yield row, position, float(sizes[position])

    def compare(
        self, before: Sequence[Tensor], after: Sequence[Tensor], what: str, first_row: int = 0
    ) -> list[str]:
        """Describe the largest change of each row, given the outputs of its real tokens."""
        return [
            f"the output{self.at(position)} of row {first_row + row} changes {what}, "
            f"{describe(size)}"
            for row, position, size in self.find_changes(before, after)
        ]


def call(
    model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], rows: int
) -> Tensor:
    """Call a model, and return its main output."""
    output = find_output(model(*args, **kwargs))
    if output is None:
        raise NotTriedError("the model returned no floating-point tensor of one dimension or more")
    if output.dim() < 1 or output.shape[0] != rows:
        raise NotTriedError(
            f"the outputs must have one entry for each of {rows} rows, "
            f"got shape {tuple(output.shape)}"
        )
    if not output.numel():
        raise NotTriedError(f"the outputs must hold numbers, got shape {tuple(output.shape)}")
    return output.detach()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or "no message").splitlines()[0][:160]
