"""What both conversions share: only known, unaltered classes, without tied weights."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import check_unaltered


def convert(
    name: str,
    module: nn.Module,
    builds: Mapping[type[nn.Module], Callable[[Any], nn.Module]],
) -> nn.Module:
    """Convert a module by the function for its class.

    Args:
        name: Name of the argument.
        module: The module.
        builds: For each known class, the function that converts its modules. Those that are called
            a layer may occur several times in a stack.

    Raises:
        TypeError: If the module is of another class, also of a subclass.
        ValueError: If it or a part of it has hooks or replaced methods, or parts share weights.
    """
    build = builds.get(type(module))
    if build is None:
        known = ", ".join(each.__name__ for each in builds)
        raise TypeError(f"{name} must be one of {known}, got {type(module).__name__}")
    check_parts(module, *(each for each in builds if each.__name__.endswith("Layer")))
    converted = build(module)
    is_stack = hasattr(module, "layers") or hasattr(module, "encoder")
    if is_stack:  # leave the modes of its layers, which may differ
        converted.training = module.training
        return converted
    return converted.train(module.training)


def check_class(name: str, part: nn.Module, *kinds: type[nn.Module]) -> None:
    """Raise unless a part is of a known class; a subclass may compute something else.

    Raises:
        TypeError: If its class is not one of ``kinds``.
    """
    if type(part) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {known}, got {type(part).__name__}")


def check_parts(module: nn.Module, *layers: type[nn.Module]) -> None:
    """Raise if parts are altered, or share a parameter, which a conversion would untie.

    Only whole layers may be shared: :func:`convert_layers` preserves a layer that occurs in its
    stack several times.

    Args:
        module: The module to be converted.
        layers: Classes of layers that may be shared.

    Raises:
        ValueError: If a part has hooks or replaced methods, which the converted part would not
            have, or if two parts share a parameter, or one part occurs in two places.
    """
    seen: set[nn.Module] = set()
    names: dict[nn.Parameter, str] = {}
    shared: tuple[str, ...] = ()  # paths of layers that have been seen
    for path, part in module.named_modules(remove_duplicate=False):
        if path.startswith(shared):
            continue
        if part in seen and type(part) in layers:
            shared += (f"{path}.",)
            continue
        seen.add(part)
        check_unaltered(part, path or "the module")
        for name, parameter in part.named_parameters(path, recurse=False, remove_duplicate=False):
            first = names.setdefault(parameter, name)
            if first != name:
                raise ValueError(
                    f"each weight must belong to one part, got one that {first!r} and {name!r} "
                    "share; only whole layers of a stack can be shared"
                )


def convert_layers(layers: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert the layers of a stack; a layer that occurs several times is converted once."""
    layers = list(layers)
    converted = {layer: convert(layer) for layer in dict.fromkeys(layers)}
    return [converted[layer] for layer in layers]


def copy_linear(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    """Replace the parameters of a linear layer by copies, in their dtype and on their device."""
    linear.weight = concatenate(weight)
    linear.register_parameter("bias", None if bias is None else concatenate(bias))


def concatenate(*parts: Tensor) -> nn.Parameter:
    """Concatenate copies of weights into one parameter.

    Raises:
        ValueError: If they differ in dtype or device, or some are frozen and some are not.
    """
    if len({(part.dtype, part.device) for part in parts}) > 1:
        kinds = ", ".join(f"{part.dtype} on {part.device}" for part in parts)
        raise ValueError(
            f"weights that torch concatenates must have one dtype and device, got {kinds}"
        )
    flags = {part.requires_grad for part in parts}
    if len(flags) > 1:
        raise ValueError("weights that torch concatenates must all be frozen, or none")
    return nn.Parameter(torch.cat([part.detach() for part in parts]), requires_grad=True in flags)
