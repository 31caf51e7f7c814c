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

import ast
import contextlib
import functools
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from common.files import write_atomically
from coursework.grader import place
from coursework.isolation import load, readers_code
from coursework.museum.exhibit import FAULT, Exhibit, code, exhibits, reports, seeded, violated

LEVELS = ("it raises", "wrong at once", "trains worse", "only in decoding or in batches")
POINTS, COST = 10, 2
"""Points of a case, half of them for the check; what each of three hints costs."""
SEEDS = (11, 12, 13)
CHECK = '''

def check(model):
    """Raise an AssertionError for the broken model; return for any right one.

    It is called with models such as the one above, with other weights. Choose inputs of your own.
    """
    raise NotImplementedError
'''


@dataclass(frozen=True)
class Case:
    """A case: the number of its file, its level from 1 to 4, its symptom, and its first hint."""

    number: int
    exhibit: Exhibit
    level: int
    symptom: str
    hint: str

    def make(self, state: str, seed: int, style: "Style | None" = None) -> Any:
        """Make the broken or the mended model, without a name that says which."""
        made = getattr(self.exhibit.module, state.title(), None)
        if made is None:
            return in_style(getattr(self.exhibit.module, state), style)
        call = "forward" if issubclass(made, nn.Module) else "__call__"
        model = seeded(type("Model", (made,), {call: in_style(getattr(made, call), style)}), seed)()
        return model.eval() if isinstance(model, nn.Module) else model

    @property
    def problem(self) -> str:
        """The first problem that the check of the exhibit reports for the broken model."""
        result = self.exhibit.examine(self.make("broken", 0))
        (found,) = (each for each in reports(result) if each.title == self.exhibit.found_by)
        return found.problems[0].splitlines()[0]

    @property
    def hints(self) -> list[str]:
        """The three hints: where to look, what a check reports, and the function of the fault."""
        report = f"The library's check {self.exhibit.found_by!r} reports: {self.problem}."
        source = code(self.exhibit.module).splitlines()
        fault = next(i for i, each in enumerate(source) if FAULT.search(each))
        owner = next(each for each in source[fault::-1] if re.match(r"\s*(def|class) ", each))
        name = owner.split("(")[0].split()[-1].lower().replace("broken", "model")
        return [self.hint, report, f"The fault is in {name!r}."]


@functools.cache
def cases() -> list[Case]:
    """List the cases by level."""
    text = Path(__file__).with_name("cases.toml").read_text("utf-8")
    listed = tomllib.loads(text)["case"]
    return [Case(i, exhibits()[each.pop("exhibit")], **each) for i, each in enumerate(listed, 1)]


def template(case: Case) -> str:
    """Write the learner's file: the broken model without what reveals its fault, and no check."""
    source = code(case.exhibit.module)
    lines, tree = source.splitlines(), ast.parse(source)
    for node in tree.body:
        name = getattr(node, "name", "")
        if "mended" in name.lower() or name == "examine":
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])  # type: ignore[attr-defined]
            lines[start - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - start + 1)
        elif isinstance(node, ast.ClassDef) and name == "Broken" and ast.get_docstring(node):
            first = node.body[0]
            lines[first.lineno - 1 : first.end_lineno] = ['    """The model."""']
    while (marked := next((i for i, x in enumerate(lines) if FAULT.search(x)), None)) is not None:
        del lines[marked]
    text = re.sub("Broken(?=[A-Z])", "", "\n".join(lines))
    text = re.sub(r"\bBroken\b", "Model", text)
    text = re.sub(r"\bbroken\b", "model", text)
    text = re.sub(r"^examine = .*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{4,}", "\n\n\n", text).strip()
    symptom = textwrap.fill(case.symptom, 96)
    head = f"Case {case.number}, level {case.level}: {LEVELS[case.level - 1]}."
    return f'"""{head}\n\n{symptom}\n"""\n\n{text}\n{CHECK}'


def figures(case: Case) -> Iterator[str]:
    """Yield what a case shows, computed now: an error, a difference, or two loss curves."""
    if case.level in (1, 4):
        yield f"measured here: {case.problem}"
        return
    broken, right = (case.make(state, 1) for state in ("broken", "mended"))
    seen = calls(case, right)
    if not isinstance(right, nn.Module):
        yield from (f"the loss of a batch: {broken(*given)}; right: {x}" for given, _, x in seen)
        return
    if case.level == 3 and list(right.parameters()):
        yield "mean squared error in learning what a right model with other weights computes:"
        yield "  after updates         1       50      100      200"
        for name, state in (("this model", "broken"), ("a right model", "mended")):
            yield f"  {name:14}" + "".join(f"{each:9.4f}" for each in learn(case, state))
        return
    broken.load_state_dict(right.state_dict())
    for arguments, options, expected in seen:
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

    for _ in range(200):
        given = tuple(map(drawn, arguments))
        loss = F.mse_loss(model(*given, **options), teacher(*given, **options).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses[update - 1] for update in (1, 50, 100, 200)]


class Style(TorchFunctionMode):
    """Right implementations of another style: functions of torch, computed in another way."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the other form of a function, if there is one."""
        return self.functions.get(func.__name__, func)(*args, **kwargs or {})


def in_style(function: Callable[..., Any], style: Style | None) -> Callable[..., Any]:
    """Make a function compute what it calls in another way."""

    @functools.wraps(function)
    def styled(*arguments: Any, **options: Any) -> Any:
        with style or contextlib.nullcontext():
            return function(*arguments, **options)

    return styled


def _softmax(x: Tensor, dim: int = -1, **options: Any) -> Tensor:
    largest = x.amax(dim, keepdim=True)
    exponentials = (x - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int = -1, **options: Any) -> Tensor:
    return x - x.logsumexp(dim, keepdim=True)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *rest: Any, **options: Any
) -> Tensor:
    scores = torch.einsum("...ld,...sd->...ls", query, key) / query.shape[-1] ** 0.5
    if options.get("is_causal"):
        attn_mask = torch.ones_like(scores[..., :, :], dtype=torch.bool).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), -torch.inf)
    return torch.einsum("...ls,...sd->...ld", torch.softmax(scores, -1).nan_to_num(), value)


def _linear(x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    product = (x.double() @ weight.double().T).to(x.dtype)
    return product if bias is None else product + bias


def _embedding(ids: Tensor, weight: Tensor, *rest: Any, **options: Any) -> Tensor:
    return F.one_hot(ids, len(weight)).to(weight) @ weight


STYLES = {
    "only the weights are others": None,
    "attention is written with einsum": Style(scaled_dot_product_attention=_attention),
    "a softmax is written with exponentials": Style(softmax=_softmax),
    "a log-softmax is written with a logarithm": Style(log_softmax=_log_softmax),
    "linear layers are computed in float64": Style(linear=_linear),
    "embeddings are products with one-hot vectors": Style(embedding=_embedding),
}
"""What is computed in another way, and how."""


def grade(number: int, path: Path) -> tuple[list[str], list[str]]:
    """Judge the learner's file of a case: what is wrong with the check, and with the model."""
    case, module = cases()[number - 1], load(path, path.stem)
    with readers_code(f"{path.name} has no check"):
        check = module.check
    return list(judge_check(case, check)), list(judge_model(case, module))


def judge_check(case: Case, check: Callable[[Any], object]) -> Iterator[str]:
    """Yield for which models a check does not do what it must."""
    for seed in SEEDS:
        if isinstance(found := outcome(check, case.make("broken", seed)), NotImplementedError):
            yield "it is not written yet"
            return
        if found is None:
            yield f"it holds for the broken model, with the weights of seed {seed}"
    refused: dict[str, list[str]] = {}
    for (text, style), seed in zip(STYLES.items(), range(21, 99), strict=False):
        if found := outcome(check, case.make("mended", seed, style)):
            refused.setdefault(told(found), []).append(text)
    for error, texts in refused.items():
        yield f"it fails for right models in which {', or '.join(texts)}: {error}"


def judge_model(case: Case, module: Any) -> Iterator[str]:
    """Yield what is wrong with the mended model."""
    theirs = case.make("mended", SEEDS[0])

    def new() -> Any:
        made = seeded(module.Model)() if hasattr(module, "Model") else module.model
        return made.eval() if isinstance(made, nn.Module) else made

    try:
        mine = new()
        if problems := violated(case.exhibit.examine(mine)):
            yield f"it still violates: {', '.join(problems)}"
        found = outcome(module.check, new())
        if found and not isinstance(found, NotImplementedError):
            yield f"your own check fails for it: {told(found)}"
        if isinstance(mine, nn.Module):
            mine.load_state_dict(theirs.state_dict())
        for arguments, options, result in calls(case, theirs):
            with torch.no_grad():
                got = mine(*arguments, **options)
            if got.shape != result.shape or not torch.allclose(got, result, atol=1e-4):
                yield "with the same weights, it does not compute what a right model computes"
    except (Exception, SystemExit) as error:  # whatever the learner's code raises
        yield f"it raises {told(error)}"


def calls(case: Case, model: Any) -> list[tuple[Any, Any, Tensor]]:
    """Record the first call of a model in the check of the exhibit: arguments, options, result."""
    seen: list[tuple[Any, Any, Any]] = []

    def record(model: Any, arguments: Any, options: Any, result: Any) -> None:
        given = (*arguments, *options.values(), result)
        if all(isinstance(each, Tensor) and each.device.type == "cpu" for each in given):
            seen.append((arguments, options, result.detach()))

    def call(*arguments: Any) -> Any:
        result = model(*arguments)
        if isinstance(result, Tensor):
            seen.append((arguments, {}, result.detach()))
        return result

    if isinstance(model, nn.Module):
        handle = model.register_forward_hook(record, with_kwargs=True)
        case.exhibit.examine(model)
        handle.remove()
    else:
        case.exhibit.examine(call)
    return [
        (
            tuple(map(in_float32, arguments)),
            {name: in_float32(each) for name, each in options.items()},
            in_float32(result),
        )
        for arguments, options, result in seen[:1]
    ]


def in_float32(x: Any) -> Any:
    """Convert a tensor of float64 to float32; a check may compute in float64."""
    return x.float() if isinstance(x, Tensor) and x.dtype == torch.float64 else x


def outcome(check: Callable[[Any], object], model: Any) -> BaseException | None:
    """Return what a check raises for a model."""
    try:
        with torch.random.fork_rng(devices=[]):
            check(model)
    except (Exception, SystemExit) as error:  # whatever the learner's code raises
        return error
    return None


def told(error: BaseException) -> str:
    """Name an error and the line of the learner's code."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}{place(error)}" + (f": {lines[0]}" if lines else "")


class Progress:
    """What a learner has solved, and the hints that he has taken: a small file.

    Attributes:
        cases: For the number of each case, the number of ``hints``, and whether the ``check`` and
            the ``model`` are solved.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "progress.json"
        known = json.loads(self.path.read_text("utf-8")) if self.path.is_file() else {}
        self.cases: dict[str, dict[str, int]] = known

    def of(self, number: int) -> dict[str, int]:
        """Return what is known of a case."""
        return self.cases.setdefault(str(number), {"hints": 0, "check": 0, "model": 0})

    def is_solved(self, number: int) -> bool:
        """Return whether the check and the model of a case are right."""
        known = self.of(number)
        return bool(known["check"] and known["model"])

    def hint(self, case: Case) -> str:
        """Give the next of three hints; after the case is solved it costs nothing."""
        known = self.of(case.number)
        taken = min(known["hints"] + 1, 3)
        if not self.is_solved(case.number):
            known["hints"] = taken
            self.save()
        return f"Hint {taken}: {case.hints[taken - 1]}"

    def points(self, number: int) -> int:
        """Count the points of a case."""
        known = self.of(number)
        solved = known["check"] + known["model"]
        return max(solved * POINTS // 2 - COST * known["hints"], solved)

    def save(self) -> None:
        """Write the file."""
        write_atomically(self.path, json.dumps(self.cases, indent=1).encode())

    def summary(self) -> str:
        """Say how many cases are solved, with how many points."""
        numbers = list(map(int, self.cases))
        total = f"{sum(map(self.points, numbers))} of {POINTS * len(cases())} points"
        solved = sum(map(self.is_solved, numbers))
        return f"debug: {solved} of {len(cases())} cases solved, {total}"


def listed(progress: Progress) -> Iterator[str]:
    """List the cases by level: the symptom, or the points of a solved one."""
    for level, text in enumerate(LEVELS, 1):
        yield f"Level {level}: {text}"
        for case in (each for each in cases() if each.level == level):
            solved = f"solved, {progress.points(case.number)} points"
            state = solved if progress.is_solved(case.number) else case.symptom
            yield f"  {case.number}. {state}"
    yield progress.summary()
