"""Contracts: what an argument must be stands in its annotation, and a decorator checks it.

The signature ``def f(x: Heads, *, mask: Mask | None = None, dropout: DropoutProbability = 0.0)``
says what each argument must be. For a type checker and ``help()``, these annotations are
``Tensor``, ``Tensor | None`` and ``float``; each of them also holds a *rule*, a function that
raises an error. Some plain types are rules too: a ``bool`` is True or False, an ``int`` is no bool,
a ``float`` is finite, and a module is no class. The decorator :func:`checked` reads the rules once,
when the function is defined, and applies them at each call.

Checked is what torch would accept silently: shapes that broadcast, masks of another convention,
flags, sizes and probabilities. What torch refuses clearly, such as a tensor of another dtype than
the weights, is left to torch. No rule reads a tensor's values, which would wait for a GPU. An
argument that a function only passes on is checked by the one that uses it.

The letters of a shape are sizes, and in one call the same letter is the same size in all arguments:
B batch size, L query length, S key length, H heads, G key and value heads, where G divides H. The
last letter may be the name of an attribute of the module, such as d_model.

Every message reads ``<name> must <rule>, got <value>``, so that a user knows which argument to
change.
"""

import inspect
import math
import sys
from collections.abc import Callable, Collection, Sequence
from functools import reduce, wraps
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, cast, get_args, get_origin

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Kind = TypeVar("Kind")
Sizes = dict[str, tuple[Any, str]]
"""In one call: the size that each letter has, and the argument that has it."""

Rule = Callable[[str, Any, Any, Sizes], None]
"""Raises unless a value obeys it, given its name, the module of the method, and the sizes."""

UNIONS = Union, UnionType


# Decorator ------------------------------------------------------------------------------------


def checked(function: Decorated) -> Decorated:
    """Decorate a function or method to check its arguments by the rules in its annotations.

    Defaults are not checked. Of a class, for example a dataclass, the arguments of its constructor
    are checked.
    """
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    rules = [
        (sys.maxsize if each.kind is each.KEYWORD_ONLY else place, each.name, *found)
        for place, each in enumerate(parameters)
        if (found := rule_of(each.annotation))
    ]
    is_method = "self" in signature.parameters

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        module, count = args[0] if is_method and args else None, len(args)
        sizes: Sizes = {}
        for place, name, accepted, rule in rules:
            if place < count:
                value = args[place]
            elif name in kwargs:
                value = kwargs[name]
            else:
                continue
            if not isinstance(value, accepted):
                rule(name, value, module, sizes)
        return function(*args, **kwargs)

    plain = [each.replace(annotation=_without_rules(each.annotation)) for each in parameters]
    call.__signature__ = signature.replace(parameters=plain)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def unchecked(function: Decorated) -> Decorated:
    """Return what :func:`checked` decorated, for callers whose arguments have been checked."""
    undecorated: Decorated = vars(function)["__wrapped__"]
    return undecorated


def check(annotation: Any, **values: object) -> None:
    """Apply the rule of an annotation to values, each with its name.

    Example:
        >>> from transformer_blocks._contracts import Size, check
        >>> check(Size, d_model=0)
        Traceback (most recent call last):
        ValueError: d_model must be positive, got d_model=0
    """
    accepted, rule = rule_of(annotation) or ((object,), _is_bool)
    for name, value in values.items():
        if not isinstance(value, accepted):
            rule(name, value, None, {})


def rule_of(annotation: Any) -> tuple[tuple[type, ...], Rule] | None:
    """Return what an argument must be, or None if every value is accepted.

    Returns:
        Classes whose instances are accepted, such as that of None in ``int | None``; and the rule
        of all other values. In a union, it is that of the value's type, or else of the first part.
        A union of which a part has no rule, such as ``torch.device | str``, has none either.
    """
    parts = get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,)
    accepted = tuple(part for part in parts if part in (bool, NoneType) or _is_known(part))
    rules = [(_type_of(part), _single_rule(part)) for part in parts if part not in accepted]
    if any(rule is None for _, rule in rules):
        return None
    if classes := [part for part in accepted if part is not NoneType]:
        rules.append((object, _is_bool if bool in classes else instance_of(*classes)))

    def test(name: str, value: Any, module: Any, sizes: Sizes) -> None:
        rule: Any = next((rule for kind, rule in rules if isinstance(value, kind)), rules[0][1])
        rule(name, value, module, sizes)

    return accepted, test if len(rules) > 1 and not classes else cast(Rule, rules[0][1])


def _single_rule(annotation: Any) -> Rule | None:
    """Return the rule of an annotation that is no union, if it has one."""
    if get_origin(annotation) is Annotated:
        rules: Any = filter(callable, get_args(annotation)[1:])
        return next(rules, None)
    if get_origin(annotation) in (Sequence, Collection):
        return list_of(*get_args(annotation))
    return PLAIN_RULES.get(annotation)


def _type_of(annotation: Any) -> type:
    """Return the type of an annotation's values."""
    plain = _without_rules(annotation)
    kind = get_origin(plain) or plain
    return kind if isinstance(kind, type) else object


def _without_rules(annotation: Any) -> Any:
    """Return what an annotation is for a type checker."""
    if get_origin(annotation) is Annotated:
        return _without_rules(get_args(annotation)[0])
    if get_origin(annotation) in UNIONS:
        return reduce(or_, map(_without_rules, get_args(annotation)))
    return annotation


def _is_known(annotation: Any) -> bool:
    """Return whether an annotation is a class of modules, of optimizers or of this package."""
    if not isinstance(annotation, type) or getattr(annotation, "_is_protocol", False):
        return False
    return annotation.__module__.startswith(("torch.nn.", "torch.optim.", f"{__package__}."))


# Errors ---------------------------------------------------------------------------------------


def raise_type_error(name: str, rule: str, value: object, hint: str = "") -> NoReturn:
    """Raise the ``TypeError`` for an argument of the wrong type.

    Args:
        name: Name of the argument.
        rule: What the argument must be; it follows "must be".
        value: The value that was passed. A number or a string is printed, anything else is named
            by its class.
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


def instance_of(*kinds: type) -> Rule:
    """Return the rule that a value is an instance of a class, or of one of several."""
    text = "an instance of " + " or ".join(kind.__name__ for kind in kinds)

    def test(name: str, value: object, *_: object) -> None:
        if not isinstance(value, kinds):
            raise_type_error(name, text, value)

    return test


def list_of(part: Any) -> Rule:
    """Return the rule that a value is a list, or a similar collection, of values with a rule."""

    def test(name: str, values: Any, *_: object) -> None:
        if isinstance(values, str | bytes) or not isinstance(values, Collection | nn.ModuleList):
            raise_type_error(name, "a list", values)
        for number, value in enumerate(values):
            check(part, **{f"{name}[{number}]": value})

    return test


def _is_bool(name: str, flag: Any, *_: object) -> None:
    if not isinstance(flag, bool):  # any string that is not empty would count as True
        raise_type_error(name, "True or False", flag)


def _is_integer(name: str, number: Any, *_: object) -> None:
    if not isinstance(number, int | torch.SymInt) or isinstance(number, bool):
        raise_type_error(name, "an int", number)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:  # torch has no longer ones
        raise ValueError(f"{name} must have at most 64 bits, got {number.bit_length() + 1}")


def _is_number(name: str, number: Any, *_: object) -> None:
    if not isinstance(number, int | float | torch.SymFloat) or isinstance(number, bool):
        raise_type_error(name, "a number", number)
    if isinstance(number, int):
        _is_integer(name, number)
    if not isinstance(number, torch.SymFloat) and not -math.inf < number < math.inf:
        raise ValueError(f"{name} must be finite, got {name}={number}")


PLAIN_RULES: dict[Any, Rule] = {int: _is_integer, float: _is_number, str: instance_of(str)}


def in_range(kind: type, text: str, holds: Callable[[Any], bool]) -> Rule:
    """Return the rule that a value is a number of a range.

    Args:
        kind: int or float.
        text: The range, as it follows "must be".
        holds: Whether a number lies in it.
    """

    def test(name: str, number: Any, *_: object) -> None:
        PLAIN_RULES[kind](name, number, None, {})
        if not holds(number):
            raise ValueError(f"{name} must be {text}, got {name}={number}")

    return test


def at_least(limit: int) -> Rule:
    """Return the rule that a value is a number of at least ``limit``."""
    return in_range(float, f"at least {limit}", lambda number: number >= limit)


Size = Annotated[int, in_range(int, "positive", lambda size: size > 0)]
Count = Annotated[int, in_range(int, "at least 0", lambda count: count >= 0)]
PositiveNumber = Annotated[float, in_range(float, "positive", lambda number: number > 0)]
Probability = Annotated[float, in_range(float, "in [0, 1]", lambda number: 0 <= number <= 1)]
DropoutProbability = Annotated[float, in_range(float, "in [0, 1)", lambda number: 0 <= number < 1)]


def one_of(*choices: str) -> Rule:
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
    if isinstance(function, type):
        raise_type_error(name, "an instance", function)
    if not callable(function):
        known = isinstance(function, str) and callable(getattr(F, function, None))
        hint = f"; pass torch.nn.functional.{function}" if known else ""
        raise_type_error(name, "a function or a module", function, hint)


def _is_factory(name: str, factory: Any, *_: object) -> None:
    if isinstance(factory, nn.Module):
        kind = type(factory).__name__
        raise TypeError(f"{name} must return a new {kind} at each call, got a {kind} instance")
    if not callable(factory):
        raise_type_error(name, "a class or a function", factory)


Function = Annotated[Kind, _is_function]
"""``Function[Callable[[Tensor], Tensor]]``: anything but a class that can be called."""

Factory = Annotated[Kind, _is_factory]
"""``Factory[Callable[[], Residual]]``: a class, or a function that returns a new module."""

Module = Annotated[Kind, instance_of(nn.Module)]
"""``Module[MultiHeadAttention]``: such a layer, or any other module in its place."""


def make(kind: type[Kind], name: str, factory: Callable[[], Any]) -> Kind:
    """Make a part by the factory that was passed as the argument ``name``.

    Raises:
        TypeError: If the part is not an instance of ``kind``.
    """
    part = factory()
    check(kind, **{name: part})
    return part


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


MEANINGS = {"B": "batch size", "L": "length", "S": "length"}
MEANINGS |= dict.fromkeys("HG", "the number of heads")


class Vectors:
    """A rule of floating-point tensors of a certain shape.

    Args:
        shape: A letter or name for each dimension, such as "B L d_model". The last size is that of
            the attribute of this name of the module that is called, if it has one.
    """

    is_floating_point, text = True, "a floating-point tensor"

    def __init__(self, shape: str) -> None:
        self.letters = shape.split()
        self.outer = self.letters[:-1]

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes) -> None:
        """Raise unless the argument ``x`` of a module's method is such a tensor."""
        if not isinstance(x, Tensor):
            check_tensor(name, x)
        if x.is_floating_point() is not self.is_floating_point:
            raise TypeError(f"{name} must be {self.text}, got dtype={x.dtype}")
        shape, letters = x.shape, self.letters
        last = None if module is None else module.__dict__.get(letters[-1])
        if len(shape) != len(letters) or (last is not None and shape[-1] != last):
            names = [*self.outer, str(last or letters[-1])]
            expected = ", ".join(names) + "," * (len(names) == 1)
            raise ValueError(f"{name} must have shape ({expected}), got {tuple(shape)}")
        # The last size says nothing about other arguments if the module determines it.
        for letter, size in zip(letters if last is None else self.outer, shape):  # noqa: B905
            known, first = sizes.setdefault(letter, (size, name))
            if known is not size and known != size:
                meaning = f"{MEANINGS.get(letter, 'size')} {letter}"
                raise ValueError(
                    f"{first} and {name} must agree in {meaning}, got {known} and {size}"
                )


class Heads(Vectors):
    """A rule of the vectors of all heads, of one dtype; the number G of key heads must divide H."""

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes) -> None:
        """Raise unless ``x`` is such a tensor, and its heads can be shared by query heads."""
        super().__call__(name, x, module, sizes)
        dtype, first = sizes.setdefault("", (x.dtype, name))
        if x.dtype != dtype:
            raise TypeError(f"{first} and {name} must have one dtype, got {dtype} and {x.dtype}")
        if "H" in sizes and "G" in sizes:
            heads, groups = sizes["H"][0], sizes["G"][0]
            if heads != groups and (not groups or heads % groups):
                raise ValueError(
                    f"{first} and {name} must agree in the number of heads, or that of {first} "
                    f"must be a multiple of that of {name}, got {heads} and {groups}"
                )


class Ids(Vectors):
    """A rule of tensors of integer ids of a certain shape."""

    is_floating_point, text = False, "integer ids"

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes) -> None:
        """Raise unless ``x`` is such a tensor."""
        super().__call__(name, x, module, sizes)
        if x.dtype == torch.bool or x.is_complex():
            raise TypeError(f"{name} must be {self.text}, got dtype={x.dtype}")


def check_mask(name: str, mask: Any, full: Sequence[Any] | None = None) -> None:
    """Raise unless ``mask`` is boolean, and fits attention of the sizes (B, H, L, S).

    Masks of numbers are refused, as they have several conventions.

    Raises:
        TypeError: If ``mask`` is not a boolean tensor.
        ValueError: If its shape is neither (L, S) nor (B|1, H|1, L|1, S).
    """
    if not isinstance(mask, Tensor):
        check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool, where True hides a key, got dtype={mask.dtype}; "
            "a comparison gives a boolean mask, for example `mask == 0` if 0 marks masked keys"
        )
    shape = tuple(mask.shape)
    if full is None or (len(shape) == 2 and shape == (full[2], full[3])):
        return
    fits = len(shape) == 4 and shape[3] == full[3]
    for size, known in zip(shape, full[:3]):  # noqa: B905
        fits = fits and (size == 1 or size == known)  # symbolic sizes are compared only if needed
    if not fits:
        batch, heads, queries, keys = full
        raise ValueError(
            f"{name} must have shape (L, S) = ({queries}, {keys}) or (B|1, H|1, L|1, S) = "
            f"({batch}|1, {heads}|1, {queries}|1, {keys}), got {shape}; "
            "padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )


def _is_mask(name: str, mask: Any, module: object, sizes: Sizes) -> None:
    is_full = "B" in sizes and "S" in sizes
    full = [sizes.get(letter, (1, ""))[0] for letter in "BHLS"] if is_full else None
    check_mask(name, mask, full)


Mask = Annotated[Tensor, _is_mask]
"""A boolean mask, True hides; it fits the other arguments, if these have sizes B and S."""
