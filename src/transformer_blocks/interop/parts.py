"""Parts: what is taken for equal must be what it seems to be."""

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def check_class(name: str, part: nn.Module, *kinds: type[nn.Module]) -> None:
    """Raise unless a part is of a known class; a subclass may compute something else.

    Raises:
        TypeError: If it is not.
    """
    if type(part) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {known}, got {type(part).__name__}")


def check_no_hooks(module: nn.Module) -> None:
    """Raise if something is done besides what the classes say.

    Raises:
        ValueError: If a part has hooks.
    """
    for name, part in module.named_modules():
        if any(getattr(part, hooks) for hooks in HOOKS):
            raise ValueError(f"hooks have no equivalent, got some on {name or 'the module'!r}")
