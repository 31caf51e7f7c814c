"""Grader: compares what the reader's code computes with what is right, and with known mistakes.

A unit has an *answer*, the file of ``answers`` that computes what is right, and *laws*. A law
computes something with the reader's functions. It holds if the answer computes the same. Where it
does not hold, and the answer with the edits of a known mistake (``mistakes.toml``) computes the
same as the reader's code, the cause is shown, not guessed.
"""

import functools
import sys
import tomllib
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent
TOLERANCE = 2e-5
"""Difference from the right number, relative to numbers above one, that rounding explains."""


class Mistake(NamedTuple):
    """A known mistake: old and new texts of the answer, and its exhibit in the museum."""

    name: str
    edits: list[tuple[str, str]]
    exhibit: str = ""


class Law(NamedTuple):
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


@dataclass(frozen=True)
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
            title = compute.__name__.replace("_", " ")
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
            compute = functools.partial(list_parameters, of, sizes)
            self.laws.append(Law(title, made, of, [], compute))
        for name, arguments in laws.items():
            title, case = name.replace("_", " "), made + written(arguments)
            compute = functools.partial(call, of, sizes, arguments)
            self.laws.append(Law(title, case, of, axes.split(), compute, arguments=arguments))

    def laws_of(self, of: str) -> list[Law]:
        """List the laws of one function or class."""
        return [law for law in self.laws if law.of == of]

    @property
    def mistakes(self) -> list[Mistake]:
        """The known mistakes."""
        known = tomllib.loads((FOLDER / "mistakes.toml").read_text("utf-8"))
        return [Mistake(name, **each) for name, each in known[self.file.split(".")[-1]].items()]

    def answer(self, edits: Iterable[tuple[str, str]] = ()) -> ModuleType:
        """Run the answer, right or with the edits of a mistake."""
        path = FOLDER / "answers" / f"{self.file.split('.')[-1]}.py"
        source = path.read_text("utf-8")
        for old, new in edits:
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

    law: Law
    difference: str
    cause: Mistake | None
    is_empty: bool


def list_parameters(of: str, sizes: tuple[Any, ...], my: Any) -> set[str]:
    """Collect the parameters of one of the reader's modules, with their shapes."""
    named = getattr(my, of)(*sizes).named_parameters()
    return {f"{name} {tuple(each.shape)}" for name, each in named}


def written(arguments: tuple[Any, ...]) -> str:
    """Write the arguments of a call; of a tensor, the shape."""
    shown = [f"<{tuple(x.shape)}>" if isinstance(x, Tensor) else x for x in arguments]
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


def evaluate(unit: Unit, law: Law, functions: Any) -> Any:
    """Compute what a law compares: a float64 array, another value, or the error."""
    given = (*vars(sys.modules[unit.file]).values(), *law.arguments)
    inputs = [each for each in given if isinstance(each, Tensor)]
    before = [each.clone() for each in inputs]
    try:
        with torch.random.fork_rng(devices=[]), np.errstate(all="ignore"):
            torch.manual_seed(0)
            result = comparable(law.compute(functions))
        is_changed = not all(map(torch.equal, inputs, before))
        return Raised("changes its input in place; compute a new tensor") if is_changed else result
    except NotImplementedError as error:
        return Raised(f"raises NotImplementedError{place(error)}: not written yet", is_empty=True)
    except Exception as error:  # whatever the reader's code raises is a finding
        return Raised(f"raises {type(error).__name__}{place(error)}: {error}")
    finally:
        for each, old in zip(inputs, before, strict=True):
            each.copy_(old)


def place(error: Exception) -> str:
    """Name the last line of the reader's code that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if FOLDER not in Path(each.filename).parents]
    own = [each for each in own if "site-packages" not in each.filename]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def comparable(value: Any) -> Any:
    """Turn tensors and numbers into float64 arrays; other values remain."""
    if isinstance(value, Tensor):
        return value.detach().double().cpu().numpy()
    is_number = isinstance(value, int | float | np.ndarray) and not isinstance(value, bool)
    return np.asarray(value, dtype=np.float64) if is_number else value


def are_equal(a: Any, b: Any) -> bool:
    """Compare two results; NaN equals NaN, and an error equals nothing."""
    if isinstance(a, Raised) or isinstance(b, Raised):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and bool(close(a, b).all())
    return type(a) is type(b) and bool(a == b)


def close(a: Any, b: Any) -> Any:
    """Compare two arrays of one shape, number by number."""
    return np.isclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def describe(got: Any, expected: Any, axes: list[str]) -> str:
    """Describe how a result differs from the right one: where first, and by how much."""
    if isinstance(got, Raised):
        return got.text
    if isinstance(got, set) and isinstance(expected, set):
        pairs = ("missing", expected - got), ("not of the docstring", got - expected)
        few = [(what, sorted(each)[:4], " ..." * (len(each) > 4)) for what, each in pairs if each]
        return "; ".join(f"{what}: {', '.join(names)}{more}" for what, names, more in few)
    if not (isinstance(got, np.ndarray) and isinstance(expected, np.ndarray)):
        if isinstance(got, list) and isinstance(expected, list):
            items = enumerate(zip(got, expected, strict=False))
            first = next((i for i, (a, b) in items if a != b), min(len(got), len(expected)))
            mine, right = (each[first : first + 1] or ["nothing"] for each in (got, expected))
            return f"item {first} is {mine[0]!r} instead of {right[0]!r}, in {got}"
        shown = [f"of shape {x.shape}" if isinstance(x, np.ndarray) else x for x in (got, expected)]
        return f"{shown[0]} instead of {shown[1]}"
    if got.shape != expected.shape:
        return f"the shape is {got.shape} instead of {expected.shape}"
    wrong = ~close(got, expected)
    index = tuple(int(each) for each in np.argwhere(wrong)[0])
    named = ", ".join(f"{axis} {number}" for axis, number in zip(axes, index, strict=False))
    text = f"{f'at {named}: ' if named else ''}{got[index]:.6g} instead of {expected[index]:.6g}"
    most = np.abs(got - expected)[wrong].max()
    counts = f" ({wrong.sum()} of {wrong.size} numbers differ, by at most {most:.3g})"
    return text + (counts if wrong.size > 1 else "")


def check(unit: Unit, functions: Any) -> Iterator[Finding]:
    """Yield the laws of a unit that do not hold for the reader's functions."""
    right = unit.answer()
    results = {law.title: evaluate(unit, law, functions) for law in unit.laws}
    for law in unit.laws:
        got = results[law.title]
        expected = comparable(law.expected()) if law.expected else evaluate(unit, law, right)
        if not are_equal(got, expected):
            is_empty = isinstance(got, Raised) and got.is_empty
            cause = None if isinstance(got, Raised) else find_cause(unit, law, results)
            difference = f"{law.case}: {describe(got, expected, law.axes)}"
            yield Finding(law, difference, cause, is_empty)


def find_cause(unit: Unit, law: Law, results: dict[str, Any]) -> Mistake | None:
    """Return the mistake that gives the reader's results in all laws of a function, if one does.

    A law in which one of them raises an error, such as one of gradients of numpy's numbers, is left
    out.
    """
    for mistake in unit.mistakes:
        wrong = unit.answer(mistake.edits)
        found = {each.title: evaluate(unit, each, wrong) for each in unit.laws_of(law.of)}
        if are_equal(found[law.title], results[law.title]) and all(
            isinstance(known, Raised)
            or isinstance(results[title], Raised)
            or are_equal(known, results[title])
            for title, known in found.items()
        ):
            return mistake
    return None
