"""Argument checks: one form of error for the whole package.

Every message reads ``<rule>, got <name>=<value>``, so that whoever meets it knows which argument
to change. Only kinds, sizes, shapes and dtypes are checked; nothing reads a tensor's values.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
    for name, size in sizes.items():
        if not isinstance(size, int | torch.SymInt) or isinstance(size, bool):
            raise TypeError(f"{name} must be an int, got {name}={size!r}")
        if size <= 0:
            raise ValueError(f"{name} must be positive, got {name}={size}")


def check_dropout(**probabilities: float) -> None:
    """Raise unless every named dropout is a probability below one; NaN is none.

    Raises:
        TypeError: If one is not a number.
        ValueError: If one lies outside [0, 1).
    """
    for name, probability in probabilities.items():
        if not isinstance(probability, int | float) or isinstance(probability, bool):
            raise TypeError(f"{name} must be a number, got {name}={probability!r}")
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), got {name}={probability}")


def check_width(name: str, tensor: Tensor, width: int) -> None:
    """Raise unless ``tensor`` is a batch of sequences of ``width`` real numbers, (B, L, width).

    Raises:
        TypeError: If it holds integers or booleans.
        ValueError: If it has another shape.
    """
    if tensor.dim() != 3 or tensor.shape[-1] != width:
        raise ValueError(f"{name} must have shape (B, L, {width}), got {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got dtype={tensor.dtype}")


def check_kernel(**kernels: object) -> None:
    """Raise unless every named kernel can be called as it is: a function, or a module that is made.

    Raises:
        TypeError: If one is a class, or cannot be called.
    """
    for name, kernel in kernels.items():
        if isinstance(kernel, type):
            raise TypeError(f"{name} must be made already, got the class {kernel.__name__}")
        if not callable(kernel):
            raise TypeError(f"{name} must be a function or a module, got {name}={kernel!r}")


def check_factory(**factories: Callable[..., nn.Module]) -> None:
    """Raise if a named factory is a finished module, which several places cannot share.

    Raises:
        TypeError: If one is.
    """
    for name, factory in factories.items():
        if isinstance(factory, nn.Module):
            kind = type(factory).__name__
            raise TypeError(f"{name} must make a new {kind} at each call, got a finished {kind}")
