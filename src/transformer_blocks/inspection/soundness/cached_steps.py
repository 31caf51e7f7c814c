"""Cached decoding of a model under examination: find its cache, and drive it step by step."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import accumulate, cycle, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.generation import IncrementalDecoder, StepModel
from transformer_blocks.inspection.comparison import (
    NotTriedError,
    describe,
    find_output,
    find_tensors,
    measure_changes,
    measure_scales,
)
from transformer_blocks.inspection.soundness.reading import find_parameters
from transformer_blocks.inspection.soundness.tested import TestedModel, first_line
from transformer_blocks.models import LanguageModel, Seq2Seq

CACHES = "past_key_values", "cache_params", "state"
"""Arguments of Hugging Face's models that hold the cache of attention, state spaces, recurrence."""


def check_cache(tested: TestedModel) -> list[str]:
    """Check that cached decoding steps give the outputs of one full pass.

    Halfway, the rows of the batch are reversed; one step later, one is repeated, as in a beam
    search; and another step later, one is removed, as a finished hypothesis is. The same tokens are
    then decoded again, as a cache may keep something of the first generation: with a method
    ``prefill``, two and three tokens at once, at the beginning and after others.

    If passes are limited, most tokens are decoded at once, or few if there is no ``prefill``.
    """
    problems = find_problems(tested)
    if problems and tested.is_leaky:
        raise NotTriedError(
            "the full pass depends on later positions, which a step does not know; mend causality "
            "first"
        )
    return problems


def find_problems(tested: TestedModel) -> list[str]:
    """Decode the tokens of the inputs, in one generation or several."""
    if tested.group is None:
        raise NotTriedError("there is one output for each row, so that nothing is decoded")
    decodes = tested.kind != "encoder" and not tested.reason
    if not decodes and tested.new_step_model is None:
        raise NotTriedError("the model is not causal")
    contents = tested.inputs.contents(tested.group)
    if len({id(value) for value in contents.values()}) > 1:
        raise NotTriedError("the model takes several tensors for each position")
    if any(value.is_floating_point() for value in contents.values()):
        raise NotTriedError("the model takes vectors, and cached steps decode ids")
    new_steps = find_steps(tested)
    filled = fill_padding(tested, tested.group)
    tokens = next(iter(filled.inputs.contents(tested.group).values()))
    length = tokens.shape[1]
    has_prefill = hasattr(new_steps(filled), "prefill")
    decode = partial(find_wrong_steps, filled, partial(new_steps, filled), tokens, filled.output)
    left = tested.passes.left
    if left is not None:
        first = length - left + 1 if has_prefill and left < length else 1
        spans = [(0, first), *pairwise(range(first, length + 1))][: max(left, 1)]
        tested.notes["cache"] = (
            f"{len(spans)} passes were tried; a mistake in other steps, or in a second generation, "
            "may be missed"
        )
        if tested.is_leaky is None:
            tested.notes["cache"] += "; a leak looks the same, and causality was not checked"
        return decode(spans, 2 if has_prefill else max(2, len(spans) // 2))
    problems = decode([*pairwise(range(length + 1))], max(2, length // 2))
    for generation, lengths in enumerate([(2, 1), (1, 3)] if has_prefill else [(1,)], 2):
        ends = takewhile(lambda end: end < length, accumulate(cycle(lengths)))
        spans = [*pairwise([0, *ends, length])]
        problems = problems or decode(spans, None, f" in generation {generation}")
    return problems


def find_wrong_steps(
    tested: TestedModel,
    new_steps: Callable[[], StepModel],
    tokens: Tensor,
    full_pass: Tensor,
    spans: Sequence[tuple[int, int]],
    middle: int | None,
    when: str = "",
) -> list[str]:
    """Decode tokens with an empty cache; describe what differs from a full pass.

    Args:
        tested: The model.
        new_steps: Function that returns the model with an empty cache.
        tokens: Ids, of shape (B, L).
        full_pass: The outputs for these, of shape (B, L, ...).
        spans: The first position of each pass, and that after its last.
        middle: The pass before which rows are reordered first; None does not reorder them.
        when: What is said of the generation.
    """
    model, rows, problems = new_steps(), len(tokens), list[str]()
    changes = [[*reversed(range(rows))], [*range(rows), 0], [*range(1, rows + 1)]]
    scales = measure_scales(full_pass if full_pass.dim() > 2 else full_pass.flatten())
    order = torch.arange(rows, device=tokens.device)  # the sequence in each row of the cache
    for number, (start, stop) in enumerate(spans):
        since = -1 if middle is None else number - middle
        after = f" after a reorder{when}" if since >= 0 else when
        name = f"step {start}" if stop == start + 1 else f"one pass of tokens {start} to {stop - 1}"
        try:
            if 0 <= since < len(changes):
                selected = torch.tensor(changes[since])
                model.reorder(selected)
                order = order[selected.to(order.device)]
            tested.passes.count()
            if stop == start + 1:
                logits, expected = model.step(tokens[order, start]), full_pass[order, start]
            else:
                logits = model.prefill(tokens[order, start:stop])  # type: ignore[attr-defined]
                expected = full_pass[order, start:stop]
        except NotTriedError:
            raise
        except Exception as error:  # a wrong cache may raise anything
            return [*problems, f"{name} failed{after}: {first_line(error)}"]
        if logits is None:  # the next step shows what the cache holds
            continue
        if logits.shape != expected.shape:
            shapes = f"{tuple(expected.shape)}{after}, got {tuple(logits.shape)}"
            return [*problems, f"{name} must return logits of shape {shapes}"]
        sizes = measure_changes(expected, logits, tested.tolerance, scales=scales).flatten(1)
        problems += [
            f"{name} of row {row} differs{after}, {describe(size)}"
            for row, size in enumerate(sizes.amax(dim=1).tolist())
            if size
        ]
    return problems


def fill_padding(tested: TestedModel, group: int) -> TestedModel:
    """Replace the padding of a group by real tokens of the same row, so that nothing is padded.

    Masks of queries and keys, positions and other indices stay.
    """
    inputs = tested.inputs
    if bool(inputs.groups[group].real.all()):
        return tested
    index = torch.empty(inputs.groups[group].real.shape, dtype=torch.long)
    for line, real in zip(index, inputs.groups[group].real, strict=True):
        positions = real.nonzero().flatten()
        line[:] = positions[torch.arange(len(line)) % len(positions)]
    filled = inputs.take(range(inputs.batch_size), {group: index}, stay=("pairs", "indices"))
    return replace(tested, inputs=filled)


def find_steps(tested: TestedModel) -> Callable[[TestedModel], StepModel]:
    """Find a function that begins decoding: the user's, or one for the cache of the model."""
    model, new_step_model = tested.model, tested.new_step_model
    if new_step_model is not None:
        return lambda _: new_step_model()
    if isinstance(model, LanguageModel):
        stack, embed, output = model.decoder, model.embed, model.output
        return lambda _: IncrementalDecoder(stack, stack.new_cache(), embed=embed, output=output)
    if isinstance(model, Seq2Seq):
        begin = model.begin
        return lambda tested: begin(next(find_tensors(tested.inputs.build())))
    known = find_parameters(model).keys() if isinstance(model, nn.Module) else set[str]()
    for name in CACHES:
        if {name, "use_cache"} <= known:
            return partial(CachedSteps, name=name)
    raise NotTriedError(
        "no cache was found; pass new_step_model=, which returns the model as a StepModel"
    )


def select_rows(value: Any, rows: Tensor, batch_size: int) -> Any:
    """Select rows of a cache, unless its class does so: of its tensors that have all rows."""
    if hasattr(value, "reorder_cache"):
        value.reorder_cache(rows)
        return value
    select = partial(select_rows, rows=rows, batch_size=batch_size)
    if isinstance(value, Tensor):
        return value[rows.to(value.device)] if value.shape[:1] == (batch_size,) else value
    if type(value) in (tuple, list):
        return type(value)(map(select, value))
    if isinstance(value, dict):
        return {key: select(each) for key, each in value.items()}
    if hasattr(value, "__dict__") and not isinstance(value, type):
        selected = copy(value)
        vars(selected).update(select(vars(value)))
        return selected
    return value


class CachedSteps:
    """Decoding steps of a model that receives its cache or state as an argument, and returns it."""

    def __init__(self, tested: TestedModel, name: str) -> None:
        self.tested, self.name, self.group = tested, name, tested.group or 0
        self.rows = [*range(tested.inputs.batch_size)]
        self.position = 0
        self.cache: Any = None

    def make_arguments(self, tokens: Tensor) -> dict[str, Any]:
        """Make the arguments of a pass by name: the new tokens, and masks of all so far."""
        count = tokens.shape[1]
        so_far = torch.arange(self.position + count).repeat(len(self.rows), 1)
        prefix, now = (
            self.tested.inputs.take(self.rows, {self.group: index})
            for index in (so_far, so_far[:, -count:])
        )
        values = {}
        for argument, newest in zip(prefix.arguments, now.arguments, strict=True):
            if self.name != "past_key_values" and argument.kind == "mask":
                continue  # of tokens that are all real; a state has no columns for a mask to hide
            if argument.kind == "content" and self.group in argument.groups:
                values[argument.name] = tokens
            elif argument.kind == "pairs" and self.group == argument.groups[0]:
                values[argument.name] = argument.value[..., -count:, :]
            else:
                is_now = argument.kind in ("content", "indices")
                values[argument.name] = (newest if is_now else argument).value
        self.position += count
        return values

    def step(self, tokens: Tensor) -> Tensor:
        """Run the model on the newest tokens, (N,); return its outputs for them, (N, V)."""
        return self.prefill(tokens[:, None])[:, -1]

    def prefill(self, tokens: Tensor) -> Tensor:
        """Run the model on several new tokens, (N, L); return its outputs for them, (N, L, V).

        State spaces take one token at a time after those of the first pass.
        """
        if self.position and self.name == "cache_params" and tokens.shape[1] > 1:
            return torch.stack([self.step(each) for each in tokens.unbind(1)], dim=1)
        arguments = self.make_arguments(tokens) | {self.name: self.cache, "use_cache": True}
        result = self.tested.model(**arguments)
        self.cache, output = getattr(result, self.name, None), find_output(result)
        if self.cache is None or output is None:
            raise NotTriedError(f"the model returned no {self.name} or no outputs")
        return output[:, -tokens.shape[1] :]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache, if there is one, and the arguments that have an entry for each row."""
        self.cache = select_rows(self.cache, rows, len(self.rows))
        self.rows = [self.rows[row] for row in rows.tolist()]
