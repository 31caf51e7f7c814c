"""Alterations: whether a module computes exactly what its class does.

A conversion, a page or a program replaces a module by what its class computes. It would silently
lose what was changed on the module itself, or on its class by another package.
"""

from types import FunctionType

from torch import nn

CALLED = "__call__", "_wrapped_call_impl", "_call_impl", "forward"
"""The methods of every module that a forward pass calls. Packages also add some: transformers does,
and no class of torch's calls them."""
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


def alteration(module: nn.Module) -> str | None:
    """Return what makes a module compute something else than its class, itself and not its parts.

    Returns:
        "hooks" if forward or backward hooks are registered on it; "a replaced forward" if it has
        that method, or another one, as an attribute of its own, or if another package has replaced
        the method of its class; None for an unaltered module.
    """
    if any(getattr(module, name) for name in HOOKS):
        return "hooks"
    kind = type(module)
    methods = [name for name in vars(module) if callable(getattr(kind, name, None))]
    methods += [name for each in kind.__mro__ for name in vars(each) if _is_foreign(each, name)]
    return next((f"a replaced {name}" for name in methods), None)


def _is_foreign(kind: type, name: str) -> bool:
    """Return whether a method of a class is a function of a package that does not define it."""
    method = vars(kind)[name]
    if not isinstance(method, FunctionType) or (name.startswith("__") and name != "__call__"):
        return False
    if kind is nn.Module and name not in CALLED:
        return False
    homes = {each.partition(".")[0] for each in (kind.__module__, __name__, nn.__name__)}
    return method.__globals__["__name__"].partition(".")[0] not in homes


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
