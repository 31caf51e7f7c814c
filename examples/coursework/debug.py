"""Debug: the exhibits of the museum as cases, of which a learner sees the symptom only.

The learner's file of a case has the broken model, called ``Model`` or ``model``, and an empty
``check(model)``. He writes the check, an assertion that fails for the broken model and holds for
right ones, and mends the model. Both are judged by laws:

- the check must fail for the broken model with several weights, and hold for the mended one, also
  where torch's functions are computed in five other ways (:data:`STYLES`), which round differently,
  each with other weights;
- the mended model must pass the check of the exhibit and the learner's own, and must compute what
  the exhibit's mended model computes with the same weights.
"""

import functools
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from common.files import write_atomically
from coursework.answers.styles import IN_OTHER_STYLES
from coursework.grader import Finding, are_equal, describe
from coursework.isolation import load, told
from coursework.museum.exhibit import (
    FAULT,
    Exhibit,
    code,
    difference,
    exhibits,
    reports,
    seeded,
)
from coursework.progress import COST, POINTS
from transformer_blocks.inspection import Report

LEVELS = ("it raises", "wrong at once", "trains worse", "only in decoding or in batches")
SEEDS = (11, 12, 13)
UPDATES = (1, 50, 100, 200)  # after which a loss is shown
CHECK = '''

def check(model):
    """Raise an AssertionError for the broken model; return for any right one.

    It is called with models such as the one above, with other weights. Choose inputs of your own.
    """
    raise NotImplementedError
'''


class Style(TorchFunctionMode):
    """Right implementations of another style: functions of torch, computed in another way."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the other form of a function, if there is one."""
        return self.functions.get(func.__name__, func)(*args, **kwargs or {})

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function compute what it calls in this style."""

        @functools.wraps(function)
        def styled(*arguments: Any, **options: Any) -> Any:
            with self:
                return function(*arguments, **options)

        return styled


STYLES = {text: Style(**functions) for text, functions in IN_OTHER_STYLES.items()}
PLAIN, *_ = STYLES.values()


@dataclass(frozen=True)
class Case:
    """A case: its number, the heading of its level, its symptom, and its first hint."""

    name: str
    exhibit: Exhibit
    level: int
    title: str
    hint: str
    parts = "check", "model"
    needs = ()
    command = "debug"

    @property
    def group(self) -> str:
        """The heading in a list."""
        return f"Level {self.level}: {LEVELS[self.level - 1]}"

    @property
    def story(self) -> list[str]:
        """What the fault was, and where it was published."""
        command = f"python examples/course.py museum {self.exhibit.name}"
        return [f"It was: {self.exhibit.title}.", self.exhibit.source, f"The story: {command}"]

    def path(self, folder: Path) -> Path:
        """Return the learner's file."""
        return folder / f"case_{self.name.zfill(2)}.py"

    def make(self, state: str, seed: int, style: Style = PLAIN) -> Any:
        """Make the broken or the mended model, without a name that says which."""
        made = getattr(self.exhibit.module, state.title(), None)
        if made is None:
            return style.wrap(getattr(self.exhibit.module, state))
        call = "forward" if issubclass(made, nn.Module) else "__call__"
        model = seeded(type("Model", (made,), {call: style.wrap(getattr(made, call))}), seed)
        return model.eval() if isinstance(model, nn.Module) else model

    @property
    def report(self) -> Report:
        """What the check of the exhibit reports for the broken model."""
        result = self.exhibit.examine(self.make("broken", 0))
        (found,) = (each for each in reports(result) if each.title == self.exhibit.found_by)
        return found

    @property
    def hints(self) -> list[str]:
        """The three hints: where to look, what a check reports, and the function of the fault."""
        found = self.report
        problem = f"The library's check {found.title!r} reports: {found.problems[0]}"
        report = f"{problem}. Its advice: {found.advice}."
        (owner, *_) = re.findall(r"def (\w+)", difference(self.exhibit.module))
        return [self.hint, report, f"The fault is in {owner.replace('broken', 'model')!r}."]

    def begin(self, folder: Path) -> Iterator[str]:
        """Write the learner's file; yield the symptom, and what can be measured of it."""
        yield self.title
        yield from figures(self)
        write_atomically(self.path(folder), template(self).encode())
        yield (
            f"The model is in {self.path(folder)}. Write its check(), mend the model, and run this "
            f"command again; it executes the file. A hint (--hint) costs {COST} of {POINTS} points."
        )

    def judge(self, folder: Path) -> list[Finding]:
        """Judge the learner's file: what is wrong with the check, and with the model."""
        path = self.path(folder)
        module = load(path, path.stem)
        problems = {"check": judge_check(self, module.check), "model": judge_model(self, module)}
        return [Finding(of, each) for of, found in problems.items() for each in found]


@functools.cache
def cases() -> dict[str, Case]:
    """List the cases by level."""
    listed = tomllib.loads(Path(__file__).with_name("cases.toml").read_text("utf-8"))["case"]
    return {
        str(i): Case(str(i), exhibits()[x["exhibit"]], x["level"], x["symptom"], x["hint"])
        for i, x in enumerate(listed, 1)
    }


def template(case: Case) -> str:
    """Write the learner's file: the broken model without what reveals its fault, and no check."""
    text, *_ = re.split(r"\n+(?:class|def) [Mm]ended", code(case.exhibit.module))
    text = re.sub(r'(class Broken\b.*\n +""")[^"]*', r"\1The model.", text)
    text = "\n".join(line for line in text.splitlines() if not FAULT.search(line))
    text = text.replace("Broken", "Model").replace("broken", "model")
    head = textwrap.fill(f"Case {case.name}. {case.group}. {case.title}", 96)
    return f'"""{head}\n"""\n\n{text}\n{CHECK}'


def figures(case: Case) -> Iterator[str]:
    """Yield what a case shows, computed now: an error, a difference, or two loss curves."""
    broken, right = (case.make(state, 1) for state in ("broken", "mended"))
    if case.level in (1, 4) or not isinstance(right, nn.Module):
        yield f"measured here: {case.report.problems[0]}"
        return
    if case.level == 3 and list(right.parameters()):
        yield "mean squared error in learning what a right model with other weights computes:"
        yield "  after updates " + "".join(f"{update:9}" for update in UPDATES)
        for name, state in (("this model", "broken"), ("a right model", "mended")):
            yield f"  {name:14}" + "".join(f"{each:9.4f}" for each in learn(case, state))
        return
    broken.load_state_dict(right.state_dict())
    for arguments, options, expected in calls(case, right):
        with torch.no_grad():
            got = broken(*arguments, **options)
        sizes = (got - expected).flatten(min(2, got.ndim - 1)).norm(dim=-1) / expected.std()
        yield "difference from a right model with the same weights, in standard deviations:"
        for row, values in enumerate(sizes.view(len(got), -1)):
            yield f"  row {row}: " + " ".join(f"{each:5.2f}" for each in values[:10].tolist())


def learn(case: Case, state: str) -> list[float]:
    """Train a model to compute what a right one computes, on random inputs; return some losses."""
    model, teacher, losses = case.make(state, 1), case.make("mended", 2), []
    ((arguments, options, _),) = calls(case, teacher)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def drawn(x: Tensor) -> Tensor:
        if x.is_floating_point():
            return torch.randn(x.shape, generator=generator)
        tokens = torch.randint(1, int(x.max()) + 1, x.shape, generator=generator)
        return x if x.dtype == torch.bool else torch.where(x == 0, x, tokens)

    for _ in range(UPDATES[-1]):
        given = tuple(map(drawn, arguments))
        loss = F.mse_loss(model(*given, **options), teacher(*given, **options).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses[update - 1] for update in UPDATES]


def judge_check(case: Case, check: Callable[[Any], object]) -> Iterator[str]:
    """Yield for which models a check does not do what it must."""
    if isinstance(outcome(check, case.make("broken", SEEDS[0])), NotImplementedError):
        yield "it is not written yet"
        return
    held = [seed for seed in SEEDS if outcome(check, case.make("broken", seed)) is None]
    if held:
        yield f"it holds for the broken model, with {len(held)} of {len(SEEDS)} draws of weights"
    errors = {
        text: outcome(check, case.make("mended", seed, style))
        for seed, (text, style) in enumerate(STYLES.items(), 21)
    }
    failed = [f"where {text}: {told(error)}" for text, error in errors.items() if error]
    if failed:
        yield f"it fails for {len(failed)} of {len(errors)} right models, such as one {failed[0]}"


def judge_model(case: Case, module: Any) -> Iterator[str]:
    """Yield what is wrong with the mended model."""
    theirs = case.make("mended", SEEDS[0])
    try:
        mine = seeded(module.Model) if hasattr(module, "Model") else module.model
        for each in reports(case.exhibit.examine(mine)):
            if each.problems and each.title != "equivalence":  # the comparison below says where
                yield f"it violates {each.title!r}: {each.problems[0]}"
        if isinstance(mine, nn.Module):
            mine.eval().load_state_dict(theirs.state_dict())
        for arguments, options, result in calls(case, theirs):
            with torch.no_grad():
                got = mine(*arguments, **options)
            if not are_equal(got, result):
                text = describe(got, result, ["row", "position"])
                yield f"with the same weights, a right model computes something else: {text}"
    except (Exception, SystemExit) as error:  # whatever the learner's code raises
        yield f"it raises {told(error)}"


class Recorded(BaseException):
    """The first call is recorded; a check that catches errors is ended, too."""


def calls(case: Case, model: Any) -> list[tuple[Any, Any, Tensor]]:
    """Record the first call of a model in the check of the exhibit: arguments, options, result.

    Tensors of float64, in which a check may compute, become float32. A search returns no tensor.
    """
    seen: list[tuple[Any, Any, Any]] = []

    def in_float32(x: Any) -> Any:
        return x.float() if isinstance(x, Tensor) and x.dtype == torch.float64 else x

    def record(model: Any, arguments: Any, options: Any, result: Any) -> None:
        if not seen and isinstance(result, Tensor) and result.device.type == "cpu":
            seen.append((arguments, options, result.detach()))
            raise Recorded

    def call(*arguments: Any) -> Any:
        result = model(*arguments)
        record(model, arguments, {}, result)
        return result

    if isinstance(model, nn.Module):
        model.register_forward_hook(record, with_kwargs=True)
    with suppress(Recorded):
        case.exhibit.examine(model if isinstance(model, nn.Module) else call)
    return [  # only now: a check may have changed what .float() means
        (
            tuple(map(in_float32, given)),
            {k: in_float32(x) for k, x in o.items()},
            in_float32(result),
        )
        for given, o, result in seen
    ]


def outcome(check: Callable[[Any], object], model: Any) -> BaseException | None:
    """Return what a check raises for a model."""
    try:
        with torch.random.fork_rng(devices=[]):
            check(model)
    except (Exception, SystemExit) as error:  # whatever the learner's code raises
        return error
    return None
