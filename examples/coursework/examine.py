"""Examine: the course's laws, pointed at anybody's attention, mask, positional encoding or model.

An adapter makes of a class what a unit of the course expects: its sizes are found by the names of
its arguments or of a configuration's (``conventions.toml``), its projections by their names. What
names do not tell, such as which way a mask points, is a :class:`Convention`: all are tried, and the
one is taken with which most laws hold. So the grader can compare the class with the answer, and
with known mistakes. A layer or a model, which has no answer, is examined by ``check_soundness``; so
is a class for which no law holds and which no known mistake explains, such as a rotary attention.
"""

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import (
    Finding,
    Law,
    Raised,
    Unit,
    are_equal,
    describe,
    evaluate,
    explain,
    find_cause,
    normal,
    right_value,
)
from coursework.isolation import load, told
from coursework.museum.exhibit import exhibits, violated
from coursework.units import UNITS
from transformer_blocks.inspection import check_soundness

CONVENTIONS = tomllib.loads(Path(__file__).with_name("conventions.toml").read_text("utf-8"))
ROLE = re.compile(r"(?:^|[_.]|w|to)([qkv]+)(?:[suea_.\d]|$)")
"""Queries, keys or values in the name of a projection or an argument."""
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "True hides a key": lambda mask: mask,
    "True attends to a key": lambda mask: mask.logical_not(),
    "1 attends, 0 hides": lambda mask: mask.logical_not().float(),
    "1 hides, 0 attends": lambda mask: mask.float(),
    "added to the scores": lambda mask: mask.float().masked_fill(mask, -torch.inf),
    "lengths": lambda mask: mask.logical_not().sum(-1),
}
"""What masks mean, each made of one in which True hides."""
SHAPES = "(B, H, L, S)", "(B, L, S)", "(L, S)", "(B, S)"
CAUSAL, CAUSAL_ALONE = "a causal mask of its own", "a causal mask of its own, unless one is passed"
INTERLEAVED = "features of the heads interleaved"
ROWS: dict[str, tuple[int, ...]] = {
    "": (0, 1, 2),
    "queries, keys and values of each head together": (1, 0, 2),
    "queries, keys and values of each feature together": (1, 2, 0),
    INTERLEAVED: (0, 2, 1),
    f"{INTERLEAVED} where they are split": (0, 2, 1),
}
"""How the rows of projections are ordered: which projection (0), which head (1), which feature (2).

A model that is trained with one of these orders can compute what it can with another one.
"""
SEQUENCE_FIRST, FLAT = "vectors of shape (L, B, E)", "vectors of shape (B, L, E)"
ALONE, OF_TOKENS = "returned without the vectors", "made of tokens, without their vectors"
SINES_FIRST = "all sines before all cosines"
OF_ANOTHER_KIND = (
    "{}: no law of {} holds, and no known mistake explains it. It may be of another kind, such as "
    "one with rotary positions, or have a fault that is not known."
)
Functions = dict[str, Any]


@dataclass(frozen=True)
class Convention:
    """What the names in a class do not tell.

    Attributes:
        layout: What inputs or outputs are, if they are not what the course has.
        causal: Whether it has a causal mask of its own.
        order: The order of the projections, if their names do not tell which is which.
        features: The order of features, if it is another one.
        mask: Shape and form of masks.
        padding: Shape and form of padding masks.
    """

    layout: str = ""
    causal: str = ""
    order: str = "qkv"
    features: str = ""
    mask: tuple[str, str] = ("", "")
    padding: tuple[str, str] = ("", "")

    def told(self) -> str:
        """Say what is not as in the course, and what masks are like, if it takes any."""
        order = f"projections in the order {', '.join(self.order)}" * (self.order != "qkv")
        forms = dict.fromkeys((self.mask, self.padding))
        told = [f"masks{shape and f' of shape {shape}'}: {form}" for shape, form in forms if form]
        return "; ".join(filter(None, (self.layout, self.causal, order, self.features, *told)))


class Sizes:
    """Sizes by the names that people give them; a configuration has them as attributes."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        d_k = d_model // num_heads
        self.values: dict[str, Any] = {
            "num_heads": num_heads,
            "d_model": d_model,
            "d_k": d_k,
            "bias": True,
            "device": "cpu",
        }
        self.values |= {"temperature": d_k**0.5, "d_ff": 20, "num_layers": 2, "dropout": 0.0}
        self.values |= {"vocabulary_size": 23, "max_length": 50, "config": self}
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        sizes = CONVENTIONS["sizes"].items()
        size = next((size for size, each in sizes if re.fullmatch(each, name.lower())), None)
        if size is None:
            raise AttributeError(f"the size {name!r} must have a known name")
        self.used.add(size)
        return self.values[size]


def make(kind: Any, sizes: Sizes) -> Any:
    """Make an object of a class, or call a function, with sizes found by its arguments' names.

    Raises:
        TypeError: If an argument without a default is not known.
    """
    given = {}
    for name, each in inspect.signature(kind).parameters.items():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if hasattr(sizes, name):
            given[name] = getattr(sizes, name)
        elif each.default is each.empty:
            raise TypeError(f"the argument {name!r} of {kind.__name__} must have a known name")
    made = kind(**given)
    return made.eval() if isinstance(made, nn.Module) else made


def example(kind: Any) -> tuple[Any, set[str]]:
    """Make an object of a class, and tell which sizes it takes; without heads, it is one head."""
    sizes = Sizes(18, 3)
    made = make(kind, sizes)
    return made if "num_heads" in sizes.used else make(kind, Sizes(18, 1)), sizes.used


def arguments_of(function: Any) -> tuple[list[str], list[str]]:
    """List the names of the sequences that a function or a module takes, and of the masks."""
    found = inspect.signature(getattr(function, "forward", function)).parameters
    names = [n for n in found if n not in ("self", "args", "kwargs")]
    masks, sequences = (
        [name for name in names if re.fullmatch(CONVENTIONS["arguments"][each], name.lower())]
        for each in ("masks", "sequences")
    )
    needed = [n for n in names if found[n].default is found[n].empty or n in sequences]
    return [n for n in needed if n not in masks][:3], masks


def roles_of(names: list[str]) -> dict[str, str]:
    """Tell which arguments are queries, keys and values: by their names, or by their order."""
    found = [match[1] for match in map(ROLE.search, map(str.lower, names)) if match]
    return dict(zip(names, found if sorted(found) == sorted("qkv") else "qkv", strict=False))


def reduced(mask: Tensor, shape: str) -> Tensor:
    """Leave out the axes of a mask (B, H, L, S) that a shape does not have.

    Raises:
        NotImplementedError: If the mask is not the same along one of them.
    """
    for axis in (2, 1, 0):
        if "BHLS"[axis] not in shape:
            first = mask.narrow(axis, 0, 1)
            if not mask.eq(first).all():
                raise NotImplementedError
            mask = first.squeeze(axis)
    return mask


def attend(
    function: Any, how: Convention, mask: Any, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Call an attention with the sequences and masks that it takes.

    Raises:
        NotImplementedError: If it cannot express what is asked.
    """
    names, masks = arguments_of(function)
    if (len(names) < 3 and value is not key) or (len(names) < 2 and key is not query):
        raise NotImplementedError
    (batch, *heads, length, _), keys = query.shape, key.shape[-2]
    hidden = torch.zeros(batch, *(heads or [1]), length, keys, dtype=torch.bool)
    hidden = hidden if mask is None else hidden | mask
    future = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
    if how.causal == CAUSAL:
        if (length != keys and not masks) or not hidden[..., future].all():
            raise NotImplementedError
        hidden = hidden[..., -1:, :].expand_as(hidden)  # what remains is padding
    if how.causal == CAUSAL_ALONE:
        if "L" not in how.padding[0] or not hidden.any():
            raise NotImplementedError
        hidden = hidden & bool(length != keys or (hidden != future).any())
    given = dict(zip("qkv", (query, key, value), strict=True))
    if how.layout == FLAT:
        hidden = hidden.flatten(0, 1)[:, None]
        given = {role: x.flatten(0, 1) for role, x in given.items()}
    if how.layout == SEQUENCE_FIRST:
        given = {role: x.transpose(0, 1) for role, x in given.items()}
    options: dict[str, Any] = {name: given[role] for name, role in roles_of(names).items()}
    is_padding = bool(hidden.eq(hidden[..., :1, :]).all())
    masks.sort(key=lambda name: bool(re.search("pad|len", name)) != is_padding)
    if hidden.any():
        axes, form = how.padding if is_padding else how.mask
        if not (masks and form):
            raise NotImplementedError
        options[masks[0]] = FORMS[form](reduced(hidden, axes))
    for name in masks:  # those without a default
        options.setdefault(name, None)
    try:
        found, shape = function(**options), (*query.shape[:-1], value.shape[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        if how.causal == CAUSAL and length != keys:  # it refuses other sequences
            raise NotImplementedError from error
        raise
    output = output_of(found, shape[-1])
    return (output.transpose(0, 1) if how.layout == SEQUENCE_FIRST else output).reshape(shape)


def output_of(returned: Any, size: int) -> Tensor:
    """Choose the vectors of a size among the tensors that an attention returns."""
    returned = returned if isinstance(returned, tuple | list) else (returned,)
    tensors: list[Tensor] = [x for x in returned if len(x.shape)]
    return next((x for x in tensors if x.shape[-1] == size), tensors[0])


def plain_attention(kind: Any, how: Convention) -> Functions:
    """Adapt an attention without projections."""

    def attended(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        function = make(kind, Sizes(query.shape[-1], 1)) if inspect.isclass(kind) else kind
        return attend(function, how, mask, query, key, value)

    def weights(query: Tensor, key: Tensor, mask: Any = None) -> Tensor:
        identity = torch.eye(key.shape[2]).expand(*key.shape[:2], -1, -1)
        return attended(query, key, identity, mask)  # the weighted sum of one-hot values

    def both(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Any:
        return attended(query, key, value, mask), weights(query, key, mask)

    return {"attention_weights": weights, "scaled_dot_product_attention": both}


def projected_attention(kind: Any, how: Convention) -> Functions:
    """Adapt an attention with projections, which get the weights of the answer's."""
    answer: Any = UNITS["heads"].answer()
    _, sizes = example(kind)

    class MultiHeadAttention(answer.MultiHeadAttention):  # type: ignore[misc]
        def __init__(self, d_model: int, num_heads: int) -> None:
            if ("num_heads" in sizes) != (num_heads > 1):
                raise NotImplementedError
            super().__init__(d_model, num_heads)
            self.inner = [make(kind, Sizes(d_model, num_heads))]  # not among the parameters

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
            (inner,) = self.inner
            norms = [n for n, each in inner.named_modules() if isinstance(each, nn.LayerNorm)]
            for name in norms:
                inner.set_submodule(name, nn.Identity())
            *projections, last = self.children()
            ordered = [projections["qkv".index(role)] for role in how.order]
            is_whole = copy_projections([*ordered, last], inner, self.num_heads, how.features)
            output = attend(inner.eval(), how, mask, query, key, value)
            output = output if is_whole else last(output)
            return output - query if norms else output  # the residual connection

    return {"MultiHeadAttention": MultiHeadAttention}


def projections_of(inner: nn.Module) -> list[tuple[str, int, int]]:
    """List the weights of projections in the order of their roles: name, role and how many in one.

    Raises:
        NotImplementedError: If these are not queries, keys and values, with an output or without.
    """
    found = []
    for name, weight in inner.named_parameters():
        if weight.ndim == 2:
            owner = inner.get_submodule(name.rpartition(".")[0])
            count, role = weight.shape[0] // weight.shape[1], ROLE.search(name.lower())
            if not isinstance(owner, nn.Linear | nn.MultiheadAttention):
                raise NotImplementedError
            default = 0 if count == 3 else 3
            found.append((name, "qkv".index(role[1][0]) if role else default, count))
    if sum(count for *_, count in found) not in (3, 4):
        raise NotImplementedError
    return sorted(found, key=lambda each: each[1])


def copy_projections(mine: list[Any], inner: nn.Module, num_heads: int, features: str) -> bool:
    """Copy the weights of projections to those of the same role, with features in this order.

    Returns:
        Whether there is an output projection.

    Raises:
        NotImplementedError: If their shapes are others.
    """
    rest = iter(mine)
    for name, _, count in projections_of(inner):
        group = [next(rest) for _ in range(count)]
        owner, leaf = inner.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        for kind in ("weight", "bias"):
            copied = torch.cat([getattr(each, kind) for each in group]).detach()
            if kind == "weight" and getattr(owner, leaf).shape != copied.shape:
                raise NotImplementedError
            if group[0] is not mine[-1]:
                rows = copied.view(count, num_heads, len(copied) // (count * num_heads), -1)
                copied = rows.permute(*ROWS[features], 3).reshape(copied.shape)
            elif kind == "weight" and features == INTERLEAVED:
                copied = copied.unflatten(1, (num_heads, -1)).transpose(1, 2).flatten(1)
            setattr(owner, leaf.replace("weight", kind), nn.Parameter(copied))
    return not [*rest]


def encoding(kind: Any, how: Convention) -> Functions:
    """Adapt a positional encoding, or a function that computes its table."""

    def as_pairs(table: Tensor) -> Tensor:
        halves = table.unflatten(-1, (2, -1)).mT.flatten(-2)
        return halves if how.features else table

    def sinusoidal_table(length: int, d_model: int) -> Tensor:
        if d_model % 2:  # few that are published take it
            raise NotImplementedError
        sizes = Sizes(d_model, 1)
        sizes.values["max_length"] = length
        return as_pairs(torch.as_tensor(make(kind, sizes)).squeeze().float())

    class SinusoidalPositionalEncoding(nn.Module):
        def __init__(self, d_model: int, max_length: int = 50) -> None:
            super().__init__()
            self.inner = [make(kind, Sizes(d_model, 1))]

        def forward(self, x: Tensor, offset: int = 0) -> Tensor:
            if offset:
                raise NotImplementedError
            (inner,) = self.inner
            halves = x.unflatten(-1, (-1, 2)).mT.flatten(-2) if how.features else x
            if how.layout == SEQUENCE_FIRST:
                return as_pairs(inner(halves.transpose(0, 1)).transpose(0, 1))
            if how.layout:
                return x + as_pairs(inner(x if how.layout == ALONE else x[..., 0]))
            return as_pairs(inner(halves))

    if inspect.isclass(kind):
        return {"SinusoidalPositionalEncoding": SinusoidalPositionalEncoding}
    return {"sinusoidal_table": sinusoidal_table}


def mask_builder(kind: Any, how: Convention) -> Functions:
    """Adapt a function that builds a causal mask or a padding mask."""
    parameters, hides = inspect.signature(kind).parameters, FORMS[how.mask[1]](torch.tensor(True))
    ids = [name for name in [*parameters][1:] if re.search("pad|id|tok", name.lower())]

    def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
        if key_length not in (None, query_length) and len(parameters) < 2:
            raise NotImplementedError
        found: Tensor = kind(query_length, key_length) if key_length else kind(query_length)
        return found.squeeze() == hides

    def padding_mask(tokens: Tensor, padding_id: int = 0) -> Tensor:
        if padding_id and not ids:
            raise NotImplementedError
        rest = [padding_id if name in ids else tokens for name in [*parameters][1:]]
        found: Tensor = kind(tokens, *rest)
        mask = found[(slice(None), *[None] * (4 - found.ndim))] == hides
        first = mask[:, :1, :1]
        return first if mask.eq(first).all() else mask  # the same for all queries

    if "pad" in kind.__name__:
        return {"padding_mask": padding_mask}
    return {"causal_mask": causal_mask}


Change = dict[str, Any]


def candidates(kind: Any) -> tuple[str, Callable[..., Functions], list[list[Change]]]:
    """Return the unit that judges a class or function, its adapter, and conventions in stages."""
    name, (sequences, masks) = kind.__name__.lower(), arguments_of(kind)
    if "mask" in name and not inspect.isclass(kind):
        return "masks", mask_builder, [[{"mask": x, "padding": x} for x in product([""], FORMS)]]
    is_attention = bool(re.search("attn|attention", name)) or len(sequences) == 3
    if "posit" in name and not is_attention:
        layouts = "", ALONE, OF_TOKENS, SEQUENCE_FIRST
        both = product(layouts, ("", SINES_FIRST))
        return "positions", encoding, [[{"layout": x, "features": y} for x, y in both]]
    forms, also = [*product(SHAPES, FORMS)], (Change(), Change(causal=CAUSAL_ALONE))
    used = [["padding"], ["mask"]] if len(masks) > 1 else [["padding", "mask"]] * len(masks)
    stages: list[list[Change]] = [
        [dict.fromkeys(fields, form) | each for form, each in product(forms, also)]
        for fields in used
    ]
    inner = example(kind)[0] if inspect.isclass(kind) else None
    if not (isinstance(inner, nn.Module) and [*inner.parameters()]):
        changes: list[Change] = [{"layout": each} for each in ("", FLAT)]
        return "attention", plain_attention, [changes, *stages] if is_attention else []
    try:
        found = projections_of(inner)
    except NotImplementedError:  # of another kind
        return "", encoding, []
    if not (is_attention or any(ROLE.search(each.lower()) for each, *_ in found)):
        return "", encoding, []
    is_unnamed = 3 in found[0][1:]
    orders = [*map("".join, permutations("qkv"))] if is_unnamed else ["qkv"]
    arranged = [(each, "") for each in orders] + [("qkv", each) for each in ROWS if each]
    kinds: list[Change] = [
        {"order": order, "features": features, "layout": layout, "causal": causal}
        for (order, features), layout, causal in product(
            arranged, ("", SEQUENCE_FIRST), ("", CAUSAL)
        )
    ]
    return "heads", projected_attention, [kinds, *stages]


def judge(unit: Unit, functions: Functions, known: Mapping[Law, Any]) -> dict[Law, Any]:
    """Compute the laws of a unit that apply to adapted functions, but those that are known."""
    laws = [law for law in unit.laws if law.of in functions and law.axes and law not in known]
    found = {law: evaluate(unit, law, SimpleNamespace(**functions)) for law in laws}
    return {**known} | {
        x: y for x, y in found.items() if "raises NotImplementedError" not in str(y)
    }


def named(unit: Unit, results: dict[Law, Any]) -> int:
    """Count the laws whose results a known mistake gives."""
    return sum(find_cause(unit, law, results, unit.mistakes) is not None for law in results)


def rank(unit: Unit, how: Convention, results: dict[Law, Any]) -> tuple[int, ...]:
    """Rank a convention by the laws that hold, and by those that can be computed."""
    held = sum(are_equal(got, right_value(unit, law)) for law, got in results.items())
    computed = sum(not isinstance(got, Raised) for got in results.values())
    return held, held == len(results), how.causal != CAUSAL_ALONE, computed


def misnamed(kind: Any, how: Convention) -> Iterator[Finding]:
    """Yield the layers whose names tell another order of their projections."""
    for name, _ in example(kind)[0].named_parameters():
        told = "".join(ROLE.findall(name.lower()))
        if sorted(told) == sorted("qkv") and told != how.order:
            title = f"{name} has the order of its name"
            yield Finding("", title, f"its rows are used as {', '.join(how.order)}")


def other_shapes(
    unit: Unit, adapted: Callable[[Convention], Functions], how: Convention
) -> Iterator[Finding]:
    """Yield the laws that masks with other axes violate, where they are accepted."""
    for shape in SHAPES if how.mask[1] not in ("", "lengths") else ():
        other = replace(how, mask=(shape, how.mask[1]), padding=(shape, how.padding[1]))
        found = judge(unit, adapted(other), {})
        for law, got in found.items():
            right = right_value(unit, law)
            if not isinstance(got, Raised) and not are_equal(got, right):
                difference = f"{law.case}: {describe(got, right, law.axes)}"
                yield Finding(law.of, f"{law.title}, with masks of shape {shape}", difference)


def examine(path: Path, name: str, causal: bool = False) -> list[str]:
    """Examine a class or function of a file; return what is told about it.

    Args:
        path: The file, which is executed.
        name: The class or function.
        causal: Whether no output of a layer or a model may depend on a later position.
    """
    kind = getattr(load(path, path.stem), name)
    unit, adapt, stages = candidates(kind)
    how, results = Convention(), dict[Law, Any]()
    for changes in stages:
        tried, ranks = dict[Convention, Any](), dict[Convention, Any]()
        for each in (replace(how, **change) for change in changes):
            if each.causal == CAUSAL_ALONE and not how.causal:
                continue
            if found := judge(UNITS[unit], adapt(kind, each), results):
                tried[each], ranks[each] = found, rank(UNITS[unit], each, found)
                if not results and ranks[each][1]:  # all laws without a mask hold
                    break
        best = [each for each in ranks if ranks[each] == max(ranks.values())] or [how]
        how = max(best, key=lambda each: named(UNITS[unit], tried.get(each, results)))
        results = tried.get(how, results)
    if not results:
        return list(examine_model(kind, causal))
    findings = [*explain(UNITS[unit], results)]
    is_named = any(each.cause for each in findings)
    if inspect.isclass(kind) and len(findings) == len(results) and not is_named:
        first = f"It differs first here: {findings[0].difference}"
        begin = OF_ANOTHER_KIND.format(name, UNITS[unit].title)
        return [begin, first, *examine_model(kind, causal)]
    parts = f"{name}: {len(results) - len(findings)} of {len(results)} laws hold", how.told()
    told = ["; ".join(filter(None, parts))]
    if unit != "masks":
        told += [line for words, line in CONVENTIONS["callers"].items() if words in told[0]]
    if not findings:
        findings += misnamed(kind, how) if unit == "heads" else []
        findings += other_shapes(UNITS[unit], lambda each: adapt(kind, each), how)
    told += [f"violated: {each.title}: {each.difference}" for each in findings[:1]]
    if others := [each.title for each in findings[1:]]:
        told.append(f"also violated: {'; '.join(others)}")
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
            if re.search(pattern, line) and not re.match(
                r"\s*(def|class|#|\"\"\"|self\.\w+ = nn\.)", line
            ):
                return f"; probably line {number}: {line.strip()}"
    return ""


def inputs_of(model: Any, length: int, others: int) -> dict[str, Any]:
    """Make vectors for a layer or a model, or tokens if it only takes them; and no masks."""
    names, masks = arguments_of(model)
    x, memory = normal(2, length, 18), normal(2, others, 18, seed=1)
    vectors = dict(zip("qkv", (x, memory, memory), strict=True))
    given = {name: vectors[role] for name, role in roles_of(names).items()}
    if isinstance(model, nn.Module) and any(isinstance(x, nn.Embedding) for x in model.modules()):
        try:
            model(**given, **dict.fromkeys(masks))
        except (RuntimeError, ValueError, IndexError):
            given = {name: (each[..., 0] * 50).long() % 22 + 1 for name, each in given.items()}
    return given | dict.fromkeys(masks)


def examine_model(kind: Any, causal: bool) -> Iterator[str]:
    """Examine a layer or a model by ``check_soundness``, and name faults with the same reports."""
    model, sizes = example(kind)
    inputs = inputs_of(model, 5, 6)
    is_masked_by_caller = None in [*inputs.values()][2:]
    soundness = check_soundness(
        model, inputs, causal=causal or (False if is_masked_by_caller else None)
    )
    yield from str(soundness).splitlines()
    if "pass causal=True" in str(soundness):
        yield "If no output may depend on a later position, examine it again with --causal."
    for title in violated(soundness):
        if same := [each.title for each in exhibits().values() if each.found_by == title][:3]:
            yield f"published faults that the check {title!r} found: {'; '.join(same)}"
    if "max_length" in sizes:
        try:
            model(**inputs_of(model, 50, 50))
        except (RuntimeError, ValueError, IndexError) as error:
            yield f"violated: a sequence of the largest length is accepted: it raises {told(error)}"
    yield from check_residuals(model, inputs)


def check_residuals(model: Any, inputs: dict[str, Any]) -> Iterator[str]:
    """Check a layer whose matrices are zero: its residual connections and its norms remain."""
    (name, x), *others = inputs.items()
    if not (isinstance(model, nn.Module) and x.is_floating_point() and has_attention(model)):
        return
    changed = x.clone()
    changed[0, 2] = normal(18, seed=3)
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(each.ndim < 2)
        outputs = [model(**{name: given}, **dict(others)) for given in (x, changed)]
    before, after = (each if isinstance(each, Tensor) else each[0] for each in outputs)
    if before.shape != x.shape:
        return
    differs = (before - after).abs().amax(-1) > 1e-6
    where = "with zeros for its matrices, if one position changes:"
    if differs.sum() > differs[0, 2]:
        yield f"violated: a norm is one of a position: {where} the output at others changes"
    if (
        re.search("layer|block|pre_?norm|post_?norm", type(model).__name__.lower())
        and not differs.any()
    ):
        yield f"violated: residual connections pass the input on: {where} no output changes"


def has_attention(model: nn.Module) -> bool:
    """Tell by names and types whether a layer or a model has projections of queries."""
    roles = [role for name, _ in model.named_parameters() for role in ROLE.findall(name.lower())]
    kinds = map(type, model.modules())
    return "q" in "".join(roles) or nn.MultiheadAttention in kinds
