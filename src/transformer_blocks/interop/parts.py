"""What both conversions share: only known, unaltered classes, without tied weights."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._alteration import check_unaltered


def convert(
    name: str, module: nn.Module, builds: Mapping[type[nn.Module], Callable[[Any], nn.Module]]
) -> nn.Module:
    """Convert a module by the function for its class.

    Args:
        name: Name of the argument.
        module: The module.
        builds: For each known class, the function that converts its modules.

    Raises:
        TypeError: If the module is of another class, also of a subclass.
        ValueError: If it or a part of it has hooks or replaced methods, or parts share weights.
    """
    build = builds.get(type(module))
    if build is None:
        known = ", ".join(each.__name__ for each in builds)
        raise TypeError(f"{name} must be one of {known}, got {type(module).__name__}")
    for path, part in module.named_modules():
        check_unaltered(part, path or "the module")
    converted = build(module)
    check_untied(module, converted)
    if not hasattr(module, "layers") and not hasattr(module, "encoder"):
        converted.train(module.training)  # the layers of a stack may differ in their modes
    converted.training = module.training
    return converted


def check_class(name: str, part: nn.Module, *kinds: type[nn.Module]) -> None:
    """Raise unless a part is of a known class; a subclass may compute something else.

    Raises:
        TypeError: If its class is not one of ``kinds``.
    """
    if type(part) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {known}, got {type(part).__name__}")


def check_untied(module: nn.Module, converted: nn.Module) -> None:
    """Raise if a conversion has copied a weight that parts share once for each of them.

    A layer that occurs in its stack several times is converted once, so it may be shared.

    Raises:
        ValueError: If the converted module has more numbers in its weights.
    """
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in (module, converted)]
    if sizes[0] != sizes[1]:
        names = dict(module.named_parameters(remove_duplicate=False))
        shared = ", ".join(name for name in names if name not in dict(module.named_parameters()))
        raise ValueError(
            "each weight that is converted must belong to one part, or to a layer that occurs "
            f"several times in its stack, got shared weights {shared}"
        )


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
