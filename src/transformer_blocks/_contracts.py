"""Contracts: what an argument must be stands in its annotation, and a decorator checks it.

The signature ``def f(x: Heads, *, mask: Mask | None = None, dropout: DropoutProbability = 0.0)``
says what each argument must be. For a type checker, these annotations are ``Tensor``,
``Tensor | None`` and ``float``; at run time each of them also holds a *rule*. Plain types are rules
too: a ``bool`` is True or False, an ``int`` is no bool, and a ``float`` is finite. The decorator
:func:`checked` reads the rules once, when the function is defined, and applies them at each call.
:func:`check` applies one rule to a value that is no argument.

The letters of a shape are sizes, and in one call the same letter is the same size in all arguments:
B batch size, L query length, S key length, H heads, G key and value heads, where G divides H. The
last letter may be the name of an attribute of the module, such as d_model.

Every message reads ``<name> must <rule>, got <value>``, so that a user knows which argument to
change. Types, sizes, shapes, dtypes and devices are checked; no rule reads a tensor's values, which
would wait for a GPU. An argument that a function only passes on is checked by the one that uses it.
"""

import inspect
import math
import sys
import types
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Kind = TypeVar("Kind")
Sizes = dict[str, tuple[Any, str]]
"""In one call: each letter's size and the argument that has it; "" has the first tensor."""


# Decorator ------------------------------------------------------------------------------------


def checked(function: Decorated) -> Decorated:
    """Decorate a function or method to check its arguments by the rules in its annotations.

    Defaults are not checked. If the arguments do not fit the signature, for example because a mask
    has torch's name, the error names the arguments that there are. Of a class, for example a
    dataclass, the arguments of its constructor are checked.
    """
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function
    signature = inspect.signature(function)
    is_method = "self" in signature.parameters
    rules, tests = [], []  # tests, of values alone, are called first
    for place, each in enumerate(signature.parameters.values()):
        rule = rule_of(each.annotation)
        by_place = sys.maxsize if each.kind is each.KEYWORD_ONLY else place
        if type(rule) is Rule:
            tests.append((by_place, each.name, rule.test))
        elif rule is not None:
            rules.append((by_place, each.name, rule))
    has_sizes = sum(rule.has_shape for _, _, rule in rules) > 1  # a single shape agrees with none

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        module = args[0] if is_method and args else None
        sizes: Sizes | None = {} if has_sizes else None
        count = len(args)
        try:
            for place, name, test in tests:
                if place < count:
                    test(name, args[place])
                elif name in kwargs:
                    test(name, kwargs[name])
            for place, name, rule in rules:
                if place < count:
                    rule(name, args[place], module, sizes)
                elif name in kwargs:
                    rule(name, kwargs[name], module, sizes)
            return function(*args, **kwargs)
        except TypeError:
            _check_signature(function, signature, args, kwargs)
            raise

    return call  # type: ignore[return-value]


def unchecked(function: Decorated) -> Decorated:
    """Return what :func:`checked` decorated, for callers whose arguments have been checked."""
    undecorated: Decorated = vars(function)["__wrapped__"]
    return undecorated


def is_checked(function: Callable[..., Any]) -> bool:
    """Return whether a function, or the ``forward`` of a module, is :func:`checked`."""
    called = getattr(type(function), "forward", function)
    return getattr(called, "__code__", None) is _CHECKED


def check(annotation: Any, **values: object) -> None:
    """Apply a rule, or that of an annotation or class, to values, each with its name.

    Example:
        >>> from transformer_blocks._contracts import Size, check
        >>> check(Size, d_model=0)
        Traceback (most recent call last):
        ValueError: d_model must be positive, got d_model=0
    """
    rule = annotation if isinstance(annotation, Rule) else rule_of(annotation)
    for name, value in values.items():
        (rule or instance_of(annotation))(name, value, None, {})


def _check_signature(
    function: Callable[..., Any],
    signature: inspect.Signature,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    """Raise if a function cannot be called with these arguments, whatever their values are."""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    count = len(args) - len(signature.parameters) + len(parameters)  # without self
    names = [each.name for each in parameters]
    by_place = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    unknown = [name for name in kwargs if name not in names]
    given = {*by_place[:count], *kwargs}
    missing = [
        each.name for each in parameters if each.default is each.empty and each.name not in given
    ]
    name = function.__qualname__.removesuffix(".__init__")
    rule = "; a mask is boolean, and True hides a key" if "mask" in "".join(names) else ""
    if unknown:
        raise TypeError(
            f"arguments of {name} must be {', '.join(names)}, got {', '.join(unknown)}{rule}"
        ) from None
    if count > len(by_place):
        raise TypeError(
            f"{', '.join(names[len(by_place) :])} must be passed to {name} by name, "
            f"got {count} arguments by position{rule}"
        ) from None
    if missing:
        raise TypeError(f"{', '.join(missing)} must be passed to {name}") from None


# Rules ----------------------------------------------------------------------------------------


class Rule:
    """What a value must be.

    Args:
        text: The rule in a few words, which ``help()`` shows.
        test: Function of an argument's name and value, which raises an error.
    """

    has_shape = False  # whether it depends on the shapes of other arguments

    def __init__(self, text: str, test: Callable[[str, Any], None]) -> None:
        self.text, self.test = text, test

    def __call__(self, name: str, value: Any, module: object, sizes: Sizes | None) -> None:
        """Raise unless the value of an argument of a module's method obeys the rule."""
        self.test(name, value)

    def __repr__(self) -> str:
        return self.text


class UnionRule(Rule):
    """A rule of values of several types, each with a rule of its own, or with none, as None has.

    Args:
        parts: Each type, and its rule.
        rule: The rule of values of other types.
    """

    def __init__(self, parts: Sequence[tuple[type | tuple[()], Rule | None]], rule: Rule) -> None:
        super().__init__(rule.text, rule.test)
        self.parts, self.rule = parts, rule
        self.has_shape = any(part is not None and part.has_shape for _, part in parts)

    def __call__(self, name: str, value: Any, module: object, sizes: Sizes | None) -> None:
        """Raise unless a value obeys the rule of its type."""
        for kind, rule in self.parts:
            if isinstance(value, kind):
                return None if rule is None else rule(name, value, module, sizes)
        return self.rule(name, value, module, sizes)


def rule_of(annotation: Any) -> Rule | None:
    """Return the rule of an annotation, or None if every value is accepted.

    A class of a module or an optimizer, or of this package, has the rule of its instances; bool,
    int and float have :data:`PLAIN_RULES`. A value of a union obeys the rule of its own type, and
    each element of a sequence that of the elements.
    """
    if get_origin(annotation) is Annotated:
        return next((each for each in get_args(annotation)[1:] if isinstance(each, Rule)), None)
    if get_origin(annotation) in (Union, types.UnionType):
        parts = get_args(annotation)
        ruled = sorted(filter(rule_of, parts), key=lambda part: isinstance(part, type))
        ruled = [part for part in parts if part in PLAIN_RULES] or ruled
        rules = [(_type_of(part), rule_of(part)) for part in parts]
        others = rule_of(ruled[0]) if ruled else None
        return None if others is None else UnionRule(rules, others)
    if get_origin(annotation) in (Sequence, Collection):
        (part,) = get_args(annotation)
        rule = instance_of(str) if part is str else rule_of(part)
        return None if rule is None else list_of(_type_of(annotation), part, rule)
    if annotation in PLAIN_RULES:
        return PLAIN_RULES[annotation]
    home = getattr(annotation, "__module__", "")
    is_known = isinstance(annotation, type) and home.startswith(KNOWN_PACKAGES)
    is_known = is_known and not getattr(annotation, "_is_protocol", False)
    return instance_of(annotation) if is_known else None


def _type_of(annotation: Any) -> type | tuple[()]:
    """Return the type of an annotation's values; an empty tuple if it is no class."""
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    kind = get_origin(plain) or plain
    return kind if isinstance(kind, type) else ()


KNOWN_PACKAGES = "torch.nn.", "torch.optim.", f"{__package__}."


def instance_of(*kinds: type) -> Rule:
    """Return the rule that a value is an instance of a class, or of one of several."""
    text = " or ".join(kind.__name__ for kind in kinds)

    def test(name: str, value: object) -> None:
        if not isinstance(value, kinds):
            raise_type_error(name, f"an instance of {text}", value)

    return Rule(text, test)


def list_of(kind: Any, part: Any, rule: Rule) -> Rule:
    """Return the rule that a value is a list, or a similar collection, whose elements obey a rule.

    Args:
        kind: The type of the collection.
        part: The annotation of the elements.
        rule: Their rule, which is applied to each alone: their shapes need not agree.
    """
    text = f"a list of {_plural(part)}"

    def test(name: str, values: Any) -> None:
        is_text = isinstance(values, str | bytes) and part is not str
        if is_text or not isinstance(values, kind | nn.ModuleList):
            raise_type_error(name, text, values)
        for number, value in enumerate(values):
            rule(f"{name}[{number}]", value, None, None)

    return Rule(text, test)


def _plural(annotation: Any) -> str:
    """Return what several values of an annotation are called; of a union, those of its first."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Sequence:
        return f"lists of {_plural(get_args(annotation)[0])}"
    return {str: "strings", int: "ints"}.get(annotation, f"{annotation.__name__} instances")


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


# Numbers --------------------------------------------------------------------------------------


def _test_integer(name: str, number: Any) -> None:
    if not isinstance(number, int | torch.SymInt) or isinstance(number, bool):
        raise_type_error(name, "an int", number)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} must have at most 64 bits, got {number.bit_length() + 1}")


def _test_number(name: str, number: Any) -> None:
    if not isinstance(number, int | float | torch.SymFloat) or isinstance(number, bool):
        raise_type_error(name, "a number", number)
    if isinstance(number, int):
        _test_integer(name, number)  # torch multiplies by no longer one
    if not isinstance(number, torch.SymFloat) and not -math.inf < number < math.inf:
        raise ValueError(f"{name} must be finite, got {name}={number}")


def _test_bool(name: str, flag: Any) -> None:
    if not isinstance(flag, bool):  # any string that is not empty would count as True
        raise_type_error(name, "True or False", flag)


PLAIN_RULES: dict[object, Rule] = {
    bool: Rule("True or False", _test_bool),
    int: Rule("an int", _test_integer),
    float: Rule("finite", _test_number),
}
"""The rules of plain annotations: ``bool`` refuses a 1, ``int`` a True, and ``float`` a NaN."""


def in_range(kind: type, text: str, holds: Callable[[Any], bool]) -> Rule:
    """Return the rule that a value is a number of a range.

    Args:
        kind: int or float.
        text: The range, as it follows "must be".
        holds: Whether a number lies in it.
    """

    def test(name: str, number: Any) -> None:
        if type(number) is not kind or holds(number):  # a NaN lies in no range
            PLAIN_RULES[kind].test(name, number)
        if not holds(number):
            raise ValueError(f"{name} must be {text}, got {name}={number}")

    return Rule(text, test)


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

    def test(name: str, choice: Any) -> None:
        if not isinstance(choice, str):
            raise_type_error(name, known, choice)
        if choice not in choices:
            raise ValueError(f"{name} must be {known}, got {name}={choice!r}")

    return Rule(known, test)


# Functions and modules ------------------------------------------------------------------------


def _test_function(name: str, function: Any) -> None:
    if isinstance(function, type):
        raise TypeError(f"{name} must be an instance, got the class {function.__name__}")
    if not callable(function):
        known = isinstance(function, str) and callable(getattr(F, function, None))
        hint = f"; pass torch.nn.functional.{function}" if known else ""
        raise_type_error(name, "a function or a module", function, hint)


def _test_factory(name: str, factory: Any) -> None:
    if isinstance(factory, nn.Module):
        kind = type(factory).__name__
        raise TypeError(f"{name} must return a new {kind} at each call, got a {kind} instance")
    if not callable(factory):
        raise_type_error(name, "a class or a function", factory)


Function = Annotated[Kind, Rule("a function or a module", _test_function)]
"""``Function[Callable[[Tensor], Tensor]]``: anything but a class that can be called."""

Factory = Annotated[Kind, Rule("returns new modules", _test_factory)]
"""``Factory[Callable[[], Residual]]``: a class, or a function that returns a new module."""


def make(kind: type[Kind], name: str, factory: Callable[[], Any]) -> Kind:
    """Make a part by the factory that was passed as the argument ``name``.

    Raises:
        TypeError: If the part is not an instance of ``kind``.
    """
    part = factory()
    check(kind, **{name: part})
    return part


Module = Annotated[Kind, instance_of(nn.Module)]
"""``Module[MultiHeadAttention]``: such a layer, or any other module in its place."""


# Tensors --------------------------------------------------------------------------------------


def check_tensor(name: str, x: Any) -> None:
    """Raise unless ``x`` is a tensor.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(x, Tensor):
        converts = hasattr(x, "__array__") or isinstance(x, list | tuple)
        hint = "; torch.as_tensor makes one" if converts and not isinstance(x, type) else ""
        raise_type_error(name, "a tensor", x, hint)


MEANINGS = {
    "B": "batch size B",
    "N": "size N",
    "L": "length L",
    "S": "length S",
    "H": "the number of heads H",
    "G": "the number of heads G",
    "d_k": "size d_k",
}


class Shaped(Rule):
    """A rule of tensors of a certain shape.

    Args:
        shape: A letter or name for each dimension, such as "B L d_model"; "..." at the beginning
            stands for any number of dimensions.
    """

    has_shape = True

    def __init__(self, shape: str) -> None:
        comma = "," * (" " not in shape)
        super().__init__(f"({shape.replace(' ', ', ')}{comma})", check_tensor)
        self.is_open = shape.startswith("... ")
        self.letters = shape.removeprefix("... ").split()
        self.outer = self.letters[:-1]

    def __call__(self, name: str, x: Any, module: object, sizes: Sizes | None) -> None:
        """Raise unless the argument ``x`` of a module's method is such a tensor."""
        check_tensor(name, x)
        self.check_shape(name, x, sizes)

    def check_shape(
        self, name: str, x: Tensor, sizes: Sizes | None, last: int | None = None
    ) -> None:
        """Raise unless a shape has these dimensions, and the sizes that other arguments have.

        Args:
            name: Name of the argument.
            x: The tensor.
            sizes: The sizes that the arguments before it have; those of ``x`` are added.
            last: The size that the last dimension must have, if it is known.
        """
        shape = x.shape[-1:] if self.is_open else x.shape
        if len(shape) != len(self.letters) or (last is not None and shape[-1] != last):
            expected = self.text if last is None else f"{self.text[:-1].rpartition(' ')[0]} {last})"
            raise ValueError(f"{name} must have shape {expected}, got {tuple(x.shape)}")
        if sizes is None:
            return
        # A last size that the module determines says nothing about other arguments.
        letters = self.letters if last is None else self.outer
        for letter, size in zip(letters, shape):  # noqa: B905
            known, first = sizes.setdefault(letter, (size, name))
            if known is not size and known != size:
                raise ValueError(
                    f"{first} and {name} must agree in {MEANINGS.get(letter, letter)}, "
                    f"got {known} and {size}"
                )


class Vectors(Shaped):
    """A rule of floating-point tensors, which have one dtype and device in one call.

    Args:
        shape: The shape; see :class:`Shaped`. The last size is that of the attribute of this name
            of the module that is called, if it has one.
    """

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes | None) -> None:
        """Raise unless the argument ``x`` of a module's method is such a tensor."""
        if not isinstance(x, Tensor):
            check_tensor(name, x)
        last = None if module is None else vars(module).get(self.letters[-1])
        self.check_shape(name, x, sizes, last)
        y, first = (x, name) if sizes is None else sizes.setdefault("", (x, name))
        if y is x:
            if not x.is_floating_point():
                raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
        elif x.dtype != y.dtype:
            raise TypeError(f"{first} and {name} must have one dtype, got {y.dtype} and {x.dtype}")
        elif x.device != y.device:
            raise ValueError(
                f"{first} and {name} must be on one device, got {y.device} and {x.device}"
            )


PLAIN_LAYERS = nn.Linear, nn.LayerNorm, nn.RMSNorm
"""Layers that take inputs of the dtype of their weights alone, or norms also half precision."""


class Input(Shaped):
    """A rule of floating-point tensors that enter weights, whose dtype and device they must have.

    Args:
        shape: The shape; see :class:`Shaped`. The last size is that of the attribute of this name
            of the module or of its part, or the ``in_features`` of its part.
        into: Path of the part of the module that the tensor enters first, such as
            "query_projection". The module itself if not given.
    """

    def __init__(self, shape: str, into: str = "") -> None:
        super().__init__(shape)
        self.path = into.split(".") if into else []
        self.last = self.letters[-1]

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes | None) -> None:
        """Raise unless the argument ``x`` of a module's method is such a tensor."""
        if not isinstance(x, Tensor):
            check_tensor(name, x)
        part = module
        for step in self.path:
            inner = part._modules.get(step)
            if inner is None:
                break
            part = inner
        last = module.__dict__.get(self.last) or part.__dict__.get("in_features")
        if not last:  # a lazy layer has none before its first input
            last = self._find_size(module)
        self.check_shape(name, x, sizes, last)
        if sizes is not None and "" not in sizes:
            sizes[""] = x, name
        kind = type(part)  # a subclass of a layer of torch, or another layer, may convert its input
        is_plain = kind in PLAIN_LAYERS or part is module
        weight = part._parameters.get("weight") if is_plain else None
        if weight is None:
            if not x.is_floating_point():
                raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
        elif x.dtype != weight.dtype or x.device != weight.device:
            check_match(name, x, weight, *(self._parts(module) or [module]))

    def _parts(self, module: nn.Module) -> list[nn.Module]:
        """List the parts on the path, as far as the module has them."""
        parts: list[nn.Module] = []
        for step in self.path:
            part = (parts[-1] if parts else module)._modules.get(step)
            if part is None:
                break
            parts.append(part)
        return parts

    def _find_size(self, module: nn.Module) -> int | None:
        """Return the attribute of a part that has the name of the last size, or None."""
        parts = map(vars, self._parts(module))
        return next((each[self.last] for each in parts if self.last in each), None)


def check_match(name: str, x: Tensor, weight: Tensor, *readers: nn.Module) -> None:
    """Raise unless ``x`` has the dtype and the device of the weights that are applied to it.

    Inputs that torch converts are accepted: by autocast, by a normalisation layer that accepts
    half precision, or by a hook of one of the modules that ``x`` enters, as offloading and sharding
    install them.

    Raises:
        TypeError: If the dtypes differ.
        ValueError: If the devices differ.
    """
    check_device(name, x, weight, *readers)
    if x.dtype == weight.dtype or any(map(_converts, readers)):
        return
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
    is_cast = is_autocast(x) and torch.float64 not in (x.dtype, weight.dtype)
    is_norm = isinstance(readers[-1], nn.LayerNorm | nn.RMSNorm)
    if is_cast or not weight.is_floating_point() or (is_norm and x.dtype.itemsize < 4):
        return
    raise TypeError(
        f"{name} must have the dtype of the weights, {weight.dtype}, got dtype={x.dtype}"
    )


def check_device(name: str, x: Tensor, weight: Tensor, *readers: nn.Module) -> None:
    """Raise unless ``x`` is on the device of the weights; see :func:`check_match`.

    Raises:
        ValueError: If it is on another device.
    """
    if x.device != weight.device and not any(map(_converts, readers)):
        raise ValueError(
            f"{name} must be on the device of the weights, {weight.device}, got device={x.device}"
        )


def _converts(module: nn.Module) -> bool:
    """Return whether a pre-hook or a replaced ``forward`` may convert the input or the weights."""
    return bool(module._forward_pre_hooks) or "forward" in vars(module)


def is_autocast(x: Tensor) -> bool:
    """Return whether autocast is enabled on the device of ``x``; the meta device has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


NO_SIZE = None, ""


class Heads(Vectors):
    """A rule of the vectors of all heads; the number G of key heads must divide H."""

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes | None) -> None:
        """Raise unless ``x`` is such a tensor, and its heads can be shared by query heads."""
        super().__call__(name, x, module, sizes)
        if sizes is None:
            return
        (heads, first), (groups, _) = sizes.get("H", NO_SIZE), sizes.get("G", NO_SIZE)
        if heads != groups and None not in (heads, groups) and (not groups or heads % groups):
            raise ValueError(
                f"{first} and {name} must agree in the number of heads, or that of {first} must be "
                f"a multiple of that of {name}, got {heads} and {groups}"
            )


class Ids(Shaped):
    """A rule of tensors of integer ids.

    Args:
        shape: The shape; see :class:`Shaped`.
        dtypes: The dtypes that are accepted; those of all integers if not given.
        place: The device, "cpu" or that of the module's "weight"; any device if not given.
    """

    def __init__(self, shape: str, *dtypes: torch.dtype, place: str = "") -> None:
        super().__init__(shape)
        self.dtypes, self.place = dtypes, place

    def __call__(self, name: str, x: Any, module: Any, sizes: Sizes | None) -> None:
        """Raise unless the argument ``x`` holds such ids."""
        check_tensor(name, x)
        if self.dtypes and x.dtype not in self.dtypes:
            known = " or ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
            raise TypeError(f"{name} must be {known} ids, got dtype={x.dtype}")
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise TypeError(f"{name} must be integer ids, got dtype={x.dtype}")
        self.check_shape(name, x, sizes)
        if self.place == "weight":
            check_device(name, x, module.weight, module)
        elif self.place == "cpu" and not x.is_cpu:
            raise ValueError(f"{name} must be on the CPU, got device={x.device}")


def check_boolean(name: str, mask: Any) -> None:
    """Raise unless ``mask`` is a boolean tensor; masks of numbers have several conventions.

    Raises:
        TypeError: If it is anything else.
    """
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool, where True hides a key, got dtype={mask.dtype}; "
            "a comparison gives a boolean mask, for example `mask == 0` if 0 marks masked keys"
        )


class AttentionMask(Rule):
    """A rule of masks that fit attention of the sizes (B, H, L, S) that the other arguments have.

    Args:
        heads: Path of the attribute of the module that is the number of heads, if no argument has
            this dimension.
    """

    has_shape = True

    def __init__(self, *, heads: str | None = None) -> None:
        super().__init__("bool, (L, S) or (B|1, H|1, L|1, S)", check_boolean)
        self.heads = [] if heads is None else heads.split(".")

    def __call__(self, name: str, mask: Any, module: object, sizes: Sizes | None) -> None:
        """Raise unless an argument is such a mask."""
        if sizes is None or "S" not in sizes:
            check_boolean(name, mask)
        else:
            heads: Any = module if self.heads else sizes.get("H", (1, ""))[0]
            for step in self.heads:
                heads = getattr(heads, step)
            full = sizes["B"][0], heads, sizes.get("L", (1, ""))[0], sizes["S"][0]
            check_mask(name, mask, full, sizes[""][0].device)


def check_mask(name: str, mask: Tensor, full: Sequence[Any], device: torch.device) -> None:
    """Raise unless ``mask`` is boolean and fits attention of the sizes (B, H, L, S).

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If its shape is neither (L, S) nor (B|1, H|1, L|1, S), or it is on another
            device than the queries.
    """
    check_boolean(name, mask)
    if mask.device != device:
        raise ValueError(
            f"{name} must be on the device of the queries, {device}, got device={mask.device}"
        )
    shape = tuple(mask.shape)
    if len(shape) == 2 and shape == (full[2], full[3]):  # compares symbolic sizes only if needed
        return
    fits = len(shape) == 4 and shape[3] == full[3]
    for size, known in zip(shape, full[:3], strict=False):
        fits = fits and (size == 1 or known is None or size == known)
    if not fits:
        batch, heads, queries, keys = (
            letter if size is None else size for letter, size in zip("BHLS", full, strict=True)
        )
        raise ValueError(
            f"{name} must have shape (L, S) = ({queries}, {keys}) or (B|1, H|1, L|1, S) = "
            f"({batch}|1, {heads}|1, {queries}|1, {keys}), got {shape}; "
            "padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )


Mask = Annotated[Tensor, Rule("bool", check_boolean)]
"""A boolean mask of any shape; True hides."""

_CHECKED: Any = getattr(checked(lambda x: x), "__code__", None)  # of all checked functions
