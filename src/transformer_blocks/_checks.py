"""Argument checks: one form of error for the whole package.

Every message reads ``<name> must <rule>, got <value>``, so that whoever meets it knows which
argument to change. Each block checks its inputs once, where they come in. Only kinds, sizes,
shapes, dtypes and devices are checked; nothing reads a tensor's values.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PLAIN = {nn.Linear, nn.LayerNorm, nn.RMSNorm}
"""Modules whose input must have the dtype of their weights. Subclasses may convert it first."""

HERE = f"{__package__}."


def refuse(name: str, rule: str, value: object, hint: str = "") -> NoReturn:
    """Raise the error for an argument of the wrong kind.

    Args:
        name: The argument.
        rule: What it must be.
        value: What was given; written out where that is short, else named by its class.
        hint: What to do, if there is one thing to do.

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


def check_integer(**numbers: int) -> None:
    """Raise unless every named number is an integer.

    Raises:
        TypeError: If one is not an ``int``.
    """
    for name, number in numbers.items():
        if not isinstance(number, int | torch.SymInt) or isinstance(number, bool):
            refuse(name, "an int", number)


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
    """Raise unless every named number is an ``int`` or a ``float``.

    Raises:
        TypeError: If one is not.
    """
    for name, number in numbers.items():
        if not isinstance(number, int | float | torch.SymFloat) or isinstance(number, bool):
            refuse(name, "a number", number)


def check_dropout(**probabilities: float) -> None:
    """Raise unless every named dropout is a probability below one; NaN is none.

    Raises:
        TypeError: If one is not a number.
        ValueError: If one lies outside [0, 1).
    """
    for name, probability in probabilities.items():
        if not isinstance(probability, float):  # the usual kind needs no closer look
            check_number(**{name: probability})
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), got {name}={probability}")


def check_flag(**flags: bool) -> None:
    """Raise unless every named flag is True or False: any string would count as True.

    Raises:
        TypeError: If one is not a ``bool``.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            refuse(name, "True or False", flag)


def check_tensor(name: str, x: Tensor) -> None:
    """Raise unless ``x`` is a tensor.

    Raises:
        TypeError: If it is anything else.

    Example:
        >>> check_tensor("x", [1.0, 2.0])
        Traceback (most recent call last):
        TypeError: x must be a tensor, got list; torch.as_tensor makes one
    """
    if not isinstance(x, Tensor):
        converts = hasattr(x, "__array__") or isinstance(x, list | tuple)
        hint = "; torch.as_tensor makes one" if converts and not isinstance(x, type) else ""
        refuse(name, "a tensor", x, hint)


def check_boolean(name: str, mask: Tensor) -> None:
    """Raise unless ``mask`` is a boolean tensor: 0/1 and 0/-inf masks disagree on what 1 means.

    Raises:
        TypeError: If it is anything else.
    """
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool, where True hides a key, got dtype={mask.dtype}; "
            "compare to make it one, for example `mask == 0` where 0 marks what to hide"
        )


def check_vectors(
    name: str,
    x: Tensor,
    width: int | None,
    *readers: nn.Module,
    leading: Sequence[str] | None = ("B", "L"),
) -> None:
    """Raise unless ``x`` holds vectors of ``width`` real numbers, as the weights that read it do.

    Args:
        name: The argument.
        x: What was given for it.
        width: Size of the last dimension; None if only the module that reads it knows.
        readers: The modules through which ``x`` comes to the first weights: the last one owns them.
            A module that is neither torch's own nor of this package may convert its input, and is
            left to say itself what it cannot take.
        leading: Names of the other dimensions; None if there may be any.

    Raises:
        TypeError: If it is no tensor, holds no real numbers, or differs from the weights in dtype.
        ValueError: If it has another shape, or lies on another device than the weights.
    """
    check_tensor(name, x)
    shape = x.shape
    rank = len(shape)
    if (
        rank == 0
        or (width is not None and shape[-1] != width)
        or (leading is not None and rank != len(leading) + 1)
    ):
        sizes = ", ".join((*(leading or ("...",)), str(width or "width")))
        raise ValueError(f"{name} must have shape ({sizes}), got {tuple(shape)}")
    weight = None
    if readers and (type(readers[-1]) in PLAIN or type(readers[-1]).__module__.startswith(HERE)):
        weight = readers[-1]._parameters.get("weight")
    if weight is None:
        if not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
    elif x.dtype != weight.dtype or x.device != weight.device:
        check_match(name, x, weight, *readers)


def check_match(name: str, x: Tensor, weight: Tensor, *readers: nn.Module) -> None:
    """Raise unless ``x`` has the dtype and the device of the weights that read it.

    What torch converts on the way is let through: by autocast, by a norm that takes half precision,
    or by a hook of one of the readers, with which a model is offloaded or sharded.

    Raises:
        TypeError: If the dtypes differ.
        ValueError: If the devices differ.
    """
    check_device(name, x, weight, *readers)
    if x.dtype == weight.dtype or any(map(_converts, readers)):
        return
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")
    casts = is_autocast(x) and torch.float64 not in (x.dtype, weight.dtype)
    norms = isinstance(readers[-1], nn.LayerNorm | nn.RMSNorm)
    if casts or not weight.is_floating_point() or (norms and x.dtype.itemsize < 4):
        return
    raise TypeError(
        f"{name} must have the dtype of the weights, {weight.dtype}, got dtype={x.dtype}"
    )


def check_device(name: str, x: Tensor, weight: Tensor, *readers: nn.Module) -> None:
    """Raise unless ``x`` is where the weights are that read it; see :func:`check_match`.

    Raises:
        ValueError: If it is on another device.
    """
    if x.device != weight.device and not any(map(_converts, readers)):
        raise ValueError(
            f"{name} must be on the device of the weights, {weight.device}, got device={x.device}"
        )


def _converts(module: nn.Module) -> bool:
    """Tell whether a module's input or weights may be converted when it is called."""
    return bool(module._forward_pre_hooks) or "forward" in vars(module)


def is_autocast(x: Tensor) -> bool:
    """Tell whether autocast is enabled where ``x`` is; a tensor without data has none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def check_instance(kind: type, **objects: object) -> None:
    """Raise unless every named object is an instance of a class.

    Raises:
        TypeError: If one is not.
    """
    for name, each in objects.items():
        if not isinstance(each, kind):
            refuse(name, f"an instance of {kind.__name__}", each)


def check_module(**modules: nn.Module) -> None:
    """Raise unless every named module is one that is made.

    Raises:
        TypeError: If one is a class or no module.
    """
    check_instance(nn.Module, **modules)


def check_modules(name: str, modules: Iterable[nn.Module]) -> list[nn.Module]:
    """List modules, all of which are made.

    Raises:
        TypeError: If one is a class or no module.
    """
    if not isinstance(modules, Iterable):
        refuse(name, "a list of modules", modules)
    listed = list(modules)
    for number, module in enumerate(listed):
        check_module(**{f"{name}[{number}]": module})
    return listed


def check_callable(**functions: Callable[..., object]) -> None:
    """Raise unless every named function can be called as it is: a function, or a finished module.

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
            raise TypeError(f"{name} must be made already, got the class {function.__name__}")
        if not callable(function):
            known = isinstance(function, str) and callable(getattr(F, function, None))
            hint = f"; pass torch.nn.functional.{function}" if known else ""
            refuse(name, "a function or a module", function, hint)


def check_factory(**factories: Callable[..., nn.Module]) -> None:
    """Raise unless every named factory is a class or a function, which makes modules.

    Raises:
        TypeError: If one is a finished module, which several places cannot share, or cannot be
            called.
    """
    for name, factory in factories.items():
        if isinstance(factory, nn.Module):
            kind = type(factory).__name__
            raise TypeError(f"{name} must make a new {kind} at each call, got a finished {kind}")
        if not callable(factory):
            refuse(name, "a class or a function", factory)
