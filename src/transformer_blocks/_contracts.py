"""Contracts: each annotation says what its argument must be; ``@checked`` enforces it.

An example is ``def f(query: Queries, *, mask: Mask | None = None, dropout: DropoutProbability)``.
A type checker and ``help()`` read these annotations as ``Tensor``, ``Tensor | None`` and ``float``;
each of them also holds a *rule*, a function that raises an error if the value is not allowed. Some
plain types have a rule, too: a ``bool`` must be True or False, an ``int`` must not be a bool, a
``float`` must be finite, and an ``nn.Module`` must be an instance, not a class.
The decorator :func:`checked` reads the rules once, when the function is defined, and applies them
at each call.

We check what torch would silently accept: shapes that broadcast, masks of another convention,
flags, sizes and probabilities. We leave to torch what it refuses clearly, such as a tensor of
another dtype than the weights. No rule reads a tensor's values, which would wait for a GPU. A
function that only passes an argument on leaves the check to the function that uses it.

The letters of a shape are sizes. In one call, the same letter is the same size in all arguments:

- B batch size, L query length, S key length;
- H heads, G key and value heads, where G divides H;
- N rows of a batch while decoding, or tokens; M selected rows of a cache;
- V tokens of the vocabulary.

The last size may have the name of an attribute of the module that is called, such as d_model; it
must then have the attribute's value.

A message reads ``<name> must <rule>, got <value>``, so that a user knows which argument to change.
"""

import inspect
import math
from collections.abc import Callable, Collection, Sequence, Set
from functools import partial, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Kind = TypeVar("Kind")
UNIONS = (Union, UnionType)
# If an annotation is one of the classes PLAIN, or a class of a package of KNOWN, the argument must
# be an instance of it. `Tensor` is neither: a tensor without a rule is left to torch.
PLAIN, KNOWN = (bool, str, NoneType), ("torch.nn.", "torch.optim.", f"{__package__}.")

ArgumentRule = Callable[..., None]
"""Function that raises an error if a value is not allowed. Its arguments are the name of the
argument, the value, the module whose method is called, and a dict of what is known of the call so
far: for each letter its size, for each tensor its letters, and for "dtype" that of all heads."""


# Decorator ------------------------------------------------------------------------------------


def checked(function: Decorated) -> Decorated:
    """Decorate a function or method to check its arguments by the rules in its annotations.

    Defaults are not checked. If it decorates a class, such as a dataclass, the arguments of the
    class's constructor are checked.

    The tests are written out for the function, as `dataclasses` writes methods: a loop over the
    arguments and a call for each would take twice the time.
    """
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function
    # Not the annotations of the parameters, strings after `from __future__ import annotations`.
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    module = "self" if "self" in signature else "None"
    scope: dict[str, Any] = {"function": function}
    parameters, tests, arguments = [], ["known = {}"], []
    for name, each in signature.items():
        is_keyword, is_required = each.kind is each.KEYWORD_ONLY, each.default is each.empty
        if is_keyword and "*" not in parameters:
            parameters.append("*")
        parameters.append(name if is_required else f"{name}={name}_default")
        arguments.append(f"{name}={name}" if is_keyword else name)
        accepted, rule = rule_of(hints.get(name, object))
        scope |= {f"{name}_default": each.default, f"{name}_is": accepted, f"{name}_rule": rule}
        if accepted != (object,):
            is_open = [f"not isinstance({name}, {name}_is)"] if accepted else []
            if not is_required and not isinstance(each.default, accepted):
                is_open.append(f"{name} is not {name}_default")
            tests.append(f"if {' and '.join(is_open) or True}:")
            if isinstance(rule, TensorRule):
                scope[f"{name}_dtypes"] = rule.dtypes
                tests += rule.written(name, module)
            tests.append(f"        {name}_rule({name!r}, {name}, {module}, known)")
    body = [*tests, f"return function({', '.join(arguments)})"]
    lines = [f"def make({', '.join(scope)}):", f"    def call({', '.join(parameters)}):"]
    lines += [*(8 * " " + line for line in body), "    return call"]
    made: dict[str, Any] = {}
    exec(
        compile("\n".join(lines), f"<{__name__}: {function.__qualname__}>", "exec"), globals(), made
    )
    call = wraps(function)(made["make"](**scope))
    # What `help()` shows has no rules.
    inspect.unwrap(function).__annotations__ = get_type_hints(function)
    return call  # type: ignore[return-value]


def unchecked(function: Decorated) -> Decorated:
    """Return what :func:`checked` decorated, for callers whose arguments have been checked."""
    return vars(function)["__wrapped__"]


def check(annotation: Any, **values: object) -> None:
    """Apply the rule of an annotation to values, each with its name.

    Example:
        >>> from transformer_blocks._contracts import Size, check
        >>> check(Size, d_model=0)
        Traceback (most recent call last):
        ValueError: d_model must be positive, got d_model=0
    """
    accepted, rule = rule_of(annotation)
    for name, value in values.items():
        if not isinstance(value, accepted):
            rule(name, value, None, {})


def rule_of(annotation: Any) -> tuple[tuple[type, ...], ArgumentRule]:
    """Return what an argument must be.

    ============================  =======================  ====================================
    annotation                    accepted                 rule of all other values
    ============================  =======================  ====================================
    ``Size``, for example         none                     that of ``Annotated``
    ``int``, ``float``            none                     a finite number
    ``Sequence[Size]``            none                     a list of values that are sizes
    ``bool``, ``nn.Module``       instances of the class   refuses them all
    ``Tensor``, unknown classes   any object               none
    ============================  =======================  ====================================

    A union accepts what a part accepts. Its rule is that of the value's type, or else of the first
    part. If a part accepts any object, such as ``torch.device``, so does the union.

    Returns:
        Classes whose instances are accepted, and the rule of all other values.
    """
    accepted: list[type] = []
    rules: dict[type, ArgumentRule] = {}
    for part in get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,):
        plain, *own = get_args(part) if get_origin(part) is Annotated else (part,)
        kind: Any = get_origin(plain) or plain
        if own:  # Annotated[type, rule]
            rules[kind] = own[0]
        elif kind in (int, float):
            rules[kind] = in_range(kind)
        elif kind in (Sequence, Collection):
            rules[kind] = list_of(*get_args(plain))
        elif isinstance(kind, type) and (kind in PLAIN or kind.__module__.startswith(KNOWN)):
            accepted.append(kind)
        else:  # no rule
            return (object,), instance_of(object)
    # What is neither accepted nor of a type with a rule: the message names the accepted classes.
    if classes := [kind for kind in accepted if kind is not NoneType]:
        rules[object] = instance_of(*classes)
    first = next(iter(rules.values()))

    def test(name: str, value: Any, *others: Any) -> None:
        rule = rules.get(type(value))
        rule = rule or next(
            (each for kind, each in rules.items() if isinstance(value, kind)), first
        )
        rule(name, value, *others)

    return tuple(accepted), test if len(rules) > 1 else first


# Errors ---------------------------------------------------------------------------------------


def raise_type_error(name: str, rule: str, value: object, hint: str = "") -> NoReturn:
    """Raise the ``TypeError`` for an argument of the wrong type.

    Args:
        name: Name of the argument.
        rule: What the argument must be; it follows "must be".
        value: The value that was passed. None, a number or a string is printed, a class is named,
            and anything else is named by its class.
        hint: What to do instead, if there is one action; appended to the message.

    Raises:
        TypeError: Always.
    """
    if isinstance(value, type):
        got = f"the class {value.__name__}"
    elif value is None or isinstance(value, str | int | float):
        got = f"{name}={value!r}"
    else:
        got = type(value).__name__
    raise TypeError(f"{name} must be {rule}, got {got}{hint}")


# Values ---------------------------------------------------------------------------------------


def instance_of(*kinds: type) -> ArgumentRule:
    """Return the rule that a value is an instance of a class, or of one of several."""
    names = " or ".join(kind.__name__ for kind in kinds)
    text = "True or False" if kinds == (bool,) else f"an instance of {names}"

    def test(name: str, value: object, *_: object) -> None:
        if not isinstance(value, kinds):
            raise_type_error(name, text, value)

    return test


def list_of(part: Any) -> ArgumentRule:
    """Return the rule that a value is a list, or a similar collection, of values with a rule."""
    accepted, rule = rule_of(part)

    def test(name: str, values: Any, *_: object) -> None:
        # The shape () is that of a number.
        is_list = isinstance(values, Collection | nn.ModuleList) and getattr(values, "shape", True)
        if not is_list or isinstance(values, str | bytes):
            raise_type_error(name, "a list", values)
        for number, value in enumerate(values):
            if not isinstance(value, accepted):
                rule(f"{name}[{number}]", value, None, {})

    return test


def in_range(kind: type, text: str = "", holds: Callable[[Any], bool] = bool) -> ArgumentRule:
    """Return the rule that a value is a finite number, in a range if one is given.

    Args:
        kind: int or float, which also accepts an int.
        text: The range, as it follows "must be".
        holds: Whether a number lies in it.
    """
    kinds = (int, torch.SymInt) if kind is int else (int, torch.SymInt, float, torch.SymFloat)

    def test(name: str, number: Any, *_: object) -> None:
        if not isinstance(number, kinds) or isinstance(number, bool):
            raise_type_error(name, "an int" if kind is int else "a number", number)
        # No math.isfinite(), which torch.compile(dynamic=True) cannot trace.
        if isinstance(number, float) and not -math.inf < number < math.inf:
            raise ValueError(f"{name} must be finite, got {name}={number}")
        if text and not holds(number):
            raise ValueError(f"{name} must be {text}, got {name}={number}")

    return test


def at_least(limit: int, kind: type = float) -> ArgumentRule:
    """Return the rule that a value is a number of at least ``limit``."""
    return in_range(kind, f"at least {limit}", lambda number: number >= limit)


Size = Annotated[int, in_range(int, "positive", lambda size: size > 0)]
Count = Annotated[int, at_least(0, int)]
PositiveNumber = Annotated[float, in_range(float, "positive", lambda number: number > 0)]
Probability = Annotated[float, in_range(float, "in [0, 1]", lambda number: 0 <= number <= 1)]
DropoutProbability = Annotated[float, in_range(float, "in [0, 1)", lambda number: 0 <= number < 1)]


def one_of(*choices: str) -> ArgumentRule:
    """Return the rule that a value is one of some strings."""
    known = " or ".join(map(repr, choices))

    def test(name: str, choice: Any, *_: object) -> None:
        if not isinstance(choice, str):
            raise_type_error(name, known, choice)
        if choice not in choices:
            raise ValueError(f"{name} must be {known}, got {name}={choice!r}")

    return test


# Functions and modules ------------------------------------------------------------------------


def _is_function(name: str, function: Any, *_: object) -> None:
    if not callable(function) or isinstance(function, type):
        known = isinstance(function, str) and callable(getattr(nn.functional, function, None))
        hint = f"; pass torch.nn.functional.{function}" if known else ""
        raise_type_error(name, "a function or a module", function, hint)


def _is_factory(name: str, factory: Any, *_: object) -> None:
    if not callable(factory) or isinstance(factory, nn.Module):
        raise_type_error(name, "a class, or a function that returns a new module", factory)


Function = Annotated[Kind, _is_function]
"""``Function[Callable[[Tensor], Tensor]]``: any callable that is not a class."""

Factory = Annotated[Kind, _is_factory]
"""``Factory[Callable[[], Residual]]``: a class, or a function that returns a new module."""

Module = Annotated[Kind, instance_of(nn.Module)]
"""``Module[MultiHeadAttention]``: such a layer, or any other module in its place."""


# Tensors --------------------------------------------------------------------------------------


def check_tensor(name: str, x: Any, *_: object) -> None:
    """Raise unless ``x`` is a tensor.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(x, Tensor):
        converts = hasattr(x, "__array__") or isinstance(x, list | tuple)
        hint = "; torch.as_tensor makes one" if converts and not isinstance(x, type) else ""
        raise_type_error(name, "a tensor", x, hint)


FLOATING_POINT = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
MEANINGS = {"B": "batch size ", "L": "length ", "S": "length ", "G": "the number of heads "}


class TensorRule:
    """Rule that a value is a tensor of certain dtypes, and of a certain shape.

    Args:
        dtypes: The accepted dtypes.
        text: Their name, as it follows "must be".
        shape: A letter or name for each dimension, such as "B L d_model". The last size is that of
            the attribute of this name of the module that is called, if it has one.
    """

    def __init__(self, dtypes: Set[torch.dtype], text: str, shape: str) -> None:
        self.dtypes, self.text, self.letters = dtypes, text, tuple(shape.split())

    def __call__(self, name: str, x: Any, module: Any, known: dict[str, Any]) -> None:
        if not isinstance(x, Tensor) or x.dtype not in self.dtypes:
            check_tensor(name, x)
            raise TypeError(f"{name} must be {self.text}, got dtype={x.dtype}")
        *outer, last = self.letters
        own = getattr(module, last, None)
        if x.ndim != len(self.letters) or (own is not None and x.shape[-1] != own):
            expected = ", ".join([*outer, str(own or last)])
            raise ValueError(f"{name} must have shape ({expected}), got {tuple(x.shape)}")
        for letter, size in zip(self.letters if own is None else outer, x.shape):  # noqa: B905
            if size != (first := known.setdefault(letter, size)):
                rule = f"must agree in {MEANINGS.get(letter, 'size ')}{letter}"
                got = f"{first} and {size}"
                raise ValueError(f"{_first(letter, known)} and {name} {rule}, got {got}")
        known[name] = self.letters

    def written(self, name: str, module: str) -> list[str]:
        """Write the test of a tensor that fits, in which nothing of ours is called."""
        sizes = [f"known.setdefault({letter!r}, {letter}_size)" for letter in self.letters]
        if len(self.letters[-1]) > 1:  # it may be the name of an attribute of the module
            sizes[-1] = f"(getattr({module}, {self.letters[-1]!r}, None) or {sizes[-1]})"
        agree = [
            f"{letter}_size == {size}" for letter, size in zip(self.letters, sizes, strict=True)
        ]
        # Errors that are caught: what is no tensor, or has another number of dimensions.
        return [
            f"    known[{name!r}] = {self.letters}",
            "    try:",
            f"        {'_size, '.join(self.letters)}_size, = {name}.shape",
            f"        fits = {name}.dtype in {name}_dtypes and {' and '.join(agree)}",
            "    except (AttributeError, TypeError, ValueError):",
            "        fits = False",
            "    if not fits:",
        ]


def _first(letter: str, known: dict[str, Any]) -> str:
    """Return the name of the first tensor whose shape has a letter."""
    tensors = {name: letters for name, letters in known.items() if isinstance(letters, tuple)}
    return next(name for name, letters in tensors.items() if letter in letters)


Vectors = partial(TensorRule, FLOATING_POINT, "a floating-point tensor")
Ids = partial(TensorRule, INTEGERS, "integer ids")


def HeadVectors(shape: str) -> ArgumentRule:  # noqa: N802
    """Return the rule of the vectors of all heads: one dtype in a call, and G divides H."""
    are_vectors = Vectors(shape)

    def test(name: str, x: Any, module: Any, known: dict[str, Any]) -> None:
        are_vectors(name, x, module, known)
        if x.dtype != (dtype := known.setdefault("dtype", x.dtype)):
            first = _first("d_k", known)
            raise TypeError(f"{first} and {name} must have one dtype, got {dtype} and {x.dtype}")
        query_heads = known.get("H", known.get("G"))
        key_heads = known.get("G", query_heads)
        if query_heads % key_heads if key_heads else query_heads:
            first, got = _first("H", known), f"{query_heads} and {key_heads}"
            raise ValueError(f"{first} and {name} must share heads evenly, got {got}")

    return test


def check_mask(name: str, mask: Any, full: Sequence[Any] | None = None) -> None:
    """Raise unless ``mask`` is boolean, and fits attention of the sizes (B, H, L, S).

    Masks of numbers are refused, as they have several conventions.

    Raises:
        TypeError: If ``mask`` is not a boolean tensor.
        ValueError: If its shape is neither (L, S) nor (B|1, H|1, L|1, S).
    """
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool, where True hides a key, got dtype={mask.dtype}; "
            "a comparison gives a boolean mask, for example `mask == 0` if 0 marks masked keys"
        )
    if full is None:
        return
    shape, (batch, heads, queries, keys) = tuple(mask.shape), full
    outer = zip(shape, full[:3])  # noqa: B905
    if len(shape) == 4:  # the number of axes first: sizes that a program leaves open are compared
        fits = shape[3] == keys and all(size in (1, known) for size, known in outer)
    else:
        fits = shape == (queries, keys)
    if not fits:
        raise ValueError(
            f"{name} must have shape (L, S) = ({queries}, {keys}) or (B|1, H|1, L|1, S) = "
            f"({batch}|1, {heads}|1, {queries}|1, {keys}), got {shape}; "
            "padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )


def _is_mask(name: str, mask: Any, module: object, known: dict[str, Any]) -> None:
    is_full = "B" in known and "S" in known
    check_mask(name, mask, [known.get(letter, 1) for letter in "BHLS"] if is_full else None)


Mask = Annotated[Tensor, _is_mask]
"""A boolean mask, True hides; it fits the other arguments, if these have sizes B and S."""
