"""Checks before a conversion: only known, unaltered classes, without tied weights."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from transformer_blocks._contracts import check_unaltered


def check_class(name: str, part: nn.Module, *kinds: type[nn.Module]) -> None:
    """Raise unless a part is of a known class; a subclass may compute something else.

    Raises:
        TypeError: If its class is not one of ``kinds``.
    """
    if type(part) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {known}, got {type(part).__name__}")


def check_no_alterations(module: nn.Module) -> None:
    """Raise if a part has hooks or replaced methods, which the converted part would not have.

    Raises:
        ValueError: If a part has one.
    """
    for name, part in module.named_modules():
        check_unaltered(part, name or "the module")


def check_no_ties(module: nn.Module, *layers: type[nn.Module]) -> None:
    """Raise if two parts share a parameter, which a conversion would copy twice and so untie.

    Only whole layers may be shared: :func:`convert_layers` preserves a layer that occurs in its
    stack several times.

    Args:
        module: The module to be converted.
        layers: Classes of layers that may be shared.

    Raises:
        ValueError: If two parts share a parameter, or one part occurs in two places.
    """
    seen: set[nn.Module] = set()
    names: dict[nn.Parameter, str] = {}

    def visit(part: nn.Module, prefix: str) -> None:
        if part in seen and type(part) in layers:
            return
        seen.add(part)
        for key, parameter in part._parameters.items():
            if parameter is None:
                continue
            if parameter in names:
                raise ValueError(
                    f"each weight must belong to one part, got one that {names[parameter]!r} and "
                    f"{prefix + key!r} share; only whole layers of a stack can be shared"
                )
            names[parameter] = prefix + key
        for key, child in part._modules.items():
            if child is not None:
                visit(child, f"{prefix}{key}.")

    visit(module, "")


def convert_layers(layers: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert the layers of a stack; a layer that occurs several times is converted once."""
    layers = list(layers)
    converted = {layer: convert(layer) for layer in dict.fromkeys(layers)}
    return [converted[layer] for layer in layers]
