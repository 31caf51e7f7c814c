"""Corrections: the known mistakes of ports and conversions, each undone for a while.

A correction is a text, which begins with the kind of mistake, and new values of attributes of
modules: of weights, of settings, or of a ``forward``, in which calls of torch's functions are
replaced. To add a mistake in the code of a ``forward``, add a rule to ``RULES``; to add another,
yield it in a function that ``corrections`` calls.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_blocks.inspection.changes import changed
from transformer_blocks.residual import PostNorm, PreNorm

Values = dict[tuple[str, str], Any]
"""New values of attributes, by the name of the module and of the attribute."""
Correction = tuple[str, Values]
LAYER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
FEW = 24  # modules of a part that are corrected one by one
QUERY_OR_KEY = re.compile(r"query|queries|key|qkv|(?<![^._])w?[qk](?![^._])", re.IGNORECASE)
JOINED = re.compile("(qkv|value)[^.]*$", re.IGNORECASE)  # with the values, in one weight
POSITIONS = re.compile("pos|table|wpe|encoding")
EMBEDDING = re.compile("emb|wte|shared")
EPSILONS = [1e-5, 1e-6, 1e-12, 1e-8]
ROTARY_ORDERS = {"from halves to pairs": (2, 0), "from pairs to halves": (0, 2)}
NORM_ORDERS: dict[type, Any] = {PreNorm: PostNorm, PostNorm: PreNorm}


@dataclass(frozen=True)
class Site:
    """Where corrections are made.

    Attributes:
        parts: The modules of the model, by name.
        name: Name of the module that is corrected, with its submodules.
        others: The modules of the other model.
        other: Name of the corresponding module of the other model.
        found: The tensor that differs.
        wanted: The tensor of the other model, with which it should agree.
    """

    parts: Mapping[str, nn.Module]
    name: str
    others: Mapping[str, nn.Module]
    other: str
    found: Tensor
    wanted: Tensor

    def partner(self, name: str) -> nn.Module:
        """Return the module of the other model that corresponds to one of this model."""
        inner = ".".join(filter(None, (self.other, name.removeprefix(self.name).lstrip("."))))
        return self.others.get(inner, self.others[self.other])

    def in_all_layers(self) -> list["Site"]:
        """List this site, and those in other layers: with another number in both names."""
        found, other = LAYER.search(self.name), LAYER.search(self.other)
        if not found or not other or found[0] != other[0]:
            return [self]
        numbered = [
            tuple(LAYER.sub(number, name, count=1) for name in (self.name, self.other))
            for number in sorted({n[0] for n in map(LAYER.search, self.parts) if n})
            if number != found[0]
        ]
        return [self] + [
            replace(self, name=name, other=other)
            for name, other in numbered
            if name in self.parts and other in self.others
        ]

    def outside(self) -> "Site":
        """Return the site of the module that contains this one."""
        name, other = (name.rpartition(".")[0] for name in (self.name, self.other))
        return replace(self, name=name, other=other)

    def inside(self, within: str) -> list[str]:
        """List the names of a module and of its submodules."""
        return [name for name in self.parts if f"{name}.".startswith(within and f"{within}.")]

    def tensors(self, within: str) -> dict[tuple[str, str], Tensor]:
        """Return the floating-point weights and tables within a module, by module and name."""
        return {
            (name, key): value
            for name in self.inside(within)
            for key, value in {**self.parts[name]._parameters, **self.parts[name]._buffers}.items()
            if value is not None and value.is_floating_point()
        }


@contextmanager
def corrected(parts: Mapping[str, nn.Module], values: Values) -> Iterator[None]:
    """Give attributes of modules new values inside the ``with`` block."""
    with ExitStack() as stack:
        for (name, key), value in values.items():
            stack.enter_context(changed(parts[name], key, partial(_constant, value)))
        yield


def _constant(value: Any, before: Any) -> Any:
    return value


def corrections(site: Site) -> Iterator[Correction]:
    """Yield corrections of a module and of those that contain it, in the order of trial."""
    for propose in (settings, outputs, moves, code, copies):
        yield from propose(site)
    if site.name:
        yield from settings(site.outside())
        yield from code(site.outside())
    while site.name:
        site = site.outside()
        yield from [*copies(site)][-1:]


def settings(site: Site) -> Iterator[Correction]:
    """Change epsilon, norm order and other settings: to those of the partner, or to usual ones."""
    if any(part.training for part in site.parts.values()):
        yield "training mode: dropout is on", {(name, "training"): False for name in site.parts}
    for name in site.inside(site.name)[:FEW]:
        part, others = site.parts[name], vars(site.partner(name))
        if kind := NORM_ORDERS.get(type(part)):
            text = f"norm order: {name} must be a {kind.__name__}"
            yield text, {(name, "forward"): partial(kind.forward, part)}
        for key, value in [*vars(part).items()]:
            choices: list[Any] = [others.get(key, value)]
            if "eps" in key:
                choices = [v for k, v in others.items() if "eps" in k] + EPSILONS
            elif isinstance(value, bool) and key != "training":
                choices = [not value]
            for choice in choices if isinstance(value, int | float) else ():
                if isinstance(choice, int | float) and choice != value:
                    text = f"setting: {key} of {name or 'the model'} must be {choice}"
                    yield text, {(name, key): choice}


def outputs(site: Site) -> Iterator[Correction]:
    """Multiply the output by a number or a vector, or add a vector."""
    found, wanted = site.found, site.wanted
    is_vectors = found.is_floating_point() and found.dim() and found[..., 0].numel() >= 3
    if found.shape != wanted.shape or not is_vectors:
        return
    products = [each.flatten(0, -2).sum(dim=0) for each in (found * wanted, found.square())]
    ratio, ratios = products[0].sum() / products[1].sum(), products[0] / products[1]
    difference = (wanted - found).flatten(0, -2).mean(dim=0)
    forward = site.parts[site.name].forward
    for text, change in (
        (f"scale: the output must be {float(ratio):.4g} times as large", ratio.mul),
        ("bias: the output lacks a bias, or has another one", difference.add),
        ("scale: each feature of the output must be multiplied by its own factor", ratios.mul),
    ):
        yield text, {(site.name, "forward"): partial(_apply, change, forward)}


def _apply(change: Callable[[Tensor], Tensor], forward: Any, *args: Any, **kwargs: Any) -> Tensor:
    return change(forward(*args, **kwargs))


def moves(site: Site) -> Iterator[Correction]:
    """Transpose, reorder and exchange weights, and use the weights of an embedding.

    Rotary positions rotate pairs of numbers of a head: neighbours (2i, 2i + 1), or those of its
    halves (i, i + d_k / 2). Weights that were trained for the one are reordered for the other.
    """
    own, every = site.tensors(site.name), site.tensors("")
    for (name, key), w in own.items():
        full = f"{name}.{key}"
        if w.dim() == 2:
            yield f"transposed: {full}", {(name, key): _transpose(w)}
            if w.shape[0] == 3 * w.shape[1]:
                thirds = torch.cat([*map(_transpose, w.chunk(3))])
                yield f"transposed: each third of {full}", {(name, key): thirds}
        if w.dim() > 1 and POSITIONS.search(full):
            for shift in (1, -1, 2, -2):
                text = f"positions: position p must be row p {shift:+d} of {full}"
                yield text, {(name, key): w.roll(-shift, 0)}
        for (other, other_key), v in every.items() if w.dim() == 2 else ():
            if v.shape == w.shape and v is not w and EMBEDDING.search(name + other):
                yield f"tied: {full} must be {other}.{other_key}", {(name, key): v}
    for name, order in product(dict.fromkeys(name for name, _ in own), permutations(range(3))):
        new = {at: _reorder(w, order) for at, w in own.items() if at[0] == name}
        yield f"exchanged: the thirds of {name} must be in the order {order}", new
    shapes = {name: [w.shape for w in site.tensors(name).values()] for name in site.parts}
    for first, second in product(site.inside(site.name)[:FEW], site.parts):
        is_near = first == site.name or first.rpartition(".")[0] == second.rpartition(".")[0]
        if is_near and first != second and shapes[first] and shapes[first] == shapes[second]:
            a, b = site.tensors(first), site.tensors(second)
            new = dict(zip([*a, *b], [*b.values(), *a.values()], strict=True))
            yield f"exchanged: {first} and {second}", new
    heads = {at: w for at, w in own.items() if QUERY_OR_KEY.search(".".join(at))}
    # If they are joined with the values, the first two thirds are queries and keys.
    rows = {at: len(w) * 2 // 3 if JOINED.search(at[0]) else len(w) for at, w in heads.items()}
    sizes = range(4, max(rows.values(), default=0) + 1, 2)
    for d_k in (n for n in sizes if not any(count % n for count in rows.values())):
        for order, (m, n) in ROTARY_ORDERS.items():
            groups = m or d_k // 2, n or d_k // 2
            new = {at: _regroup(w, rows[at], *groups) for at, w in heads.items()}
            names = ", ".join(map(".".join, heads))
            yield f"rotary: in heads of {d_k}, rows must go {order}: {names}", new


def _transpose(w: Tensor) -> Tensor:
    return w.reshape(w.shape[::-1]).T


def _reorder(w: Tensor, order: Sequence[int]) -> Tensor:
    dim = w.shape.index(max(w.shape))
    return torch.cat([w.chunk(3, dim)[n] for n in order], dim) if w.shape[dim] % 3 == 0 else w


def _regroup(w: Tensor, rows: int, m: int, n: int) -> Tensor:
    groups = w[:rows].unflatten(0, (-1, m, n)).transpose(1, 2)
    return torch.cat([groups.flatten(0, 2), w[rows:]])


def copies(site: Site) -> Iterator[Correction]:
    """Copy weights of the other model: one, or all."""
    differing = {}
    for (name, key), w in site.tensors(site.name).items():
        other = getattr(site.partner(name), key, None)
        if isinstance(other, Tensor) and other.shape == w.shape and not other.equal(w):
            differing[name, key] = other
    for chosen in [*({at: w} for at, w in differing.items()), differing]:
        names = ", ".join(map(".".join, chosen))
        if len(chosen) > FEW:
            names = f"{len(chosen)} tensors of {site.name or 'the model'}"
        yield f"weights: {names} must hold other numbers", chosen


# Code


class Rule(TorchFunctionMode):
    """Replaces calls of some of torch's functions; ``call`` receives the function and arguments."""

    def __init__(self, functions: Collection[Any], call: Callable[..., Any]) -> None:
        super().__init__()
        self.functions, self.call = functions, call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = partial(self.call, func) if func in self.functions else func
        return call(*args, **(kwargs or {}))


def _follow(rule: Rule, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with rule:
        return forward(*args, **kwargs)


def code(site: Site) -> Iterator[Correction]:
    """Replace calls of torch's functions."""
    size = max((w.shape[-1] for w in site.tensors(site.name).values() if w.dim()), default=1)
    rules = dict(RULES)
    for n, power in product((n for n in range(2, size + 1) if size % n == 0), (0.5, -0.5)):
        text = f"scale: the attention scores must be multiplied by {n**power:.4g}"
        rules[text] = Rule(SOFTMAX | KERNEL, partial(_multiply, n**power))
    for text, rule in rules.items():
        yield text, {(site.name, "forward"): partial(_follow, rule, site.parts[site.name].forward)}


def _multiply(factor: float, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return func(x * factor, *args, **kwargs)


def _change_masks(change: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    def apply(x: Any) -> Any:
        return change(x) if isinstance(x, Tensor) and x.dtype == torch.bool else x

    return func(*map(apply, args), **{key: apply(value) for key, value in kwargs.items()})


def _mask_with_infinity(func: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
    if func in FILL:
        return func(x, y, -torch.inf)
    if isinstance(y, Tensor) and ((y == 0) | (y == 1)).all():
        return x.masked_fill(~y.bool(), -torch.inf)
    return func(x, y, *args, **kwargs)


def _mask_later(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if func in SOFTMAX:
        later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        return func(x.masked_fill(later, -torch.inf), *args, **kwargs)
    key, value, *masks = args
    sizes = x.shape[-2], key.shape[-2]
    earlier = torch.ones(sizes, dtype=torch.bool, device=x.device).tril()
    mask = masks[0] if masks else kwargs.get("attn_mask")
    mask = earlier if mask is None else mask & earlier
    return func(x, key, value, **kwargs | {"attn_mask": mask, "is_causal": False})


def _transpose_heads(dims: Collection[int], func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    y = func(x, *args, **kwargs)
    if x.dim() not in dims:
        return y
    sizes = y.shape
    if x.dim() == 4 and y.dim() == 3:
        return x.transpose(1, 2).reshape(sizes)
    if x.dim() == 3 and y.dim() == 4:
        return x.reshape(sizes[0], sizes[2], sizes[1], sizes[3]).transpose(1, 2)
    return x.transpose(0, 1) if x.shape[:2] == sizes[1::-1] else y


def _repeat_otherwise(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    count = func(x, *args, **kwargs).shape[1] // x.shape[1]
    return x.repeat_interleave(count, dim=1) if func is Tensor.repeat else torch.cat([x] * count, 1)


ACTIVATIONS: dict[str, Any] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu with tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
IS_ACTIVATION = {F.relu, torch.relu, Tensor.relu, F.gelu, F.silu, torch.tanh, Tensor.tanh}
SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
KERNEL = {F.scaled_dot_product_attention}
FILL = {torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_}
MASKED = FILL | KERNEL | {F.multi_head_attention_forward, torch.where}
SUM = {torch.add, Tensor.add, Tensor.__add__, torch.mul, Tensor.mul, Tensor.__mul__}
RESHAPE = {torch.reshape, Tensor.reshape, Tensor.view}
REPEAT = {Tensor.repeat, torch.repeat_interleave, Tensor.repeat_interleave}
RULES = {
    "dropout: must depend on the mode": Rule({F.dropout}, lambda f, x, *args, **kwargs: x),
    "dropout: attention must have none in evaluation mode": Rule(
        KERNEL, lambda f, *args, **kwargs: f(*args, **kwargs | {"dropout_p": 0.0})
    ),
    **{
        f"activation: must be {name}": Rule(IS_ACTIVATION, lambda f, x, *args, g=g, **kwargs: g(x))
        for name, g in ACTIVATIONS.items()
    },
    **{
        f"softmax: must be over dimension {n}": Rule(
            SOFTMAX, lambda f, x, *args, n=n, **kwargs: x.softmax(n)
        )
        for n in range(4)
    },
    "polarity: the mask must be inverted": Rule(
        MASKED, partial(_change_masks, torch.Tensor.__invert__)
    ),
    "mask: queries and keys must be exchanged": Rule(
        MASKED, partial(_change_masks, lambda m: m.mT)
    ),
    "mask: masked scores must be minus infinity": Rule(FILL | SUM, _mask_with_infinity),
    "mask: attention must be causal": Rule(SOFTMAX | KERNEL, _mask_later),
    "mask: weights of fully masked rows must be zero": Rule(
        SOFTMAX | KERNEL, lambda f, *args, **kwargs: f(*args, **kwargs).nan_to_num(0.0)
    ),
    **{
        f"heads: must be transposed, not only reshaped{where}": Rule(
            RESHAPE, partial(_transpose_heads, dims)
        )
        for where, dims in {"": {3, 4}, ", where they are cut": {3}, ", where joined": {4}}.items()
    },
    "heads: keys and values must be repeated in the other order": Rule(REPEAT, _repeat_otherwise),
}
