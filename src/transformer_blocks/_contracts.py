"""Contracts: what an argument must be stands in its annotation, and a decorator checks it.

The signature ``def f(query: Queries, *, mask: Mask | None = None, dropout: DropoutProbability)``
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
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Kind = TypeVar("Kind")
UNIONS, LISTS = (Union, UnionType), (Sequence, Collection)
PLAIN, KNOWN = (bool, str, NoneType), ("torch.nn.", "torch.optim.", f"{__package__}.")
"""Classes that are rules, and packages whose classes are; others, such as ``Tensor``, are not."""

ArgumentRule = Callable[..., None]
"""Raises unless a value obeys it. It receives the name of the argument, the value, the module whose
method is called, and a dict: for each letter of the arguments before, its size and the name of the
first argument that has it."""


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
    parameters = signature.parameters.items()
    rules = [(name, *rule_of(each.annotation)) for name, each in parameters]
    is_method = "self" in signature.parameters

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        module = args[0] if is_method and args else None
        sizes: dict[str, Any] = {}
        # First those that were passed by place: most calls pass few, and `zip` ends with them.
        for value, (name, accepted, rule) in zip(args, rules):  # noqa: B905
            if not isinstance(value, accepted):
                rule(name, value, module, sizes)
        if kwargs:
            for name, accepted, rule in rules:
                if name in kwargs and not isinstance(kwargs[name], accepted):
                    rule(name, kwargs[name], module, sizes)
        return function(*args, **kwargs)

    plain = get_type_hints(function)  # the annotations without their rules, for `help()`
    shown = [each.replace(annotation=plain.get(name, each.annotation)) for name, each in parameters]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
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
    accepted, rule = rule_of(annotation)
    for name, value in values.items():
        if not isinstance(value, accepted):
            rule(name, value, None, {})


def rule_of(annotation: Any) -> tuple[tuple[type, ...], ArgumentRule]:
    """Return what an argument must be.

    Returns:
        Classes whose instances are accepted, such as that of None in ``int | None``; and the rule
        of all other values. In a union, it is that of the value's type, or else of the first part.
        A union of which a part has no rule, such as ``torch.device | str``, accepts any object.
    """
    accepted: list[type] = []
    rules: dict[type, ArgumentRule] = {}
    for part in get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,):
        plain, *own = get_args(part) if get_origin(part) is Annotated else (part,)
        kind: Any = get_origin(plain) or plain
        if own:
            rules[kind] = own[0]
        elif kind in (int, float):
            rules[kind] = in_range(kind, "", lambda number: True)
        elif kind in LISTS:
            rules[kind] = list_of(*get_args(plain))
        elif isinstance(kind, type) and (kind in PLAIN or kind.__module__.startswith(KNOWN)):
            accepted.append(kind)
        else:
            return (object,), instance_of(object)
    if classes := [kind for kind in accepted if kind is not NoneType]:
        rules[object] = instance_of(*classes)
    first = next(iter(rules.values()))

    def test(name: str, value: Any, *others: Any) -> None:
        rule = next((rule for kind, rule in rules.items() if isinstance(value, kind)), first)
        rule(name, value, *others)

    return tuple(accepted), test if len(rules) > 1 else first


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


def instance_of(*kinds: type) -> ArgumentRule:
    """Return the rule that a value is an instance of a class, or of one of several."""
    text = "an instance of " + " or ".join(kind.__name__ for kind in kinds)
    if kinds == (bool,):  # any string that is not empty would count as True
        text = "True or False"

    def test(name: str, value: object, *_: object) -> None:
        if not isinstance(value, kinds):
            raise_type_error(name, text, value)

    return test


def list_of(part: Any) -> ArgumentRule:
    """Return the rule that a value is a list, or a similar collection, of values with a rule."""

    def test(name: str, values: Any, *_: object) -> None:
        is_number = isinstance(values, Tensor) and values.dim() == 0
        is_list = isinstance(values, Collection | nn.ModuleList) and not is_number
        if not is_list or isinstance(values, str | bytes):
            raise_type_error(name, "a list", values)
        for number, value in enumerate(values):
            check(part, **{f"{name}[{number}]": value})

    return test


def in_range(kind: type, text: str, holds: Callable[[Any], bool]) -> ArgumentRule:
    """Return the rule that a value is a finite number of a range.

    Args:
        kind: int or float, which also accepts an int.
        text: The range, as it follows "must be".
        holds: Whether a number lies in it.
    """
    kinds = (int, torch.SymInt) if kind is int else (int, torch.SymInt, float, torch.SymFloat)

    def test(name: str, number: Any, *_: object) -> None:
        if not isinstance(number, kinds) or isinstance(number, bool):
            raise_type_error(name, "an int" if kind is int else "a number", number)
        if isinstance(number, float) and not -math.inf < number < math.inf:
            raise ValueError(f"{name} must be finite, got {name}={number}")
        if not holds(number):
            raise ValueError(f"{name} must be {text}, got {name}={number}")

    return test


def at_least(limit: int) -> ArgumentRule:
    """Return the rule that a value is a number of at least ``limit``."""
    return in_range(float, f"at least {limit}", lambda number: number >= limit)


Size = Annotated[int, in_range(int, "positive", lambda size: size > 0)]
Count = Annotated[int, in_range(int, "at least 0", lambda count: count >= 0)]
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


DTYPES = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
FLOATING_POINT = {dtype for dtype in DTYPES if dtype.is_floating_point}
INTEGERS = {dtype for dtype in DTYPES - FLOATING_POINT - {torch.bool} if not dtype.is_complex}
MEANINGS = {"B": "batch size", "L": "length", "S": "length"}
MEANINGS |= dict.fromkeys("HG", "the number of heads")


class Vectors:
    """A rule of floating-point tensors of a certain shape.

    Args:
        shape: A letter or name for each dimension, such as "B L d_model". The last size is that of
            the attribute of this name of the module that is called, if it has one.
    """

    dtypes, text = FLOATING_POINT, "a floating-point tensor"

    def __init__(self, shape: str) -> None:
        self.letters = shape.split()

    def __call__(self, name: str, x: Any, module: Any, sizes: dict[str, Any]) -> None:
        """Raise unless the argument ``x`` of a module's method is such a tensor."""
        if not isinstance(x, Tensor):
            check_tensor(name, x)
        if x.dtype not in self.dtypes:
            raise TypeError(f"{name} must be {self.text}, got dtype={x.dtype}")
        shape, letters = x.shape, self.letters
        last = None if module is None else module.__dict__.get(letters[-1])
        if len(shape) != len(letters) or (last is not None and shape[-1] != last):
            names = [*letters[:-1], str(last or letters[-1])]
            expected = ", ".join(names) + "," * (len(names) == 1)
            raise ValueError(f"{name} must have shape ({expected}), got {tuple(shape)}")
        for letter, size in zip(letters, shape):  # noqa: B905
            known, first = sizes.setdefault(letter, (size, name))
            if known != size:
                rule = f"must agree in {MEANINGS.get(letter, 'size')} {letter}"
                raise ValueError(f"{first} and {name} {rule}, got {known} and {size}")


class HeadVectors(Vectors):
    """A rule of the vectors of all heads, of one dtype; the number G of key heads must divide H."""

    def __call__(self, name: str, x: Any, module: Any, sizes: dict[str, Any]) -> None:
        """Raise unless ``x`` is such a tensor, and its heads can be shared by query heads."""
        super().__call__(name, x, module, sizes)
        dtype, first = sizes.setdefault("dtype", (x.dtype, name))
        if x.dtype != dtype:
            raise TypeError(f"{first} and {name} must have one dtype, got {dtype} and {x.dtype}")
        heads, first = sizes.get("H") or sizes["G"]
        groups, _ = sizes.get("G") or sizes["H"]
        if heads != groups and (not groups or heads % groups):
            raise ValueError(
                f"{first} and {name} must agree in the number of heads, or that of {first} "
                f"must be a multiple of that of {name}, got {heads} and {groups}"
            )


class Ids(Vectors):
    """A rule of tensors of integer ids of a certain shape."""

    dtypes, text = INTEGERS, "integer ids"


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
    shape = tuple(mask.shape)
    if full is None or (len(shape) == 2 and shape == (full[2], full[3])):
        return
    # Symbolic sizes are compared only if needed.
    outer = (size == 1 or size == known for size, known in zip(shape, full[:3]))  # noqa: B905
    if len(shape) != 4 or shape[3] != full[3] or not all(outer):
        batch, heads, queries, keys = full
        raise ValueError(
            f"{name} must have shape (L, S) = ({queries}, {keys}) or (B|1, H|1, L|1, S) = "
            f"({batch}|1, {heads}|1, {queries}|1, {keys}), got {shape}; "
            "padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )


def _is_mask(name: str, mask: Any, module: object, sizes: dict[str, Any]) -> None:
    is_full = "B" in sizes and "S" in sizes
    check_mask(name, mask, [sizes.get(letter, (1,))[0] for letter in "BHLS"] if is_full else None)


Mask = Annotated[Tensor, _is_mask]
"""A boolean mask, True hides; it fits the other arguments, if these have sizes B and S."""
