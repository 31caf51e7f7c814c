"""Examine: the course's laws, pointed at anybody's attention, mask, positional encoding or model.

An adapter makes of a class what a unit of the course expects: its sizes are found by the names of
the arguments (``conventions.toml``), its projections by their names or order, and its convention of
masks by trying the usual ones. So the grader can compare it with the answer, and with known
mistakes. A layer or a model, which has no answer, is examined by ``check_soundness``.
"""

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Finding, check, normal
from coursework.isolation import load
from coursework.museum.exhibit import exhibits, violated
from coursework.units import UNITS
from transformer_blocks.inspection import check_soundness

CONVENTIONS = tomllib.loads(Path(__file__).with_name("conventions.toml").read_text("utf-8"))
ROLE = re.compile(r"(?:^|_|w)([qkv])(?:[suea_]|$)")
"""Queries, keys or values in the name of a projection."""
Form = Callable[[Tensor], Tensor]
FORMS: dict[str, Form | None] = {
    "True hides a key": lambda mask: mask,
    "True attends to a key": lambda mask: mask.logical_not(),
    "1 attends, 0 hides": lambda mask: mask.logical_not().float(),
    "1 hides, 0 attends": lambda mask: mask.float(),
    "added to the scores": lambda mask: mask.float().masked_fill(mask, -torch.inf),
    "a causal mask of its own": None,
}
"""Conventions of masks, each made of one in which True hides."""


def make(kind: Any, d_model: int, num_heads: int) -> Any:
    """Make an object of a class, with sizes found by the names of its arguments.

    Raises:
        TypeError: If an argument without a default is not known.
    """
    d_k = d_model // num_heads
    values = {"num_heads": num_heads, "d_model": d_model, "d_k": d_k, "temperature": d_k**0.5}
    values |= {"d_ff": 20, "num_layers": 2, "vocabulary_size": 23, "dropout": 0.0, "max_length": 50}
    given = {}
    for name, each in inspect.signature(kind).parameters.items():
        if (size := size_of(name)) is not None:
            given[name] = values[size]
        elif each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            raise TypeError(f"the argument {name!r} of {kind.__name__} must have a known name")
    made = kind(**given)
    return made.eval() if isinstance(made, nn.Module) else made


def size_of(name: str) -> str | None:
    """Return which size an argument is, by its name."""
    sizes = CONVENTIONS["sizes"].items()
    return next((size for size, each in sizes if re.fullmatch(each, name.lower())), None)


def names_of(function: Any) -> list[str]:
    """List the names of a function's or a module's arguments."""
    function = function.forward if isinstance(function, nn.Module) else function
    return [n for n in inspect.signature(function).parameters if n not in ("self", "args")]


def attend(
    function: Any,
    form: Form | None,
    axes: int,
    mask: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    """Call an attention with what it takes: three sequences, two, or one, and a mask of its form.

    Raises:
        NotImplementedError: If it cannot express what is asked.
    """
    names = names_of(function)
    masks = [name for name in names if "mask" in name or name == "bias"]
    given = [query, key, value][: len([name for name in names[:3] if name not in masks])]
    length, keys = query.shape[-2], key.shape[-2]
    is_causal = mask is not None and mask.shape[-2:] == (keys, keys)
    if (len(given) < 3 and value is not key) or (len(given) == 1 and key is not query):
        raise NotImplementedError
    if (form is None and not is_causal) or (form and mask is not None and not masks):
        raise NotImplementedError
    options = {}
    if form and mask is not None:
        if axes == 2 and mask.shape[-2] != 1:
            raise NotImplementedError
        heads = query.shape[1] if query.ndim == 4 else 1
        full = form(mask).expand(len(query), heads, length, keys)
        full = full if axes == 4 else full.flatten(0, 1)
        options = {masks[0]: full[:, 0] if axes == 2 else full}
    flat = [x.flatten(0, 1) if axes == 3 and x.ndim == 4 else x for x in given]
    found, shape = function(*flat, **options), (*query.shape[:-1], value.shape[-1])
    tensors = [x for x in (found if isinstance(found, tuple | list) else (found,)) if len(x.shape)]
    output: Tensor = next((x for x in tensors if x.shape[-2:] == shape[-2:]), tensors[0])
    return output.reshape(shape) if output.numel() == math.prod(shape) else output


def plain_attention(kind: Any, form: Form | None, axes: int) -> dict[str, Any]:
    """Adapt an attention without projections, of vectors with an axis of heads or without."""

    def attended(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        function = make(kind, query.shape[-1], 1) if inspect.isclass(kind) else kind
        return attend(function, form, axes, mask, query, key, value)

    def weights(query: Tensor, key: Tensor, mask: Any = None) -> Tensor:
        identity = torch.eye(key.shape[2]).expand(*key.shape[:2], -1, -1)
        return attended(query, key, identity, mask)  # the weighted sum of one-hot values

    def both(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Any:
        return attended(query, key, value, mask), weights(query, key, mask)

    return {"attention_weights": weights, "scaled_dot_product_attention": both}


def projected_attention(kind: Any, form: Form | None, axes: int) -> dict[str, Any]:
    """Adapt an attention with projections, which get the weights of the answer's."""
    has_heads = "num_heads" in map(size_of, inspect.signature(kind).parameters)
    answer: Any = UNITS["heads"].answer()

    class MultiHeadAttention(answer.MultiHeadAttention):  # type: ignore[misc]
        def __init__(self, d_model: int, num_heads: int) -> None:
            super().__init__(d_model, num_heads)
            if has_heads != (num_heads > 1):
                raise NotImplementedError
            self.inner = [make(kind, d_model, num_heads)]  # in a list: not among the parameters

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
            (inner,) = self.inner
            copy_projections([*self.children()], inner)
            norms = [n for n, each in inner.named_modules() if isinstance(each, nn.LayerNorm)]
            for name in norms:
                inner.set_submodule(name, nn.Identity())
            output = attend(inner.eval(), form, axes, mask, query, key, value)
            return output - query if norms else output  # the residual connection

    return {"MultiHeadAttention": MultiHeadAttention}


def copy_projections(mine: list[Any], inner: nn.Module) -> None:
    """Copy the weights of projections to those of the same role, by their names, or by their order.

    Raises:
        TypeError: If there are neither four, nor three in one and a fourth.
    """
    layers = {n: each for n, each in inner.named_modules() if isinstance(each, nn.Linear)}

    def role(name: str) -> tuple[int, int]:
        found = ROLE.search(name.split(".")[-1].lower())
        return -layers[name].out_features, "qkv".index(found[1]) if found else 3

    groups = [mine[:3], mine[3:]] if len(layers) == 2 else [[each] for each in mine]
    if len(layers) != len(groups):
        raise TypeError(f"an attention must have four linear layers, got {len(layers)}")
    for name, group in zip(sorted(layers, key=role), groups, strict=True):
        layers[name].weight = nn.Parameter(torch.cat([each.weight for each in group]))
        layers[name].bias = nn.Parameter(torch.cat([each.bias for each in group]))


def encoding(kind: Any) -> dict[str, Any]:
    """Adapt a positional encoding."""

    class SinusoidalPositionalEncoding(nn.Module):
        def __init__(self, d_model: int, max_length: int = 50) -> None:
            super().__init__()
            self.inner = [make(kind, d_model, 1)]

        def forward(self, x: Tensor, offset: int = 0) -> Tensor:
            if offset:
                raise NotImplementedError
            found: Tensor = self.inner[0](x)
            return found if found.shape == x.shape else x + found

    return {"SinusoidalPositionalEncoding": SinusoidalPositionalEncoding}


def causal(kind: Any, form: Form) -> dict[str, Any]:
    """Adapt a function that builds a causal mask."""

    def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
        if key_length not in (None, query_length) and len(names_of(kind)) < 2:
            raise NotImplementedError
        found: Tensor = kind(query_length, key_length) if key_length else kind(query_length)
        return found.squeeze() == form(torch.tensor(True))

    return {"causal_mask": causal_mask}


def candidates(kind: Any) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the unit that judges a class or function, and its adapters by their conventions."""
    name, parameters = kind.__name__.lower(), names_of(getattr(kind, "forward", kind))
    if "mask" in name and not inspect.isclass(kind):
        return "masks", {text: causal(kind, form) for text, form in FORMS.items() if form}
    if "posit" in name:
        return "positions", {"": encoding(kind)}
    inputs = [each for each in parameters if "mask" not in each]
    if not re.search("att(entio)?n", name) and len(inputs) < 3:
        return "", {}
    has_weights = inspect.isclass(kind) and [*make(kind, 18, 3).parameters()] != []
    adapt = projected_attention if has_weights else plain_attention
    shapes = {4: "(B, H, L, S)", 3: "(B, L, S)"} | ({2: "(B, S)"} if has_weights else {})
    return ("heads" if has_weights else "attention"), {
        f"masks of shape {shape}: {text}": adapt(kind, form, axes)
        for text, form in FORMS.items()
        for axes, shape in shapes.items()
    }


def judge(unit: str, functions: dict[str, Any]) -> tuple[list[Finding], int]:
    """Judge adapted functions by a unit: what does not hold, and how many laws apply."""
    laws = [law for law in UNITS[unit].laws if law.of in functions and "names and" not in law.title]
    titles = {law.title for law in laws}
    found = [f for f in check(UNITS[unit], SimpleNamespace(**functions)) if f.title in titles]
    applied = [f for f in found if "raises NotImplementedError" not in f.difference]
    return applied, len(laws) - len(found) + len(applied)


def examine(path: Path, name: str) -> list[str]:
    """Examine a class or function of a file; return what is told about it."""
    kind = getattr(load(path, path.stem), name)
    unit, adapters = candidates(kind)
    results = {text: judge(unit, functions) for text, functions in adapters.items()}
    results = {text: each for text, each in results.items() if each[1]}
    if not results:
        return list(examine_model(kind))

    def rank(text: str) -> tuple[int, ...]:
        findings, count = results[text]
        named = sum(each.cause is not None for each in findings)
        return count - len(findings), named, -len(findings)

    best = max(results, key=rank)
    findings, count = results[best]
    has_mask = any("mask" in each for each in (name, *names_of(getattr(kind, "forward", kind))))
    told = [f"{name}: {count - len(findings)} of {count} laws hold" + f"; {best}" * has_mask]
    told += [f"violated: {each.title}: {each.difference}" for each in findings]
    for cause in dict.fromkeys(each.cause for each in findings if each.cause):
        told.append(f"a known mistake gives the same: {cause.name}{line_of(kind, cause.name)}")
        if cause.exhibit:
            told.append(f"published: {exhibits()[cause.exhibit].source}")
            told.append(f"the story: python examples/course.py museum {cause.exhibit}")
    return told


def line_of(kind: Any, mistake: str) -> str:
    """Name the first line of the code that can have a mistake, by its words."""
    source, first = inspect.getsourcelines(kind)
    for words, pattern in CONVENTIONS["lines"].items():
        for number, line in enumerate(source if re.search(words, mistake) else [], first):
            if re.search(pattern, line) and not re.match(r"\s*(def|class|#|\"\"\")", line):
                return f"; probably line {number}: {line.strip()}"
    return ""


def examine_model(kind: Any) -> Iterator[str]:
    """Examine a layer or a model by ``check_soundness``, and name faults with the same reports."""
    model = make(kind, 18, 3)
    names = [name for name in names_of(model) if "mask" not in name]
    takes_ids = any(isinstance(each, nn.Embedding) for each in model.modules())
    x = normal(2, 6, 18)
    inputs = [x[:, :5], x.flip(1)]
    if takes_ids:
        inputs = [(each[..., 0] * 50).long() % 22 + 1 for each in inputs]
    soundness = check_soundness(model, dict(zip(names, inputs, strict=False)))
    yield from str(soundness).splitlines()
    for title in violated(soundness):
        if same := [each.title for each in exhibits().values() if each.found_by == title][:3]:
            yield f"published faults that the check {title!r} found: {'; '.join(same)}"
