"""Optional packages: named where they are missing, with the extra that installs them."""

from importlib.util import find_spec


def check_packages(purpose: str, *packages: str, extra: str) -> None:
    """Raise unless packages are installed that this library does not need by itself.

    Args:
        purpose: What needs them.
        packages: The names under which they are imported.
        extra: The extra of this library that installs them.

    Raises:
        ModuleNotFoundError: If one is not installed.

    Example:
        >>> from transformer_blocks.explorer.packages import check_packages
        >>> check_packages("a rainbow", "no_such_package", extra="plot")
        Traceback (most recent call last):
        ModuleNotFoundError: a rainbow needs no_such_package, which is not installed: pip install
            "transformer-blocks[plot]"
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{purpose} needs {' and '.join(missing)}, which is not installed: "
            f'pip install "transformer-blocks[{extra}]"',
            name=missing[0],
        )
