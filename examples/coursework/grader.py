"""Grader: compares what the reader's code computes with what is right, and with known mistakes.

A unit has an *answer*, the file of ``answers`` that computes what is right, and *laws*. A law
computes something with the reader's functions. It holds if the answer computes the same. Where it
does not hold, and the answer with the edits of a known mistake (``mistakes.toml``), or of two at
once, computes the same as the reader's code, the cause is shown, not guessed.
"""

import functools
import importlib
import itertools
import shutil
import sys
import tomllib
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coursework.isolation import load, place, told

FOLDER = Path(__file__).parent
TEMPLATE = FOLDER / "template"
PACKAGE = "readers_package"
"""The name under which the reader's package is imported, whatever its folder is called."""
TOLERANCE = 2e-5
"""Difference from the right number, relative to numbers above one, that rounding explains."""


class Mistake(NamedTuple):
    """A known mistake: old and new texts of the answer, and its exhibit in the museum."""

    name: str
    edits: tuple[tuple[str, str], ...]
    exhibit: str = ""

    def with_another(self, other: "Mistake") -> "Mistake":
        """Combine two mistakes that are made at once."""
        name = f"{self.name}; and {other.name}"
        return Mistake(name, self.edits + other.edits, self.exhibit or other.exhibit)


@dataclass(frozen=True, eq=False)
class Law:
    """A law of a unit.

    Attributes:
        title: What must hold, in words.
        case: The call that is compared, or another description of what is computed.
        of: The name of the function or class that it judges.
        axes: The names of the axes of what it computes.
        compute: Computes a tensor or another value with the reader's functions.
        expected: Computes the right value; if None, the answer computes it.
        arguments: Tensors that the law passes on.
    """

    title: str
    case: str
    of: str
    axes: list[str]
    compute: Callable[[Any], Any]
    expected: Callable[[], Any] | None = None
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit: the name of the file of its laws, its title, and what it needs.

    Attributes:
        file: ``__name__`` of that file.
        needs: Units whose code this one's answer uses.
    """

    file: str
    title: str
    needs: tuple[str, ...] = ()
    laws: list[Law] = field(default_factory=list)
    group, command = "Build a Transformer", "build"
    story = ()

    @property
    def name(self) -> str:
        """The name of the unit."""
        return self.file.rpartition(".")[2]

    @property
    def parts(self) -> list[str]:
        """The functions and classes that are judged."""
        return list(dict.fromkeys(law.of for law in self.laws))

    def path(self, folder: Path) -> Path:
        """Return the reader's file."""
        return folder / f"{self.name}.py"

    def begin(self, folder: Path) -> Iterator[str]:
        """Write the files of the empty package that are missing; say what was written."""
        missing = [x for x in sorted(TEMPLATE.glob("*.py")) if not (folder / x.name).exists()]
        for path in missing:
            shutil.copy(path, folder)
        yield f"{folder} has a file for each unit. Fill {self.path(folder)}, then run this again."

    def load(self, folder: Path) -> ModuleType:
        """Import the reader's file."""
        package = load(folder / "__init__.py", PACKAGE)
        sys.modules.setdefault(folder.absolute().name, package)  # its name in absolute imports
        return importlib.import_module(f"{PACKAGE}.{self.name}")

    def judge(self, folder: Path) -> "list[Finding]":
        """Judge the reader's file: what does not hold."""
        return list(check(self, self.load(folder)))

    def law(
        self, of: str, axes: str = "", *, expected: Callable[[], Any] | None = None
    ) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Make a function a law of this unit; its name says what must hold, its docstring where."""

        def add(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
            title = spoken(compute.__name__)
            case = (compute.__doc__ or "").rstrip(".")
            self.laws.append(Law(title, case, of, axes.split(), compute, expected))
            return compute

        return add

    def calls(
        self, of: str, axes: str, *, sizes: tuple[Any, ...] = (), **laws: tuple[Any, ...]
    ) -> None:
        """Make laws, each of one call; of a module with these sizes, if there are any.

        A module has filled parameters, and a law more: their names and shapes.
        """
        made = of + written(sizes) if sizes else of
        if sizes and of not in self.parts:
            title = f"the parameters of {of} have the names and shapes of the docstring"
            compute = functools.partial(list_parameters, of, sizes)
            self.laws.append(Law(title, made, of, [], compute))
        for name, arguments in laws.items():
            title, case = spoken(name), made + written(arguments)
            compute = functools.partial(call, of, sizes, arguments)
            self.laws.append(Law(title, case, of, axes.split(), compute, arguments=arguments))

    @functools.cached_property
    def mistakes(self) -> list[Mistake]:
        """The known mistakes."""
        known = tomllib.loads((FOLDER / "mistakes.toml").read_text("utf-8"))
        return [
            Mistake(name, tuple(map(tuple, each["edits"])), each.get("exhibit", ""))
            for name, each in known[self.name].items()
        ]

    def answer(self, edits: Iterable[tuple[str, str]] = ()) -> ModuleType:
        """Run the answer, right or with the edits of a mistake.

        Raises:
            ValueError: If another edit has removed the text of one.
        """
        path = FOLDER / "answers" / f"{self.name}.py"
        source = path.read_text("utf-8")
        for old, new in edits:
            if old not in source:
                raise ValueError(f"the edits of a mistake must apply, got {old!r}")
            source = source.replace(old, new)
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        exec(compile(source, path, "exec"), vars(module))
        return module


def call(of: str, sizes: tuple[Any, ...], arguments: tuple[Any, ...], my: Any) -> Any:
    """Call a function of the reader's, or a module that is made with these sizes."""
    function = getattr(my, of)
    return (filled(function(*sizes)) if sizes else function)(*arguments)


class Raised(str):
    """What a law gives if the code raises an error."""


class Finding(NamedTuple):
    """A law that does not hold: the difference, and the mistake that gives the same result."""

    of: str
    title: str
    difference: str = ""
    cause: Mistake | None = None


def list_parameters(of: str, sizes: tuple[Any, ...], my: Any) -> list[str]:
    """List the parameters of one of the reader's modules, with their shapes."""
    found = getattr(my, of)(*sizes).named_parameters()
    return sorted(f"{name} {tuple(each.shape)}" for name, each in found)


def spoken(name: str) -> str:
    """Turn the name of a law into words."""
    return name.replace("_", " ").replace("sqrt d model", "sqrt(d_model)")


def written(arguments: tuple[Any, ...]) -> str:
    """Write the arguments of a call; of a tensor, the shape."""
    shown = [kind(x) if isinstance(x, Tensor) else x for x in arguments]
    return f"({', '.join(getattr(x, '__name__', str(x)) for x in shown)})"


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Draw the same normally distributed numbers in each call, float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def filled(module: Any) -> Any:
    """Give each parameter numbers that depend on its name, and choose the evaluation mode."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(normal(*parameter.shape, seed=zlib.crc32(name.encode())) / 2)
    return module.eval()


def kind(value: Any) -> str:
    """Name a value in an error: a small one itself, of others the type and the size."""
    if isinstance(value, Tensor):
        return f"Tensor{tuple(value.shape)}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)} items"
    is_small = isinstance(value, str | int | float | None)
    return repr(value) if is_small else f"a {type(value).__module__}.{type(value).__name__}"


def evaluate(unit: Unit, law: Law, functions: Any) -> Any:
    """Compute what a law compares: a tensor, another value, or the error."""
    given = (*vars(sys.modules[unit.file]).values(), *law.arguments)
    inputs = [each for each in given if isinstance(each, Tensor)]
    before = [each.clone() for each in inputs]
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as numpy's of an overflow
            torch.default_generator.manual_seed(0)  # torch.manual_seed formats a stack trace
            result = comparable(law.compute(functions))
        is_changed = not all(map(torch.equal, inputs, before))
        return Raised("changes its input in place; compute a new tensor") if is_changed else result
    except (Exception, SystemExit) as error:  # whatever the reader's code raises is a finding
        return Raised(f"raises {told(error)}")
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"in the law {law.title!r}{place(stop)}") from None
    finally:
        for each, old in zip(inputs, before, strict=True):
            each.copy_(old)


def comparable(value: Any) -> Any:
    """Detach a tensor, and turn a number into a tensor; other values remain."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return torch.tensor(value, dtype=torch.float64) if is_number else value


def are_equal(a: Any, b: Any) -> bool:
    """Compare two results; NaN equals NaN, and an error equals nothing."""
    if isinstance(a, Raised) or isinstance(b, Raised):
        return False
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        is_alike = a.shape == b.shape and special_dtype(a) == special_dtype(b)
        return is_alike and bool(close(a, b).all())
    try:
        return type(a) is type(b) and bool(a == b)
    except (RuntimeError, ValueError):  # of lists that hold tensors or arrays
        return False


def special_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype where it matters: a mask is bool, and no answer is float64 but a number."""
    is_special = x.dtype == torch.bool or (x.dtype == torch.float64 and x.ndim > 0)
    return x.dtype if is_special else None


def close(a: Tensor, b: Tensor) -> Tensor:
    """Compare two tensors of one shape, number by number."""
    return torch.isclose(a.double(), b.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def describe(got: Any, expected: Any, axes: list[str]) -> str:
    """Describe how a result differs from the right one: where first, and by how much."""
    if isinstance(got, Raised):
        return got
    if isinstance(got, list) and isinstance(expected, list):
        items = enumerate(zip(got, expected, strict=False))
        first = next((i for i, (a, b) in items if a != b), min(len(got), len(expected)))
        mine, right = (each[first : first + 1] or ["nothing"] for each in (got, expected))
        return f"item {first} is {mine[0]!r} instead of {right[0]!r}, in {got}"
    if not (isinstance(got, Tensor) and isinstance(expected, Tensor)):
        return f"{kind(got)} instead of {kind(expected)}"
    if special_dtype(got) != special_dtype(expected):
        return f"the dtype is {got.dtype} instead of {expected.dtype}"
    if got.shape != expected.shape:
        return f"the shape is {tuple(got.shape)} instead of {tuple(expected.shape)}"
    wrong = ~close(got, expected)
    index = tuple(wrong.nonzero()[0].tolist())
    named = ", ".join(f"{axis} {number}" for axis, number in zip(axes, index, strict=False))
    pair = [
        ("False", "True (hidden)")[x[index]] if x.dtype == torch.bool else f"{x[index]:.6g}"
        for x in (got, expected)
    ]
    text = f"{f'at {named}: ' if named else ''}{pair[0]} instead of {pair[1]}"
    sizes = (got.double() - expected.double()).abs()[wrong]
    largest, others = sizes.nan_to_num(0.0, 0.0).max(), int((~sizes.isfinite()).sum())
    size = f", by at most {largest:.3g}" * (expected.is_floating_point() and bool(largest))
    size += f", {others} are NaN or infinite" * bool(others)
    counts = f" ({wrong.sum()} of {wrong.numel()} numbers differ{size})"
    return text + (counts if wrong.numel() > 1 else "")


def check(unit: Unit, functions: Any) -> Iterator[Finding]:
    """Yield the laws of a unit that do not hold for the reader's functions."""
    yield from explain(unit, {law: evaluate(unit, law, functions) for law in unit.laws})


def explain(unit: Unit, results: dict[Law, Any]) -> Iterator[Finding]:
    """Yield the laws that do not hold for these results, and why."""
    for law, got in results.items():
        expected = right_value(unit, law)
        if not are_equal(got, expected):
            known = [] if isinstance(got, Raised) else unit.mistakes
            cause = find_cause(unit, law, results, one_or_two(known))
            difference = f"{law.case}: {describe(got, expected, law.axes)}"
            yield Finding(law.of, law.title, difference, cause)


def one_or_two(mistakes: list[Mistake]) -> Iterator[Mistake]:
    """Yield each of these mistakes, then each two at once."""
    yield from mistakes
    yield from itertools.starmap(Mistake.with_another, itertools.combinations(mistakes, 2))


def find_cause(
    unit: Unit, law: Law, results: dict[Law, Any], mistakes: Iterable[Mistake]
) -> Mistake | None:
    """Return the mistake that gives the reader's results in all laws of a function.

    A law in which one of them raises an error, such as one of gradients of numpy's numbers, is left
    out.
    """
    others = [each for each in results if each.of == law.of and each is not law]
    for mistake in mistakes:
        found = functools.partial(result_of, unit, mistake.edits)
        if are_equal(found(law), results[law]) and all(
            isinstance(found(each), Raised)
            or isinstance(results[each], Raised)
            or are_equal(found(each), results[each])
            for each in others
        ):
            return mistake
    return None


@functools.cache
def right_value(unit: Unit, law: Law) -> Any:
    """Compute what a law must give."""
    return comparable(law.expected()) if law.expected else result_of(unit, (), law)


@functools.cache
def result_of(unit: Unit, edits: tuple[tuple[str, str], ...], law: Law) -> Any:
    """Compute what a law gives for the answer with these edits."""
    answer = answer_with(unit, edits)
    return answer if isinstance(answer, Raised) else evaluate(unit, law, answer)


@functools.cache
def answer_with(unit: Unit, edits: tuple[tuple[str, str], ...]) -> ModuleType | Raised:
    """Run the answer with these edits, once; an error if they exclude each other."""
    try:
        return unit.answer(edits)
    except (ValueError, SyntaxError) as error:
        return Raised(str(error))
