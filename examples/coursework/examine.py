"""Examine: the course's laws, pointed at anybody's attention, mask, positional encoding or model.

An adapter makes of a class what a unit of the course expects: its sizes are found by the names of
the arguments, its projections by their names, and its convention of masks by trying the usual ones.
So the grader can compare it with the answer, and with known mistakes. A layer or a model, which has
no answer, is examined by ``check_soundness``.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Finding, check
from coursework.isolation import load, readers_code
from coursework.museum.exhibit import exhibits, format_result, violated
from coursework.units import UNITS
from transformer_blocks.inspection import check_soundness

SIZES: dict[str, Any] = {
    r"(num_?|n_?)?(attention_|attn_)?heads?(_?(num|count))?|nheads?|h": "heads",
    r"d_?model|hidden(_?(dim|size))?|(embed|emb|model|input|in)_?(dim|size|ding_dim)|dim|depth"
    r"|n_embd|d|size|channels|features|embed_size|d_(in|out)(put)?|output_(dim|size)": "d_model",
    r"d_?[kv]|head_(dim|size)|depth_per_head": "d_k",
    r"d_?ff|(dim_)?feed_?forward(_?(dim|size))?|d_?hid(den)?|ffn?_?(dim|size|hidden)|inner_dim": 20,
    r"(num_?|n_?)?layers?|n_layer|depth_of_stack": 2,
    r".*vocab(ulary)?(_?size)?|num_(tokens|embeddings)|ntokens?": 23,
    r".*drop(out|_rate)?.*|p": 0.0,
    r"max_?(seq_?)?len(gth)?|block_size|context_(length|size)|seq_len|max_position.*|length": 50,
    r"temperature|scale": "root",
}
"""What an argument of a class is, by patterns of its name."""
ROLES = {
    "query": r"(w_?)?q(uer(y|ies))?([._]|$)|to_q|fc_q",
    "key": r"(w_?)?k(eys?)?([._]|$)|to_k|fc_k",
    "value": r"(w_?)?v(al(ue)?s?)?([._]|$)|to_v|fc_v",
    "output": r"(w_?)?o(ut(put)?)?([._]|$)|to_out|fc_o|c_proj|proj$|fc$|dense|linear_out|wo",
}
"""Projections by patterns of their names."""
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
LINES = {
    r"softmax": r"softmax",
    r"scale|divided|sqrt": r"sqrt|temperature|0\.5|scale",
    r"mask|attend|hidden|future|padding": r"masked_fill|where|tri[ul]|inf\b|1e9|[+*] ?\w*mask",
    r"along|offset": r"size\(|shape|offset",
    r"cut|joined|interleaved|head": r"view|reshape|transpose|permute|rearrange|chunk",
    r"projection|values are|keys are|exchanged": r"proj|linear|matmul|@",
    r"position|sine|column|exponent|frequenc": r"sin\(|cos\(|exp\(|10000|arange",
}
"""For words of a mistake's name, a pattern of the lines that can have it."""


class Joined(nn.Module):
    """One layer for queries, keys and values, made of three."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the three outputs."""
        return torch.cat([part(x) for part in self.parts], dim=-1)


def make(kind: Any, d_model: int, heads: int) -> Any:
    """Make an object of a class, with sizes found by the names of its arguments.

    Raises:
        TypeError: If an argument without a default is not known.
    """
    known = {"d_model": d_model, "heads": heads, "d_k": d_model // heads}
    known["root"] = (d_model // heads) ** 0.5
    given = {}
    for name, each in inspect.signature(kind).parameters.items():
        found = [v for pattern, v in SIZES.items() if re.fullmatch(pattern, name.lower())]
        if found:
            given[name] = known.get(found[0], found[0]) if isinstance(found[0], str) else found[0]
        elif each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            raise TypeError(f"the argument {name!r} of {kind.__name__} must have a known name")
    made = kind(**given)
    return made.eval() if isinstance(made, nn.Module) else made


def names_of(function: Any) -> list[str]:
    """List the names of a function's or a module's arguments."""
    function = function.forward if isinstance(function, nn.Module) else function
    return [n for n in inspect.signature(function).parameters if n not in ("self", "args")]


def shaped(mask: Tensor, form: Form | None, axes: int, sizes: tuple[int, ...]) -> Tensor | None:
    """Write a mask as one convention does, with this number of axes; None for a causal one's own.

    Raises:
        NotImplementedError: If the convention cannot express it.
    """
    if form is None:
        if mask.shape[-2:] != (sizes[-1], sizes[-1]):
            raise NotImplementedError
        return None
    if axes == 2 and mask.shape[-2] != 1:
        raise NotImplementedError
    full = form(mask).expand(*sizes)
    return full[:, 0] if axes == 3 else full[:, 0, 0] if axes == 2 else full


def call(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Any:
    """Call an attention with the arguments that it has: three sequences, two, or one.

    Raises:
        NotImplementedError: If it has no argument for what differs.
    """
    names = names_of(module)
    masks = [name for name in names if "mask" in name or name == "bias"]
    inputs = [name for name in names[:3] if name not in masks]
    given: list[Tensor] = [query, key, value][: len(inputs)]
    if (len(inputs) < 3 and value is not key) or (len(inputs) == 1 and key is not query):
        raise NotImplementedError
    if mask is None or masks:
        return module(*given, **({masks[0]: mask} if masks and mask is not None else {}))
    raise NotImplementedError


def output_of(found: Any, shape: tuple[int, ...]) -> Tensor:
    """Find the output among what is returned, by its shape."""
    items = found if isinstance(found, tuple | list) else (found,)
    tensors = [each for each in items if isinstance(each, Tensor)]
    return next((each for each in tensors if each.shape == shape), tensors[0])


def plain_attention(kind: Any, form: Form | None, axes: int) -> dict[str, Any]:
    """Adapt an attention without projections, of vectors with an axis of heads or without."""

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        attention = make(kind, query.shape[-1], 1) if inspect.isclass(kind) else kind
        sizes = (*query.shape[:3], key.shape[2])
        if mask is not None:
            mask = shaped(mask, form, 4, sizes)
        elif form is None:
            raise NotImplementedError
        given = [query, key, value, mask]
        if axes == 3:
            given = [each if each is None else each.flatten(0, 1) for each in given]
        shape = (*given[0].shape[:-1], value.shape[-1])
        output = output_of(call(attention, *given), shape)
        return output.unflatten(0, query.shape[:2]) if axes == 3 else output

    def weights(query: Tensor, key: Tensor, mask: Any = None) -> Tensor:
        identity = torch.eye(key.shape[2]).expand(*key.shape[:2], -1, -1)
        return attend(query, key, identity, mask)  # the weighted sum of one-hot values

    def both(query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Any:
        return attend(query, key, value, mask), weights(query, key, mask)

    return {"attention_weights": weights, "scaled_dot_product_attention": both}


def projected_attention(kind: Any, form: Form | None, axes: int) -> dict[str, Any]:
    """Adapt an attention with projections, whose weights the course's names are given to."""

    class MultiHeadAttention(nn.Module):
        def __init__(self, d_model: int, num_heads: int) -> None:
            super().__init__()
            names, pattern = inspect.signature(kind).parameters, next(iter(SIZES))
            if any(re.fullmatch(pattern, each) for each in names) != (num_heads > 1):
                raise NotImplementedError
            inner = make(kind, d_model, num_heads)
            self.inner = [inner]  # in a list, so that its parameters keep the names below
            for name, layer in zip(ROLES, projections(inner, d_model), strict=True):
                if layer.bias is None:
                    layer.bias = nn.Parameter(torch.zeros(d_model))
                setattr(self, f"{name}_projection", layer)
            norms = [n for n, each in inner.named_modules() if isinstance(each, nn.LayerNorm)]
            self.has_residual = bool(norms)
            for name in norms:
                inner.set_submodule(name, nn.Identity())

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
            if mask is not None:
                mask = shaped(mask, form, axes, (len(query), 1, query.shape[1], key.shape[1]))
            elif form is None:
                raise NotImplementedError
            found = call(self.inner[0].eval(), query, key, value, mask)
            output = output_of(found, tuple(query.shape))
            return output - query if self.has_residual else output

    return {"MultiHeadAttention": MultiHeadAttention}


def projections(inner: nn.Module, size: int) -> list[nn.Linear]:
    """Find the projections of queries, keys, values and outputs by their names, or their order.

    Raises:
        TypeError: If there are not four, or three in one and a fourth.
    """
    for name, layer in list(inner.named_modules()):
        if isinstance(layer, nn.Linear) and layer.out_features == 3 * size:
            inner.set_submodule(name, Joined(size))
    layers = {n: each for n, each in inner.named_modules() if isinstance(each, nn.Linear)}
    found = [
        next((x for n, x in layers.items() if re.match(role, n.split(".")[-1].lower())), None)
        for role in ROLES.values()
    ]
    if len(layers) != 4:
        raise TypeError(f"an attention must have four linear layers, got {len(layers)}")
    ordered = list(layers.values())
    by_name = [each for each in found if each is not None]
    return by_name if len({*map(id, by_name)}) == 4 else ordered


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
        found = kind(query_length, key_length) if key_length else kind(query_length)
        hidden = {value: form(torch.tensor(value)).item() for value in (True, False)}
        return found.squeeze() == hidden[True]

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
    module = ModuleType("examined")
    vars(module).update(functions)
    laws = [law for law in UNITS[unit].laws if law.of in functions and "names and" not in law.title]
    titles = {law.title for law in laws}
    found = [f for f in check(UNITS[unit], module) if f.title in titles]
    return [f for f in found if not f.is_empty], len(laws) - sum(f.is_empty for f in found)


def examine(path: Path, name: str) -> list[str]:
    """Examine a class or function of a file; return what is told about it."""
    with readers_code(f"{name} cannot be examined"):
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
    has_mask = any("mask" in each for each in (name, *names_of(getattr(kind, "forward", kind))))
    return list(tell(kind, best * has_mask, *results[best]))


def tell(kind: Any, text: str, findings: list[Finding], count: int) -> Iterator[str]:
    """Say which laws hold, which do not, and the known mistake with its line."""
    yield f"{kind.__name__}: {count - len(findings)} of {count} laws hold" + f"; {text}" * bool(
        text
    )
    for each in findings:
        yield f"violated: {each.title}: {each.difference}"
    for cause in dict.fromkeys(each.cause for each in findings if each.cause):
        yield f"a known mistake gives the same: {cause.name}{line_of(kind, cause.name)}"
        if cause.exhibit:
            yield f"published: {exhibits()[cause.exhibit].source}"
            yield f"the story: python examples/course.py museum {cause.exhibit}"


def line_of(kind: Any, mistake: str) -> str:
    """Name the lines of the code that can have a mistake, by its words."""
    source, first = inspect.getsourcelines(kind)
    patterns = [pattern for words, pattern in LINES.items() if re.search(words, mistake)]
    for pattern in patterns:
        for number, line in enumerate(source, first):
            if re.search(pattern, line) and not re.match(r"\s*(def|class|#|\"\"\")", line):
                return f"; probably line {number}: {line.strip()}"
    return ""


def examine_model(kind: Any) -> Iterator[str]:
    """Examine a layer or a model by ``check_soundness``, and name faults with the same reports."""
    model = make(kind, 18, 3)
    names = [name for name in names_of(model) if "mask" not in name]
    embeds = any(isinstance(each, nn.Embedding) for each in model.modules())
    example = {name: _input(embeds, seed) for seed, name in enumerate(names[:2])}
    soundness = check_soundness(model, example)
    yield from format_result(soundness).splitlines()
    for title in violated(soundness):
        same = [each.title for each in exhibits().values() if each.found_by == title][:3]
        if same:
            yield f"published faults that the check {title!r} found: {'; '.join(same)}"


@functools.cache
def _input(embeds: bool, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if embeds:
        return torch.randint(1, 23, (2, 5 + seed), generator=generator)
    return torch.randn(2, 5 + seed, 18, generator=generator)
