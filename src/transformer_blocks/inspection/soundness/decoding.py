"""Cached decoding of a model under examination: find its cache, and drive it step by step."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.checks import check_cache
from transformer_blocks.inspection.soundness.example import Layout, NotTriedError
from transformer_blocks.inspection.soundness.subject import Subject, find_output


def check_steps(
    subject: Subject, causal: bool, new_step_model: Callable[[], StepModel] | None
) -> list[str]:
    """Check that cached decoding steps give the outputs of one full pass."""
    if subject.group is None:
        raise NotTriedError("there is one output for each row, so that nothing is decoded")
    if not causal and new_step_model is None:
        raise NotTriedError("the model is not causal")
    contents = subject.example.contents(subject.group)
    if len({id(value) for value in contents.values()}) > 1:
        raise NotTriedError("the model takes several tensors for each position")
    if any(value.is_floating_point() for value in contents.values()):
        raise NotTriedError("the model takes vectors, and ids are decoded")
    make_steps = find_steps(subject, new_step_model)
    filled = fill_padding(subject, subject.group)
    layout = filled.example.given()
    value = next(iter(filled.example.contents(subject.group).values()))

    def full_pass(tokens: Tensor) -> Tensor:
        return filled(layout, values=dict.fromkeys(contents, tokens))

    new_steps = partial(make_steps, filled)
    report = check_cache(full_pass, new_steps, value, tolerance=subject.tolerance)
    return list(report.problems)


def fill_padding(subject: Subject, group: int) -> Subject:
    """Replace the padding of a group by real tokens of the same row, so that nothing is padded."""
    example = subject.example
    index = torch.empty(example.groups[group].real.shape, dtype=torch.long)
    for line, real in zip(index, example.groups[group].real, strict=True):
        positions = real.nonzero().flatten()
        line[:] = positions[torch.arange(len(line)) % len(positions)]
    given = example.given()
    layout = replace(given, index=(*given.index[:group], index, *given.index[group + 1 :]))
    return replace(subject, example=example.refilled(group, layout))


def find_steps(
    subject: Subject, new_step_model: Callable[[], StepModel] | None
) -> Callable[[Subject], StepModel]:
    """Find a function that begins decoding: the given one, or one for the cache of the model."""
    if new_step_model is not None:
        return lambda _: new_step_model()
    model = subject.model
    if isinstance(model, nn.Module):
        known = inspect.signature(model.forward).parameters
        if {"past_key_values", "use_cache"} <= known.keys():
            return PastKeyValuesSteps
    raise NotTriedError(
        "no cache was found; pass new_step_model=, which returns the model as a StepModel"
    )


class PastKeyValuesSteps:
    """Decoding steps of a Hugging Face model, with ``past_key_values``."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.group = subject.group or 0
        self.rows = [*range(subject.example.batch_size)]
        self.position = 0
        self.cache: Any = None

    def make_arguments(self, tokens: Tensor) -> dict[str, Any]:
        """Make the arguments of a step by name: the new tokens, and masks of all so far."""
        example = self.subject.example
        index = [torch.arange(group.length).repeat(len(self.rows), 1) for group in example.groups]
        step = list(index)
        step[self.group] = index[self.group][:, self.position : self.position + 1]
        index[self.group] = index[self.group][:, : self.position + 1]
        prefix, now = (Layout(tuple(self.rows), tuple(each)) for each in (index, step))
        given = {}
        for argument in example.arguments:
            is_now = argument.kind in ("content", "indices")
            if argument.kind == "content" and self.group in argument.groups:
                given[argument.name] = tokens[:, None]
            elif argument.kind == "pairs" and self.group == argument.groups[0]:
                mask = example.build_argument(argument, prefix)
                given[argument.name] = mask[..., -1:, :]
            else:
                given[argument.name] = example.build_argument(argument, now if is_now else prefix)
        self.position += 1
        return given

    def step(self, tokens: Tensor) -> Tensor:
        """Run the model on the newest tokens, (N,); return its outputs for them, (N, V)."""
        arguments = self.make_arguments(tokens) | {"past_key_values": self.cache, "use_cache": True}
        result = self.subject.model(**arguments)
        self.cache = getattr(result, "past_key_values", None)
        output = find_output(result)
        if self.cache is None or output is None:
            raise NotTriedError("the model returned no past_key_values or no outputs")
        return output[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache, if there is one, and the arguments that have an entry for each row."""
        self.rows = [self.rows[row] for row in rows.tolist()]
        if self.cache is not None:
            self.cache.reorder_cache(rows)
