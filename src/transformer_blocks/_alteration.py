"""Alterations: whether a module computes exactly what its class does.

A conversion, a page or a program replaces a module by what its class computes. It would silently
lose what was changed on the module itself.
"""

from torch import nn


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
