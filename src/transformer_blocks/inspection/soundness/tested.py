"""The model that is tested: call it with other inputs, and compare what it returns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.comparison import (
    NotTriedError,
    describe,
    epsilon,
    find_output,
    measure_changes,
)
from transformer_blocks.inspection.soundness.inputs import Inputs

SEED = 0


@dataclass
class Passes:
    """Count forward passes, and refuse those beyond a limit.

    Attributes:
        limit: How many passes are allowed in all; None does not limit them.
        allowed: How many passes the current check may have reached; None does not limit them.
        used: How many there were.
    """

    limit: int | None = None
    allowed: int | None = None
    used: int = 0

    def share(self, parts: int) -> None:
        """Allow the next check one part of the passes that are left."""
        if self.limit is not None:
            self.allowed = self.used + (self.limit - self.used) // parts

    @property
    def left(self) -> int | None:
        """How many passes the current check has left; None if they are not limited."""
        return None if self.allowed is None else self.allowed - self.used

    def count(self) -> None:
        """Count a pass."""
        if self.left == 0:
            raise NotTriedError(
                f"probes={self.limit} allows no further forward pass; pass a larger number"
            )
        self.used += 1


@dataclass
class TestedModel:
    """A model, its inputs, and what is known about its outputs.

    Attributes:
        model: The module or function.
        inputs: What the model receives in practice.
        tolerance: Largest change that is ignored, in standard deviations of the outputs; None
            depends on the dtype.
        passes: How many forward passes there were, and may be.
        causal: Whether outputs must not depend on later positions; None if that is not known.
        recursive: Whether one layer is used several times on purpose.
        new_step_model: Makes a step model with an empty cache, if the user passes it.
        group: The sequence to whose positions the outputs belong; None if there is one output for
            each row.
        fixed: Groups whose length cannot be changed.
        resampled: Whether outputs have positions that are not those of a sequence, as those of a
            model that subsamples; ``group`` is None then.
        kind: The kind of the model, if it is asked for.
        reason: Why causality cannot be checked; empty if it can.
        dependence: Which outputs depend on which inputs, if that was measured.
        is_leaky: Whether an output was found that depends on a later position; None if none was
            sought.
        scales: Standard deviation of each feature of the outputs.
        notes: What the check of a property may miss, by the property's title.
    """

    __test__ = False  # pytest would take it for a test

    model: Callable[..., Any]
    inputs: Inputs
    tolerance: float | None = None
    passes: Passes = field(default_factory=Passes)
    causal: bool | None = None
    recursive: bool = False
    new_step_model: Callable[[], StepModel] | None = None
    group: int | None = None
    fixed: frozenset[int] = frozenset()
    resampled: bool = False
    kind: str = "unknown"
    reason: str = ""
    dependence: Any = None
    is_leaky: bool | None = None
    scales: Tensor | None = None
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> nn.Module:
        """The model, if it is a module."""
        if not isinstance(self.model, nn.Module):
            raise NotTriedError("the model is a function; pass the module itself")
        return self.model

    def __call__(self, inputs: Inputs, **more: Any) -> Tensor:
        """Call the model; return its main output, of shape (rows, ...).

        Args:
            inputs: The inputs of the user, or others that were made of them.
            more: Keyword arguments that the inputs do not have.
        """
        args, kwargs = inputs.build()
        torch.manual_seed(SEED)
        return check_output(self.run(*args, **kwargs, **more), inputs.batch_size)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run a forward pass, which is counted."""
        self.passes.count()
        try:
            return self.model(*args, **kwargs)
        except Exception:  # a call that is refused, such as of too many tokens, is no pass
            self.passes.used -= 1
            raise

    @cached_property
    def output(self) -> Tensor:
        """The main output for the inputs."""
        return self(self.inputs)

    def at(self, position: int) -> str:
        """Name a position of the real tokens, if outputs have positions."""
        return "" if self.group is None else f" at token {position}"

    def outputs(self, inputs: Inputs, **more: Any) -> list[Tensor]:
        """Return for each row the outputs of its real tokens, (S, size)."""
        is_known = inputs is self.inputs and not more
        return self.select(self.output if is_known else self(inputs, **more), inputs)

    def select(self, output: Tensor, inputs: Inputs) -> list[Tensor]:
        """Select the outputs of the real tokens of each row."""
        if self.group is None:
            return [row.reshape(-1, row.shape[-1] if row.dim() else 1) for row in output]
        real = inputs.groups[self.group].real.to(output.device)
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
        if torch.equal(first, second):  # as most outputs are that depend on nothing that changed
            return torch.zeros(len(first))
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


def check_output(result: Any, rows: int) -> Tensor:
    """Find the main output in what a model returned: numbers for each row."""
    output = find_output(result)
    if output is None:
        raise NotTriedError("the model returned no floating-point tensor of one dimension or more")
    if output.dim() < 1 or output.shape[0] != rows:
        raise NotTriedError(
            f"the outputs must have one entry for each of {rows} rows, "
            f"got shape {tuple(output.shape)}"
        )
    if not output.numel():
        raise NotTriedError(f"the outputs must hold numbers, got shape {tuple(output.shape)}")
    return output.detach().clone()  # a model may return one buffer in each call


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or "no message").splitlines()[0][:160]
