"""Checks of optional packages, whose errors name the extra that installs them."""

from importlib.util import find_spec


class MissingPackageError(ModuleNotFoundError):
    """An optional package is not installed; the message names the command that installs it."""


def check_packages(purpose: str, *packages: str, extra: str) -> None:
    """Raise unless optional packages are installed.

    Args:
        purpose: What the packages are needed for; the error begins with it.
        packages: Names under which the packages are imported.
        extra: Name of this library's extra that installs them.

    Raises:
        MissingPackageError: If one is not installed.

    Example:
        >>> from transformer_blocks.explorer.packages import check_packages
        >>> check_packages("a figure", "no_such_package", extra="plot")
        Traceback (most recent call last):
        transformer_blocks.explorer.packages.MissingPackageError: a figure needs no_such_package,
            which is not installed: pip install "transformer-blocks[plot]"
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{purpose} needs {' and '.join(missing)}, which is not installed: "
            f'pip install "transformer-blocks[{extra}]"',
            name=missing[0],
        )
