"""The first difference: where two models that should compute the same part, and why.

A model is rebuilt, ported or converted, and its outputs are not those of the original.
:func:`first_difference` runs both, pairs the tensors that their modules receive and return, and
names the first pair that differs by more than rounding. ``values`` records the tensors;
``corrections`` holds the known mistakes, and a correction after which the tensors agree shows the
cause.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product, zip_longest
from os import PathLike
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Function, checked
from transformer_blocks._tables import find_width, html_table, text_table
from transformer_blocks.inspection.changes import evaluation
from transformer_blocks.inspection.compare.corrections import Site, Values, corrected, corrections
from transformer_blocks.inspection.comparison import (
    Tolerance,
    epsilon,
    find_output,
    measure_relative_differences,
    to_float64,
)
from transformer_blocks.inspection.record.values import (
    OUTPUT,
    ForwardPass,
    Place,
    Run,
    Value,
    in_float64,
    is_model_output,
    layouts,
    load_values,
    name_place,
    rounded,
)

FLOOR = 2e-6  # of a run in float64: constants such as rotary angles are rounded to float32
ROUNDING = 1e-11  # of float64 itself
SHOWN = 6  # pairs that agree in a printed table
ROUNDED = 4  # times the rounding of a model, in that of saved values
SIMILAR = 5  # values of b among which a saved one is searched
SEARCHED = 64  # differing tensors of each model that are paired by name
SYNONYMS = {"q": "query", "k": "key", "v": "value", "attn": "attention", "norm1": "norm"}


@dataclass(frozen=True)
class Pair:
    """A tensor of each model, and how far apart they are.

    Attributes:
        a: Where the tensor of the first model was seen, for example ``"layers.0.norm output"``.
        b: The same of the second model.
        distance: The largest difference, relative to the largest absolute value of its feature;
            infinite if a tensor has another shape, or NaN or infinity where the other has none.
        note: The shapes, if they differ, or what is not finite; mostly empty.
    """

    a: str
    b: str
    distance: float
    note: str = ""

    @property
    def shown(self) -> str:
        """The distance; if it is infinite, what is not finite, or that the shapes differ."""
        return f"{self.distance:.0e}" if self.distance < math.inf else self.note.partition(" ")[0]


@dataclass(frozen=True)
class Difference:
    """Where two models first differ; true if they do. Print it.

    Attributes:
        outputs: The outputs of both models: the main ones, or the first others that differ.
        precision: The dtype in which the models were compared, for example ``"float64"``.
        agreed: The pairs that agree and were computed before the first difference.
        first: The first pair that differs; None if the outputs agree.
        module_a: Name of the module of ``a`` that computes it; empty for ``a`` itself.
        module_b: Name of the module of ``b`` that computes it.
        cause: What must be corrected, for example "scale: the output must be 4 times as large";
            None if no correction shows the cause.
        skipped: What was not compared: outputs that only one of the models returns, and saved
            values that fit no value of the model.
    """

    outputs: Pair
    precision: str
    agreed: tuple[Pair, ...] = ()
    first: Pair | None = None
    module_a: str = ""
    module_b: str = ""
    cause: str | None = None
    skipped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None

    @property
    def summary(self) -> str:
        """The modules that differ, the cause, the precision, and what was not compared."""
        skipped = "".join(f"\nnot compared: {name}" for name in self.skipped)
        if self.first is None:
            distance = f"{self.outputs.distance:.0e}, in {self.precision}"
            if self.precision == "float64" and self.outputs.distance > ROUNDING:
                distance += f"; that is more than rounding: pass tolerance={ROUNDING:.0e} to see it"
            shapes = self.outputs.note and f"; {self.outputs.note}"
            return f"no difference: the outputs agree to {distance}{shapes}{skipped}"
        names = [name or "the model itself" for name in (self.module_a, self.module_b)]
        note = self.first.note and f": {self.first.note}"
        skipped += f"\nthe last {SHOWN} of them:" if len(self.agreed) > SHOWN else ""
        return (
            f"first difference: {names[0]} (a), {names[1]} (b){note}\n"
            f"cause: {self.cause or 'not found'}\n"
            f"pairs that agree before it: {len(self.agreed)}, in {self.precision}{skipped}"
        )

    def _rows(self) -> list[tuple[str, str, str]]:
        pairs = (*self.agreed[-SHOWN:], self.first, self.outputs) if self.first else ()
        rows = [(pair.a, pair.b, pair.shown) for pair in dict.fromkeys(pairs)]
        return [("a", "b", "distance"), *rows] if rows else []

    def __repr__(self) -> str:
        """Format the pairs as a table."""
        width, rows = find_width(), self._rows()
        lines = [part for line in self.summary.splitlines() for part in wrap(line, width)]
        names = [max(map(len, column)) for column in zip(*rows, strict=True)][:2]
        if sum(names) > width - 12:  # which the distances take
            half = (width - 12) // 2
            rows = [(_cut(a, half), _cut(b, half), distance) for a, b, distance in rows]
        return "\n".join([*lines, *text_table(rows)])

    def _repr_html_(self) -> str:
        """Format the pairs as a table in a notebook."""
        return html_table(self.summary, self._rows())


def _cut(name: str, width: int) -> str:
    """Leave out the beginning of a long name."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


@checked
def first_difference(
    a: Callable[..., Any] | str | PathLike[str],
    b: Function[Callable[..., Any]],
    inputs: Any,
    *,
    b_inputs: Any = None,
    tolerance: Tolerance | None = None,
) -> Difference:
    """Find the first tensor in which two models differ, and show the cause if it is known.

    Both models are run, and the tensors that their modules receive and return are paired: those
    with equal values in any order, the others by the names, values and order of their modules.
    Names and libraries may differ. If the outputs agree, there is no difference; otherwise the
    first pair is reported that does not agree and from which the others follow.

    **Rounding** is told from errors by precision: copies of both models are run in float64, where
    rounding is smaller by nine orders of magnitude and an error is not. If the parameters have
    several dtypes, they are first rounded to the coarsest. Functions, and models that cannot be
    converted, are compared in their own dtype with a larger tolerance.

    **A cause is shown, not guessed**: each known mistake is corrected in one model, first in ``b``,
    which is run again. The cause is the first correction after which the outputs agree, and what
    was computed before the first difference still does. If it mends the first difference alone, it
    is made in all layers; if the outputs differ even then, as with two errors of different kinds,
    the cause is not found. Corrected are weights (transposed, exchanged, reordered, tied, a missing
    bias, another checkpoint), settings (epsilon, norm order, training mode), positions, and calls
    of torch's functions (activation, scale, masks, heads, softmax, dropout).

    **Outputs** are all tensors and numbers that both models return, such as logits and the loss, by
    their keys or numbers; what only one of them returns is listed as not compared.

    **A saved reference** takes the place of the first model: a file of :func:`save_values`, or any
    other of safetensors. Names, the order of dimensions and the dtype may differ, and tensors may
    be missing; those that fit no value of ``b`` are listed as not compared. A tensor called output
    or logits is the output; without one, all that is paired must agree. Rounding is measured: ``b``
    is run in float64 and in the coarsest dtype of the file, and four times the difference is no
    error.

    All tensors are stored, and each correction, of some dozens or hundreds, costs a forward pass.

    Args:
        a: The first model, for example the original: a module, or a function, of which only the
            output is compared. It may be a part of a model. It is run in its current mode, but if
            both models are in training mode, both are compared in evaluation mode. Or the path of
            the values of another process or framework, see below.
        b: The model to compare with.
        inputs: A tensor (``model(x)``), a tuple (``model(*args)``) or a mapping
            (``model(**kwargs)``).
        b_inputs: The inputs of ``b`` in the same forms, if they are others.
        tolerance: Largest distance that is ignored, relative to the largest absolute value of a
            feature, the last dimension of a tensor. The default is 2e-6 in float64, in which some
            constants remain rounded to float32, and eps ** 0.75 in other dtypes. An epsilon of
            1e-5 for 1e-12 in a norm of numbers above 2 can be smaller; what is more than rounding
            is printed, and a tolerance of 1e-11 finds it.

    Returns:
        The difference, which is true if there is one, and prints as a table.

    Raises:
        TypeError: If a model is not callable.
        ValueError: If a model returns no floating-point tensor, or both return NaN alone; or if a
            saved file is not one of safetensors, or holds no value that fits.
        Exception: What a model raises if it is called with its inputs.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inspection import first_difference
        >>> from transformer_blocks.interop import from_torch
        >>> theirs = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        >>> ours, x = from_torch(theirs), torch.randn(2, 5, 16)
        >>> bool(first_difference(theirs, ours, x))
        False
        >>> ours.feed_forward.activation = nn.GELU()
        >>> difference = first_difference(theirs, ours, x)
        >>> difference.module_b, difference.cause
        ('feed_forward.activation', 'activation: must be relu')
    """
    second = ForwardPass(b, inputs if b_inputs is None else b_inputs)
    if isinstance(a, str | PathLike):
        return _compare_saved(load_values(a), second, tolerance).find()
    passes = [ForwardPass(a, inputs), second]
    with ExitStack() as modes:
        if all(getattr(each.model, "training", False) for each in passes):
            for each in passes:
                modes.enter_context(evaluation(each.model))
        try:
            doubled = in_float64(passes)
            runs = [each.run() for each in doubled]
            passes = doubled
        except Exception:  # whatever prevents it: then the models themselves are run, or raise it
            runs = [each.run() for each in passes]
        if tolerance is None:
            tolerance = _tolerance(*(run[OUTPUT].tensor for run in runs))
        return _Search(passes, runs, tolerance).find()


def _tolerance(*tensors: Tensor) -> float:
    """Return the distance that rounding of the coarsest of some tensors may cause."""
    return max(FLOOR, max(map(epsilon, tensors)) ** 0.75)


def _compare_saved(saved: Run, second: ForwardPass, tolerance: float | None) -> "_Search":
    """Compare a model with saved values, whose rounding is that of the model in their dtype."""
    floats = [each for each in saved.values() if each.tensor.is_floating_point()]
    coarsest = max((each.tensor for each in floats), key=epsilon)
    rounding: dict[Place, float] = {}
    try:
        passed = in_float64([second])[0]
        run = passed.run()
        coarse = rounded(passed, coarsest.dtype).run() if tolerance is None else {}
        rounding = {
            at: ROUNDED * measure_distance(value.tensor, run[at].tensor)
            for at, value in coarse.items()
            if at in run
        }
    except Exception:  # whatever prevents it: then the model itself is run, or raises it
        passed, run = second, second.run()
    tolerance = _tolerance(coarsest) if tolerance is None else tolerance
    return _Search([passed, passed], [saved, run], tolerance, rounding, is_saved=True)


@checked
def assert_equivalent(
    a: Function[Callable[..., Any]],
    b: Function[Callable[..., Any]],
    inputs: Sequence[Any],
    *,
    tolerance: Tolerance | None = None,
) -> None:
    """Assert that two models have no :func:`first_difference`, in outputs and in gradients.

    The same upstream gradient is backpropagated through both main outputs. Gradients with respect
    to the inputs are compared elementwise. Those with respect to all parameters of two modules are
    compared as sorted lists of numbers: the modules may name and lay out their weights differently,
    but if they compute the same, the sorted lists are equal. The parameters of a function are
    unknown, so that their gradients are not compared.

    Args:
        a: A module or a function. Modules are called in evaluation mode; set it yourself for a
            module inside a ``lambda``.
        b: The model to compare with. If its arguments are others, pass a ``lambda``.
        inputs: Positional arguments of both models. The gradients of floating-point tensors among
            them are compared.
        tolerance: Largest distance that is ignored; see :func:`first_difference`.

    Raises:
        AssertionError: If the models differ. Its message shows where, and the cause if it is known.
        TypeError: If ``inputs`` is a tensor and not a list.
        ValueError: If a model returns no floating-point tensor, or no number.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inspection import assert_equivalent
        >>> from transformer_blocks.interop import from_torch
        >>> theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True)
        >>> assert_equivalent(theirs, from_torch(theirs), [torch.randn(2, 5, 16)])
    """
    if isinstance(inputs, Tensor):
        raise TypeError("inputs must be a list of arguments, got a tensor; pass [x]")
    with evaluation(a), evaluation(b):
        for first, second in ((a, b), (_differentiated(a), _differentiated(b))):
            found = first_difference(first, second, tuple(inputs), tolerance=tolerance)
            if found or found.outputs.note:
                raise AssertionError(str(found))


def _differentiated(model: Callable[..., Any]) -> Callable[..., dict[str, Tensor]]:
    """Make a function that returns the output of a model and its gradients, by name."""
    weights = [*model.parameters()] if isinstance(model, nn.Module) else []
    weights = [weight for weight in weights if weight.requires_grad]

    def run(*args: Any) -> dict[str, Tensor]:
        leaves = {
            f"gradient of input {number}": value.requires_grad_()
            for number, value in enumerate(args)
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        with torch.enable_grad():
            output = find_output(model(*args))
            sources = [*leaves.values(), *weights]
            gradients: Sequence[Tensor] = [torch.zeros_like(source) for source in sources]
            if output is not None and output.requires_grad and sources:
                upstream = torch.arange(1, output.numel() + 1, device=output.device).sin()
                upstream = upstream.view_as(output).to(output.dtype)
                gradients = torch.autograd.grad(
                    output, sources, upstream, allow_unused=True, materialize_grads=True
                )
        found = {} if output is None else {"logits": output}
        found |= dict(zip(leaves, gradients, strict=False))
        if isinstance(model, nn.Module):  # also if no parameter is trainable
            numbers = [each.flatten() for each in gradients[len(leaves) :]]
            found["gradient of all parameters"] = torch.cat(numbers or [torch.zeros(0)]).sort()[0]
        return found

    return run


def measure_distance(a: Tensor, b: Tensor, *, any_order: bool = False) -> float:
    """Measure the largest difference, relative to the largest number of its feature.

    It is infinite if the shapes do not fit. These may differ: see :func:`layouts`.
    """
    return _nearest(a, b, any_order=any_order)[0]


def _nearest(a: Tensor, b: Tensor, *, any_order: bool = False) -> tuple[float, Tensor]:
    """Return the distance of two tensors, and the first in the layout of the second."""
    if a.numel() != b.numel() or not a.numel():
        return (0.0 if a.numel() == b.numel() else math.inf), a
    a, b = a.cpu(), b.cpu()
    ways = [(each, b) for each in layouts(a, b.shape, any_order=any_order)]
    if a.shape != b.shape:  # compared by the features of a
        ways += [(a, each) for each in layouts(b, a.shape)]
    found = [(math.inf, a)]
    for x, y in ways:
        sizes = measure_relative_differences(x, y).masked_fill(x.isnan() & y.isnan(), 0.0)
        found.append((float(sizes.max()), x))
    return min(found, key=lambda each: each[0])


def _note(*pair: Value) -> str:
    """Describe other shapes, or NaN and infinity where the other model has none."""
    a, b = (each.tensor for each in pair)
    if a.shape != b.shape:
        return f"shapes {tuple(a.shape)} (a) and {tuple(b.shape)} (b)"
    for what, test in (("NaN", torch.isnan), ("infinity", torch.isinf)):
        holds = [int(test(each.tensor).sum()) for each in pair]
        if not test(a).cpu().equal(test(b).cpu()):
            return f"{what} in {holds[0]} numbers of a and {holds[1]} of b"
    return ""


Pairs = list[tuple[Value, Value]]


@dataclass(frozen=True)
class _Search:
    """Two models, or saved values and a model, and what they computed.

    Attributes:
        passes: The models; twice the second one beside saved values.
        runs: Their values.
        tolerance: Largest distance of values that agree.
        rounding: Larger ones, at some places of the second model.
        is_saved: Whether the first values were saved, so that their dimensions may be in any order.
        known: Whether pairs of the two runs agree.
    """

    passes: Sequence[ForwardPass]
    runs: Sequence[Run]
    tolerance: float
    rounding: Mapping[Place, float] = field(default_factory=dict)
    is_saved: bool = False
    known: dict[tuple[Value, Value], bool] = field(default_factory=dict)

    def agree(self, x: Value, y: Value | None) -> bool:
        if y is None:
            return False
        tolerance = max(self.tolerance, *(self.rounding.get(at, 0.0) for at in y.places))
        return measure_distance(x.tensor, y.tensor, any_order=self.is_saved) <= tolerance

    def describe(self, x: Value, y: Value, place: Place | None = None) -> Pair:
        """Describe a pair by the first places of its tensors, or by one of the second model."""
        is_shared = place in x.places
        first = name_place(place if place and is_shared else x.places[0])
        distance = measure_distance(x.tensor, y.tensor, any_order=self.is_saved)
        return Pair(first, name_place(place or y.places[0]), distance, _note(x, y))

    def outputs(self) -> list[Place]:
        """List the places of the outputs that both models return, the main one first."""
        places = [at for at in self.runs[0] if is_model_output(at) and at in self.runs[1]]
        return sorted(places, key=lambda at: at != OUTPUT)

    def find_skipped(self) -> Iterator[str]:
        """Describe the outputs that only one of the models returns, or that hold NaN alone."""
        for at in self.outputs():
            if all(run[at].tensor.isnan().all() for run in self.runs):
                yield f"{at[1]}, which holds NaN alone"
        for run, other, model in zip(self.runs, self.runs[::-1], "ab", strict=True):
            for at in run:
                if is_model_output(at) and at not in other and run[at] is not run.get(OUTPUT):
                    yield f"{at[1]} of {model}, which the other model does not return"

    def find_lost(self, differ: bool) -> Iterator[str]:
        """Describe the saved values without a partner; if the models differ, of another size."""
        paired = {x for x, _ in (*self.pairs[0], *self.ends.values())}
        sizes = {y.tensor.numel() for y in self.runs[1].values()} if differ else ()
        for x in dict.fromkeys(self.runs[0].values()):
            if x.tensor.is_floating_point() and x not in paired and x.tensor.numel() not in sizes:
                yield f"{name_place(x.places[0])} of a, which fits no value of b"

    @cached_property
    def ends(self) -> dict[Place, tuple[Value, Value]]:
        """The outputs that both models return; if none was saved, all values that are paired.

        Raises:
            ValueError: If they hold no number that both models return.
        """
        ends = {at: (self.runs[0][at], self.runs[1][at]) for at in self.outputs()}
        if not ends:
            agreed, _, mutual = self.pairs
            ends = {y.places[0]: (x, y) for x, y in mutual + agreed[::-1]}
        if not ends:
            raise ValueError("saved values must fit those of b, got none that does")
        if all(x.tensor.isnan().all() for pair in ends.values() for x in pair):  # or no number
            raise ValueError("models must return numbers to compare, got NaN alone or no number")
        return ends

    def find(self) -> Difference:
        """Find the first difference and its cause."""
        self.divide()
        wrong = [at for at, pair in self.ends.items() if not self.agree(*pair)]
        shown = next(iter(wrong or self.ends))
        coarsest = max((each.tensor for each in next(iter(self.ends.values()))), key=epsilon)
        lost = self.find_lost(bool(wrong)) if self.is_saved else ()
        found = Difference(
            self.describe(*self.ends[shown], place=shown),
            str(coarsest.dtype).removeprefix("torch."),
            skipped=(*self.find_skipped(), *lost),
        )
        if not wrong:
            return found
        if self.is_saved and (other := self.find_input_that_differs()):
            return replace(found, first=other, cause="inputs: b must receive the saved ones")
        agreed, differing, _ = self.pairs
        first = self.find_first(agreed, differing, [self.ends[at] for at in wrong])
        first = first or self.ends[shown]
        order = [*self.runs[1].values()]
        agreed = [each for each in agreed if order.index(each[1]) <= order.index(first[1])]
        modules = [self.find_module(n, agreed, value) for n, value in enumerate(first)]
        cause, module = self.find_cause(modules, first, agreed)
        return replace(
            found,
            agreed=tuple(self.describe(*each) for each in agreed),
            first=self.describe(*first),
            module_a=modules[0],
            module_b=module or modules[1],
            cause=cause,
        )

    def divide(self) -> None:
        """Divide outputs of the first model whose thirds fit values of the second one.

        These are queries, keys and values that one layer computes, as that of GPT-2.
        """
        run, sizes = self.runs[0], {y.tensor.numel() for y in self.runs[1].values()}
        for (name, what, number), x in [*run.items()]:
            size = x.tensor.numel()
            is_fused = x.tensor.dim() and x.tensor.shape[-1] % 3 == 0 and what == "output"
            if name and is_fused and size not in sizes and size // 3 in sizes:
                run.pop((name, what, number))
                for third, part in enumerate(x.tensor.chunk(3, dim=-1), 1):
                    place = name, f"third {third} of output", number
                    run[place] = Value(part, [place])

    def find_input_that_differs(self) -> Pair | None:
        """Describe the first input of the models that is not the same, if it has one shape."""
        for at, x in self.runs[0].items():
            y = self.runs[1].get(at)
            if at[:2] != ("", "input") or y is None or x.tensor.shape != y.tensor.shape:
                continue
            if not self.agree(x, y):
                return self.describe(x, y, place=at)
        return None

    @cached_property
    def pairs(self) -> tuple[Pairs, Pairs, Pairs]:
        """Pair the values that agree, and the others by similarity.

        Returns:
            Those that agree; those that may be the same ones, and differ; and of these, those of
            which each is the most similar to the other.
        """
        left, right = (
            [x for x in dict.fromkeys(run.values()) if x.tensor.is_floating_point()]
            for run in self.runs
        )
        norms = {x: float(to_float64(x.tensor).norm()) for x in (*left, *right)}
        agreed = []
        for x in [*left]:
            near = (
                y for y in right if not abs(norms[x] - norms[y]) > 100 * self.tolerance * norms[x]
            )
            if y := next((y for y in near if self.agree(x, y)), None):
                agreed.append((x, y))
                left.remove(x)
                right.remove(y)
        left, right, equal = left[:SEARCHED], right[:SEARCHED], [x for x, _ in agreed[-SEARCHED:]]
        scores = {
            (x, y): _similarity(x, y, any_order=self.is_saved)
            for x, y in product(left + equal, right)
        }
        similar = {x: sorted(right, key=lambda y: -scores[x, y])[:SIMILAR] for x in left}
        differing, mutual = [], []
        for y in right:
            if left:
                x = max(left, key=lambda x: scores[x, y])
                if scores[x, y] and y is similar[x][0]:
                    mutual.append((x, y))
                if scores[x, y] and y in similar[x][: SIMILAR if self.is_saved else 1]:
                    differing.append((x, y))
            if equal:  # to another value of b: y may be this one, after what should not change it
                x = max(equal, key=lambda x: scores[x, y])
                if scores[x, y]:
                    differing.append((x, y))
        return agreed, differing, mutual

    def find_first(
        self, agreed: Pairs, differing: Pairs, wrong: Pairs
    ) -> tuple[Value, Value] | None:
        """Find the first pair from which the differences follow.

        With the tensor of one model in its place, the other computes a later tensor that agrees,
        and those that agreed still do. This is not so of a tensor that is only stored in another
        form, such as a vector that is multiplied later. Those of modules with the same input may
        have to be replaced too, such as queries and keys.
        """
        equal = [x for x, _ in agreed]
        for number, (x, y) in enumerate(differing):
            later = [p for p in differing[number + 1 :] if p[0] is not x]
            received = self.find_input(0, x)
            new = [p for p in later if received and p[0] not in equal]
            siblings = [p for p in new if self.find_input(0, p[0]) is received]
            for replaced in ([(x, y)], [(x, y), *siblings]):
                try:
                    patches = {w.places[0]: self.fit(v, w) for v, w in replaced}
                    run = self.passes[1].run(Run(patches))
                except Exception:  # the tensor is no storage of its own
                    continue
                agrees = any(self.agrees_in(run, p) for p in (*later, *wrong) if p not in replaced)
                if agrees and all(self.agrees_in(run, p) for p in agreed):
                    return x, y
        return None

    def fit(self, x: Value, y: Value) -> Tensor:
        """Return a tensor in the layout of the one of the second model."""
        return _nearest(x.tensor, y.tensor, any_order=self.is_saved)[1].to(y.tensor)

    def agrees_again(self, x: Value, y: Value, new: Value) -> bool:
        """Return whether a pair agrees if the second model computes a new value."""
        if not _is_same(y.tensor, new.tensor):
            return self.agree(x, new)
        if (x, y) not in self.known:
            self.known[x, y] = self.agree(x, y)
        return self.known[x, y]

    def agrees_in(self, run: Run, pair: tuple[Value, Value]) -> bool:
        """Return whether a pair agrees in another run of the second model."""
        return self.agree(pair[0], run.get(pair[1].places[0]))

    def find_input(self, number: int, value: Value) -> Value | None:
        """Find what the module had received that returned a value of one of the models."""
        name, what, _ = value.places[0]
        return self.runs[number].get((name, "input", 0)) if what.endswith("output") else None

    def find_module(self, number: int, agreed: Pairs, value: Value) -> str:
        """Find the innermost module that computed a value and received a tensor that agrees."""
        run, known = self.runs[number], [None, *(each[number] for each in agreed)]
        called = {name for name, _, _ in run}
        name, what, _ = value.places[0]
        name = name if what.endswith("output") else name.rpartition(".")[0]
        while name and (name not in called or run.get((name, "input", 0)) not in known):
            name = name.rpartition(".")[0]
        return name

    def find_cause(
        self, modules: Sequence[str], first: tuple[Value, Value], agreed: Pairs
    ) -> tuple[str, str] | tuple[None, None]:
        """Correct the second model until its outputs agree, and what agreed still does.

        A correction that mends the first pair alone is made in all layers.

        Returns:
            The correction, and the module in which it is made.
        """
        (wanted, found), name = first, modules[1]
        others, parts = (each.parts for each in self.passes)
        pairs = [(x, y) for x, y in agreed if not f"{y.places[0][0]}.".startswith(f"{name}.")]
        pairs = pairs if name else []
        if wanted not in [x for x, _ in agreed]:
            pairs.append(first)
        other = name if self.is_saved else modules[0]
        site = Site(parts, name, others, other, found.tensor, self.fit(wanted, found))
        sites = site.in_all_layers() if parts and others else []
        for of_layers in zip_longest(*map(corrections, sites), fillvalue=("", {})):
            text, values = of_layers[0]
            if not text:  # the other layers have more parts
                break
            agrees = self.mends(values, pairs)
            kinds = {re.sub("[0-9]+", "", each) for each, _ in of_layers}
            if agrees is False and len(sites) > 1 and len(kinds) == 1:
                values = {at: x for _, each in of_layers for at, x in each.items()}
                agrees = self.mends(values, [])
                text += f"; the same in all {len(sites)} layers"
            if agrees:
                return text, next(iter(values))[0]
        return None, None

    def mends(self, values: Values, pairs: Pairs) -> bool | None:
        """Return whether the outputs agree after a correction of the second model.

        Returns:
            None if it does not fit the model, or a pair does not agree.
        """
        places = {y.places[0]: (x, y) for x, y in pairs}
        try:
            with corrected(self.passes[1].parts, values):
                run = self.passes[1].run(Run(only={*self.ends, *places}))
        except Exception:
            return None
        known, ends = (
            all(at in run and self.agrees_again(*pair, run[at]) for at, pair in each.items())
            for each in (places, self.ends)
        )
        return ends if known else None


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.equal(b)


@cache
def _words(name: str) -> frozenset[str]:
    """List the words and numbers of a module's name."""
    return frozenset(
        SYNONYMS.get(word, word) for word in re.findall("[a-z]+[0-9]*|[0-9]+", name.lower())
    )


def _similarity(x: Value, y: Value, *, any_order: bool = False) -> float:
    """Estimate how likely two values are the same one of two models: 0 if they cannot be."""
    if x.tensor.numel() != y.tensor.numel():
        return 0.0
    names = max(
        len(_words(a) & _words(b)) / max(len(_words(a) | _words(b)), 1) + 0.5 * (what == other)
        for (a, what, _), (b, other, _) in product(x.places, y.places)
    )
    first, second = (to_float64(each.tensor).nan_to_num() for each in (x, y))
    ways = [*layouts(first, second.shape, any_order=True)] if any_order else [first]
    cosines = [torch.cosine_similarity(each.flatten(), second.flatten(), dim=0) for each in ways]
    return 0.01 + names + 0.5 * max(0.0, *map(float, cosines))
