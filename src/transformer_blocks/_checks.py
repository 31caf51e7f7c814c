"""Argument checks: one form of error for the whole package.

Every message reads ``<name> must <rule>, got <value>``, so that a user knows which argument to
change. Each block checks its inputs once, at its boundary. Only types, sizes, shapes, dtypes and
devices are checked; no check reads a tensor's values, which would wait for a GPU.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TORCH_MODULES = {nn.Linear, nn.LayerNorm, nn.RMSNorm}
"""Modules of torch whose input must have the dtype of their weights. A subclass may convert it."""

PACKAGE_PREFIX = f"{__package__}."

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


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


def names_arguments(method: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """Decorate a method to name the arguments that it has, if it is called with others.

    Masks have other names in torch, and are often passed by position; Python's own error names
    neither what the method accepts nor the rule of its masks.

    Returns:
        The decorated method. It raises a ``TypeError`` of ours if the arguments do not fit the
        signature, and is otherwise as it was.
    """

    @wraps(method)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        try:
            return method(*args, **kwargs)
        except TypeError:
            _check_signature(method, args, kwargs)
            raise

    return call


def _check_signature(
    method: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Raise if a method cannot be called with these arguments, whatever their values are."""
    parameters = list(inspect.signature(method).parameters.values())[1:]  # without self
    names = [each.name for each in parameters]
    by_place = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    unknown = [name for name in kwargs if name not in names]
    given = {*by_place[: len(args) - 1], *kwargs}
    missing = [
        each.name for each in parameters if each.default is each.empty and each.name not in given
    ]
    rule = "; a mask is boolean, and True hides a key" if "mask" in "".join(names) else ""
    if unknown:
        raise TypeError(
            f"arguments of {method.__qualname__} must be {', '.join(names)}, "
            f"got {', '.join(unknown)}{rule}"
        ) from None
    if len(args) - 1 > len(by_place):
        raise TypeError(
            f"{', '.join(names[len(by_place) :])} must be passed to {method.__qualname__} by name, "
            f"got {len(args) - 1} arguments by position{rule}"
        ) from None
    if missing:
        raise TypeError(f"{', '.join(missing)} must be passed to {method.__qualname__}") from None


def check_integer(**numbers: int) -> None:
    """Raise unless every named number is an integer that torch can represent.

    Raises:
        TypeError: If one is not an ``int``.
        ValueError: If one has more than 64 bits.
    """
    for name, number in numbers.items():
        if not isinstance(number, int | torch.SymInt) or isinstance(number, bool):
            raise_type_error(name, "an int", number)
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            raise ValueError(f"{name} must have at most 64 bits, got {number.bit_length() + 1}")


def check_size(**sizes: int) -> None:
    """Raise unless every named size is a positive integer.

    Raises:
        TypeError: If a size is not an ``int``.
        ValueError: If a size is zero or negative.

    Example:
        >>> check_size(d_model=0)
        Traceback (most recent call last):
        ValueError: d_model must be positive, got d_model=0
    """
    check_integer(**sizes)
    for name, size in sizes.items():
        if size <= 0:
            raise ValueError(f"{name} must be positive, got {name}={size}")


def check_number(**numbers: float) -> None:
    """Raise unless every named number is a finite ``int`` or ``float``.

    Raises:
        TypeError: If one is of another type.
        ValueError: If one is NaN or infinite.
    """
    for name, number in numbers.items():
        if not isinstance(number, int | float | torch.SymFloat) or isinstance(number, bool):
            raise_type_error(name, "a number", number)
        if not isinstance(number, torch.SymFloat) and not -math.inf < number < math.inf:
            raise ValueError(f"{name} must be finite, got {name}={number}")


def check_probability(**probabilities: float) -> None:
    """Raise unless every named number is a probability, from 0 to 1; NaN is not.

    Raises:
        TypeError: If one is not a number.
        ValueError: If one lies outside [0, 1].
    """
    for name, probability in probabilities.items():
        if not isinstance(probability, float):  # the range excludes NaN and infinity
            check_number(**{name: probability})
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"{name} must be in [0, 1], got {name}={probability}")


def check_dropout(**probabilities: float) -> None:
    """Raise unless every named dropout probability is at least 0 and below 1; NaN is not.

    Raises:
        TypeError: If one is not a number.
        ValueError: If one lies outside [0, 1).
    """
    for name, probability in probabilities.items():
        if not isinstance(probability, float):  # a float, the common case, needs no further check
            check_number(**{name: probability})
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), got {name}={probability}")


def check_flag(**flags: bool) -> None:
    """Raise unless every named flag is True or False; any non-empty string would count as True.

    Raises:
        TypeError: If one is not a ``bool``.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise_type_error(name, "True or False", flag)


def check_choice(name: str, choice: str, choices: Iterable[str]) -> None:
    """Raise unless a string is one of the accepted ones.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is another string.

    Example:
        >>> check_choice("reduction", "max", ("mean", "sum"))
        Traceback (most recent call last):
        ValueError: reduction must be 'mean' or 'sum', got reduction='max'
    """
    known = " or ".join(map(repr, choices))
    if not isinstance(choice, str):
        raise_type_error(name, known, choice)
    if choice not in choices:
        raise ValueError(f"{name} must be {known}, got {name}={choice!r}")


def check_tensor(name: str, x: Tensor) -> None:
    """Raise unless ``x`` is a tensor.

    Raises:
        TypeError: If it is not.

    Example:
        >>> check_tensor("x", [1.0, 2.0])
        Traceback (most recent call last):
        TypeError: x must be a tensor, got list; torch.as_tensor makes one
    """
    if not isinstance(x, Tensor):
        converts = hasattr(x, "__array__") or isinstance(x, list | tuple)
        hint = "; torch.as_tensor makes one" if converts and not isinstance(x, type) else ""
        raise_type_error(name, "a tensor", x, hint)


def check_boolean(name: str, mask: Tensor) -> None:
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


def check_vectors(
    name: str,
    x: Tensor,
    size: int | None,
    *readers: nn.Module,
    leading: Sequence[str] | None = ("B", "L"),
) -> None:
    """Raise unless ``x`` holds floating-point vectors that the weights applied to it accept.

    Args:
        name: Name of the argument.
        x: The tensor that was passed.
        size: Size of the last dimension; None if only the module that is applied to ``x`` knows it.
        readers: The modules through which ``x`` reaches the first weights, from the outermost to
            the owner of the weights. If the owner belongs neither to torch nor to this package, it
            may convert its input; dtype and device are then not compared with its weights.
        leading: Names of the other dimensions; None if any number of them is accepted.

    Raises:
        TypeError: If ``x`` is not a tensor, not floating-point, or differs from the weights in
            dtype.
        ValueError: If ``x`` has another shape, or is on another device than the weights.
    """
    check_tensor(name, x)
    shape = x.shape
    rank = len(shape)
    if (
        rank == 0
        or (size is not None and shape[-1] != size)
        or (leading is not None and rank != len(leading) + 1)
    ):
        sizes = ", ".join((*(leading or ("...",)), str(size or "size")))
        raise ValueError(f"{name} must have shape ({sizes}), got {tuple(shape)}")
    weight = None
    if readers:
        kind = type(readers[-1])
        if kind in TORCH_MODULES or kind.__module__.startswith(PACKAGE_PREFIX):
            weight = readers[-1]._parameters.get("weight")
    if weight is None:
        if not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
    elif x.dtype != weight.dtype or x.device != weight.device:
        check_match(name, x, weight, *readers)


def check_match(name: str, x: Tensor, weight: Tensor, *readers: nn.Module) -> None:
    """Raise unless ``x`` has the dtype and the device of the weights that are applied to it.

    Inputs that torch converts are accepted: by autocast, by a normalisation layer that accepts
    half precision, or by a hook of one of the readers, as offloading and sharding install them.

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


def alteration(module: nn.Module) -> str | None:
    """Return what makes a module compute something else than its class, itself and not its parts.

    Returns:
        "hooks" if forward or backward hooks are registered on it, "a replaced forward" if it has
        that method, or another one, as an attribute of its own; None for an unaltered module.
    """
    hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    if any(getattr(module, name) for name in hooks):
        return "hooks"
    methods = (name for name in vars(module) if callable(getattr(type(module), name, None)))
    return next((f"a replaced {name}" for name in methods), None)


def check_unaltered(module: nn.Module, name: str) -> None:
    """Raise if a module has hooks or replaced methods, which its conversion would lose.

    Raises:
        ValueError: If it has one.
    """
    if found := alteration(module):
        raise ValueError(
            f"{name} must have neither hooks nor replaced methods, as these have no equivalent, "
            f"got {found}"
        )


def is_autocast(x: Tensor) -> bool:
    """Return whether autocast is enabled on the device of ``x``; the meta device has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def has_values(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read: meta and fake tensors have none."""
    is_fake = type(x).__name__ in ("FakeTensor", "FunctionalTensor")  # of private modules
    return not is_fake and not x.is_meta and not torch.compiler.is_exporting()


def check_instance(kind: type, **objects: object) -> None:
    """Raise unless every named object is an instance of a class.

    Raises:
        TypeError: If one is not.
    """
    for name, each in objects.items():
        if not isinstance(each, kind):
            raise_type_error(name, f"an instance of {kind.__name__}", each)


def check_module(**modules: nn.Module) -> None:
    """Raise unless every named module is an instance of ``nn.Module``.

    Raises:
        TypeError: If one is a class, or not a module.
    """
    check_instance(nn.Module, **modules)


def check_modules(name: str, modules: Iterable[nn.Module]) -> list[nn.Module]:
    """List modules; raise unless all of them are instances of ``nn.Module``.

    Raises:
        TypeError: If one is a class, or not a module.
    """
    if not isinstance(modules, Iterable):
        raise_type_error(name, "a list of modules", modules)
    listed = list(modules)
    for number, module in enumerate(listed):
        check_module(**{f"{name}[{number}]": module})
    return listed


def check_callable(**functions: Callable[..., object]) -> None:
    """Raise unless every named function is a function or a module instance; classes are refused.

    Raises:
        TypeError: If one is a class, or cannot be called.

    Example:
        >>> check_callable(activation="gelu")
        Traceback (most recent call last):
        TypeError: activation must be a function or a module, got activation='gelu'; pass
        torch.nn.functional.gelu
    """
    for name, function in functions.items():
        if isinstance(function, type):
            raise TypeError(f"{name} must be an instance, got the class {function.__name__}")
        if not callable(function):
            known = isinstance(function, str) and callable(getattr(F, function, None))
            hint = f"; pass torch.nn.functional.{function}" if known else ""
            raise_type_error(name, "a function or a module", function, hint)


def check_factory(**factories: Callable[..., nn.Module]) -> None:
    """Raise unless every named factory is a class or a function that returns a new module.

    Raises:
        TypeError: If one is a module instance, which the layers would share, or is not callable.
    """
    for name, factory in factories.items():
        if isinstance(factory, nn.Module):
            kind = type(factory).__name__
            raise TypeError(f"{name} must return a new {kind} at each call, got a {kind} instance")
        if not callable(factory):
            raise_type_error(name, "a class or a function", factory)
