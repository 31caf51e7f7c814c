"""Grader: compares what the reader's code computes with what is right, and with known mistakes.

A unit has an *answer*, the file of ``answers`` that computes what is right, and *laws*. A law
computes something with the reader's functions. It holds if the answer computes the same. Where it
does not hold, and the answer with the edits of a known mistake (``mistakes.toml``), or of two at
once, computes the same as the reader's code, the cause is shown, not guessed.
"""

import functools
import importlib
import inspect
import itertools
import os
import sys
import sysconfig
import tomllib
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent
NOT_READERS = f"{FOLDER}{os.sep}", sysconfig.get_path("stdlib"), "<frozen"
"""How the names of files begin that are not the reader's."""
TOLERANCE = 2e-5
"""Difference from the right number, relative to numbers above one, that rounding explains."""
NUMBER = (int, float, np.number, Tensor)
ACCEPTED: dict[Any, Any] = {int: NUMBER, float: NUMBER, tuple: (tuple, list), Counter: dict}
"""Types that are accepted in place of an annotated one."""


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
        if sizes and not self.laws_of(of):
            title = f"the parameters of {of} have the names and shapes of the docstring"
            compute = functools.partial(list_parameters, self, of, sizes)
            self.laws.append(Law(title, made, of, [], compute))
        for name, arguments in laws.items():
            title, case = spoken(name), made + written(arguments)
            compute = functools.partial(call, of, sizes, arguments)
            self.laws.append(Law(title, case, of, axes.split(), compute, arguments=arguments))

    def laws_of(self, of: str) -> list[Law]:
        """List the laws of one function or class."""
        return [law for law in self.laws if law.of == of]

    @property
    def template(self) -> ModuleType:
        """The empty file of this unit; its annotations say what each function returns."""
        return importlib.import_module(f"coursework.template.{self.file.split('.')[-1]}")

    @functools.cached_property
    def mistakes(self) -> list[Mistake]:
        """The known mistakes."""
        known = tomllib.loads((FOLDER / "mistakes.toml").read_text("utf-8"))
        return [
            Mistake(name, tuple(map(tuple, each["edits"])), each.get("exhibit", ""))
            for name, each in known[self.file.split(".")[-1]].items()
        ]

    def answer(self, edits: Iterable[tuple[str, str]] = ()) -> ModuleType:
        """Run the answer, right or with the edits of a mistake.

        Raises:
            ValueError: If another edit has removed the text of one.
        """
        path = FOLDER / "answers" / f"{self.file.split('.')[-1]}.py"
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


class Raised(NamedTuple):
    """What a law gives if the code raises an error; ``is_empty`` where nothing is written yet."""

    text: str
    is_empty: bool = False


class Finding(NamedTuple):
    """A law that does not hold: the difference, and the mistake that gives the same result."""

    of: str
    title: str
    difference: str
    cause: Mistake | None
    is_empty: bool


def list_parameters(unit: Unit, of: str, sizes: tuple[Any, ...], my: Any) -> set[str]:
    """Collect the parameters of one of the reader's modules, with their shapes."""
    module, right = (getattr(each, of)(*sizes) for each in (my, unit.answer()))
    found = dict(module.named_parameters())
    shapes = {f"{name} {tuple(each.shape)}" for name, each in found.items()}
    plain = [n for n, _ in right.named_parameters() if n not in found and hasattr(module, n)]
    return shapes | {f"{name} is not an nn.Parameter: nothing would train it" for name in plain}


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


class WrongTypeError(TypeError):
    """A result is not of the type that the template's annotation names."""


def check_type(name: str, value: Any, annotation: Any) -> None:
    """Compare what a call returns with an annotation; of lists and tuples, each item.

    Raises:
        WrongTypeError: If it is of another type, or a tensor of float64.
    """
    wanted, items = get_origin(annotation) or annotation, get_args(annotation)
    is_accepted = isinstance(value, ACCEPTED.get(wanted, wanted))
    if not is_accepted or (wanted is tuple and len(value) != len(items)):
        rule = inspect.formatannotation(annotation).replace("torch.", "")
        raise WrongTypeError(f"{name} must be {rule}, got {kind(value)}")
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        raise WrongTypeError(f"the dtype of {name} must be float32, got float64")
    if isinstance(value, list | tuple):
        types = items if wanted is tuple else itertools.repeat(items[0])
        for i, (item, each) in enumerate(zip(value, types, strict=False)):
            check_type(f"{name}[{i}]", item, each)


def kind(value: Any) -> str:
    """Name a value in an error: a small one itself, of others the type and the size."""
    if isinstance(value, Tensor):
        return f"Tensor{tuple(value.shape)}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)} items"
    is_small = isinstance(value, str | int | float | None)
    return repr(value) if is_small else f"a {type(value).__module__}.{type(value).__name__}"


def typed(mine: Any, template: Any) -> Any:
    """Wrap the reader's functions and methods, so that a result of a wrong type is an error."""
    parts = {
        name: typed(getattr(mine, name), each)
        for name, each in vars(template).items()
        if hasattr(mine, name) and getattr(each, "__module__", "").startswith("coursework.template")
    }
    if isinstance(mine, type | ModuleType):
        return type(mine.__name__, (mine,) if isinstance(mine, type) else (), parts)

    @functools.wraps(mine)
    def checked(*arguments: Any, **options: Any) -> Any:
        result = mine(*arguments, **options)
        if (annotation := template.__annotations__["return"]) is not None:
            check_type(f"{template.__qualname__}()", result, annotation)
        return result

    return checked


def evaluate(unit: Unit, law: Law, functions: Any) -> Any:
    """Compute what a law compares: a tensor, another value, or the error."""
    given = (*vars(sys.modules[unit.file]).values(), *law.arguments)
    inputs = [each for each in given if isinstance(each, Tensor)]
    before = [each.clone() for each in inputs]
    try:
        with torch.random.fork_rng(devices=[]), np.errstate(all="ignore"):
            torch.default_generator.manual_seed(0)  # torch.manual_seed formats a stack trace
            result = comparable(law.compute(functions))
        is_changed = not all(map(torch.equal, inputs, before))
        return Raised("changes its input in place; compute a new tensor") if is_changed else result
    except NotImplementedError as error:
        return Raised(f"raises NotImplementedError{place(error)}: not written yet", is_empty=True)
    except WrongTypeError as error:
        return Raised(str(error))
    except (Exception, SystemExit) as error:  # whatever the reader's code raises is a finding
        return Raised(f"raises {type(error).__name__}{place(error)}: {error}")
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"in the law {law.title!r}{place(stop)}") from None
    finally:
        for each, old in zip(inputs, before, strict=True):
            each.copy_(old)


def place(error: BaseException) -> str:
    """Name the last line of the reader's code that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(NOT_READERS)]
    own = [each for each in own if "site-packages" not in each.filename]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def comparable(value: Any) -> Any:
    """Detach a tensor, and turn a number into a tensor; other values remain."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return torch.tensor(value, dtype=torch.float64) if is_number else value


def are_equal(a: Any, b: Any) -> bool:
    """Compare two results; NaN equals NaN, and an error equals nothing."""
    if isinstance(a, Raised) or isinstance(b, Raised):
        return False
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        are_masks = {x.dtype == torch.bool for x in (a, b)}
        return len(are_masks) == 1 and a.shape == b.shape and bool(close(a, b).all())
    return type(a) is type(b) and bool(a == b)


def close(a: Tensor, b: Tensor) -> Tensor:
    """Compare two tensors of one shape, number by number."""
    return torch.isclose(a.double(), b.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def describe(got: Any, expected: Any, axes: list[str]) -> str:
    """Describe how a result differs from the right one: where first, and by how much."""
    if isinstance(got, Raised):
        return got.text
    if isinstance(got, set) and isinstance(expected, set):
        pairs = ("missing", expected - got), ("unexpected", got - expected)
        few = [(what, sorted(each)[:4], " ..." * (len(each) > 4)) for what, each in pairs if each]
        return "; ".join(f"{what}: {', '.join(names)}{more}" for what, names, more in few)
    if isinstance(got, list) and isinstance(expected, list):
        items = enumerate(zip(got, expected, strict=False))
        first = next((i for i, (a, b) in items if a != b), min(len(got), len(expected)))
        mine, right = (each[first : first + 1] or ["nothing"] for each in (got, expected))
        return f"item {first} is {mine[0]!r} instead of {right[0]!r}, in {got}"
    if not (isinstance(got, Tensor) and isinstance(expected, Tensor)):
        return f"{kind(got)} instead of {kind(expected)}"
    if (got.dtype == torch.bool) != (expected.dtype == torch.bool):
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
    finite = sizes[sizes.isfinite()]
    size = (
        f", by at most {finite.max():.3g}" if expected.is_floating_point() and len(finite) else ""
    )
    size += f", {len(sizes) - len(finite)} are NaN or infinite" if len(finite) < len(sizes) else ""
    counts = f" ({wrong.sum()} of {wrong.numel()} numbers differ{size})"
    return text + (counts if wrong.numel() > 1 else "")


def check(unit: Unit, functions: Any) -> Iterator[Finding]:
    """Yield the laws of a unit that do not hold for the reader's functions."""
    mine = typed(functions, unit.template)
    results = {law: evaluate(unit, law, mine) for law in unit.laws}
    for law, got in results.items():
        expected = right_value(unit, law)
        if not are_equal(got, expected):
            cause = None if isinstance(got, Raised) else find_cause(unit, law, results)
            difference = f"{law.case}: {describe(got, expected, law.axes)}"
            is_empty = isinstance(got, Raised) and got.is_empty
            yield Finding(law.of, law.title, difference, cause, is_empty)


def find_cause(unit: Unit, law: Law, results: dict[Law, Any]) -> Mistake | None:
    """Return what gives the reader's results in all laws of a function: a mistake, or two at once.

    A law in which one of them raises an error, such as one of gradients of numpy's numbers, is left
    out.
    """
    others = [each for each in unit.laws_of(law.of) if each is not law]
    pairs = itertools.combinations(unit.mistakes, 2)
    for mistake in itertools.chain(unit.mistakes, itertools.starmap(Mistake.with_another, pairs)):
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
