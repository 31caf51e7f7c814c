"""Cached decoding of a model under examination: find its cache, and drive it step by step."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.generation import IncrementalDecoder, StepModel
from transformer_blocks.inspection.comparison import find_output, find_tensors
from transformer_blocks.inspection.soundness.checks import check_cache
from transformer_blocks.inspection.soundness.example import NotTriedError
from transformer_blocks.inspection.soundness.reading import find_parameters
from transformer_blocks.inspection.soundness.subject import Subject
from transformer_blocks.models import LanguageModel, Seq2Seq

# The argument that holds a cache, and those that ask for it: models of Hugging Face with attention,
# state spaces, and recurrence; x-transformers; recurrent networks, whose state is None by default.
CACHES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("past_key_values", ("use_cache",)),
    ("cache_params", ("use_cache",)),
    ("state", ("use_cache",)),
    ("cache", ("return_intermediates", "input_not_include_cache")),
    *((name, ()) for name in ("hx", "hidden", "state", "states")),
)
ONE_BY_ONE = ("cache_params", "cache")


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
    has_vectors = any(value.is_floating_point() for value in contents.values())
    if has_vectors and new_step_model is not None:
        raise NotTriedError("the model takes vectors, and step models decode ids")
    make_steps = find_steps(subject, new_step_model)
    filled = fill_padding(subject, subject.group)
    value = next(iter(filled.example.contents(subject.group).values()))
    if has_vectors:  # number them
        value = torch.arange(value.shape[0] * value.shape[1]).view(value.shape[:2]).to(value.device)

    def full_pass(tokens: Tensor) -> Tensor:
        return filled(filled.example.replaced(dict.fromkeys(contents, take(filled, tokens))))

    new_steps = partial(make_steps, filled)
    report = check_cache(full_pass, new_steps, value, tolerance=subject.tolerance)
    return list(report.problems)


def fill_padding(subject: Subject, group: int) -> Subject:
    """Replace the padding of a group by real tokens of the same row, so that nothing is padded.

    Masks of queries and keys, positions and other indices stay.
    """
    example = subject.example
    index = torch.empty(example.groups[group].real.shape, dtype=torch.long)
    for line, real in zip(index, example.groups[group].real, strict=True):
        positions = real.nonzero().flatten()
        line[:] = positions[torch.arange(len(line)) % len(positions)]
    filled = example.take(range(example.batch_size), {group: index}, stay=("pairs", "indices"))
    return replace(subject, example=filled)


def find_steps(
    subject: Subject, new_step_model: Callable[[], StepModel] | None
) -> Callable[[Subject], StepModel]:
    """Find a function that begins decoding: the given one, or one for the cache of the model."""
    model = subject.model
    if new_step_model is not None:
        return lambda _: new_step_model()
    if isinstance(model, LanguageModel):
        stack, embed, output = model.decoder, model.embed, model.output
        return lambda _: IncrementalDecoder(stack, stack.new_cache(), embed=embed, output=output)
    if isinstance(model, Seq2Seq):
        begin = model.begin
        return lambda subject: begin(next(find_tensors(subject.example.build())))
    parts = [*model.modules()] if isinstance(model, nn.Module) else []
    known = find_parameters(model) if parts else {}
    for name, flags in CACHES:
        if {name, *flags} <= known.keys() and (flags or known[name].default is None):
            # The state of torch's layers has the shape (layers, B, H).
            has_layers = not flags and any(isinstance(part, nn.RNNBase) for part in parts)
            return partial(CachedSteps, name=name, flags=flags, dimension=int(has_layers))
    raise NotTriedError(
        "no cache was found; pass new_step_model=, which returns the model as a StepModel"
    )


def take(subject: Subject, tokens: Tensor) -> Tensor:
    """Take the vectors that were numbered, or the ids."""
    value = next(iter(subject.example.contents(subject.group or 0).values()))
    return value.flatten(0, 1)[tokens] if value.is_floating_point() else tokens


def select_rows(value: Any, rows: Tensor, dimension: int, batch_size: int) -> Any:
    """Select rows of a cache, unless its class does so: of its tensors that have all rows."""
    if hasattr(value, "reorder_cache"):
        value.reorder_cache(rows)
        return value
    select = partial(select_rows, rows=rows, dimension=dimension, batch_size=batch_size)
    if isinstance(value, Tensor):
        has_rows = value.dim() > dimension and value.size(dimension) == batch_size
        return value.index_select(dimension, rows.to(value.device)) if has_rows else value
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

    def __init__(self, subject: Subject, name: str, flags: Sequence[str], dimension: int) -> None:
        self.subject = subject
        self.name, self.flags, self.dimension = name, dict.fromkeys(flags, True), dimension
        self.group = subject.group or 0
        self.rows = [*range(subject.example.batch_size)]
        self.position = 0
        self.cache: Any = None

    def make_arguments(self, tokens: Tensor) -> dict[str, Any]:
        """Make the arguments of a pass by name: the new tokens, and masks of all so far."""
        count = tokens.shape[1]
        so_far = torch.arange(self.position + count).repeat(len(self.rows), 1)
        prefix, now = (
            self.subject.example.take(self.rows, {self.group: index})
            for index in (so_far, so_far[:, -count:])
        )
        given = {}
        for argument, newest in zip(prefix.arguments, now.arguments, strict=True):
            if self.name != "past_key_values" and argument.kind == "mask":
                continue  # of tokens that are all real; a state has no columns for a mask to hide
            if argument.kind == "content" and self.group in argument.groups:
                given[argument.name] = take(self.subject, tokens)
            elif argument.kind == "pairs" and self.group == argument.groups[0]:
                given[argument.name] = argument.value[..., -count:, :]
            else:
                is_now = argument.kind in ("content", "indices")
                given[argument.name] = (newest if is_now else argument).value
        self.position += count
        return given

    def step(self, tokens: Tensor) -> Tensor:
        """Run the model on the newest tokens, (N,); return its outputs for them, (N, V)."""
        return self.prefill(tokens[:, None])[:, -1]

    def prefill(self, tokens: Tensor) -> Tensor:
        """Run the model on several new tokens, (N, L); return its outputs for them, (N, L, V).

        State spaces, and models of x-transformers, take one token after those of the first pass.
        """
        if self.position and self.name in ONE_BY_ONE and tokens.shape[1] > 1:
            return torch.stack([self.step(each) for each in tokens.unbind(1)], dim=1)
        arguments = self.make_arguments(tokens) | {self.name: self.cache} | self.flags
        result = self.subject.model(**arguments)
        returned = result[1] if type(result) is tuple and len(result) == 2 else None
        self.cache = getattr(result, self.name, returned)
        output = find_output(result)
        if self.cache is None or output is None:
            raise NotTriedError(f"the model returned no {self.name} or no outputs")
        return output[:, -tokens.shape[1] :]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache, if there is one, and the arguments that have an entry for each row."""
        self.cache = select_rows(self.cache, rows, self.dimension, len(self.rows))
        self.rows = [self.rows[row] for row in rows.tolist()]
