"""Files: written whole or not at all, and never in the place of a device, a pipe or a link."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically: the earlier content stays until the new one is on the disk.

    Args:
        path: As in :func:`open_atomically`.
        content: The content of the file.

    Raises:
        OSError: As :func:`open_atomically` does.

    Example:
        >>> from pathlib import Path
        >>> import tempfile
        >>> from transformer_blocks.files import write_atomically
        >>> path = Path(tempfile.mkdtemp()) / "page.html"
        >>> write_atomically(path, b"<p>")
        >>> [file.name for file in path.parent.iterdir()], path.read_bytes()
        (['page.html'], b'<p>')
    """
    with open_atomically(path) as file:
        file.write(content)


@contextmanager
def open_atomically(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write, which gets its name when the ``with`` block ends without an error.

    The content goes to a new file of a random name beside ``path``, which is then renamed. A device
    or a pipe, which holds nothing that could be lost, is written to directly.

    Args:
        path: The file. Its folder must exist. It must not be a symbolic link.

    Yields:
        The file to write to.

    Raises:
        OSError: If the disk fails, or ``path`` is a symbolic link or a folder; the error names
            ``path``. The folder is then unchanged.
    """
    path = Path(path)
    check_file(path)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        partial = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            with partial.open("xb") as file:  # "x" neither overwrites nor follows a link
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException as error:
            is_of_others = isinstance(error, FileExistsError) and error.filename == str(partial)
            if not is_of_others:
                partial.unlink(missing_ok=True)
            raise
    except OSError as error:  # the error of a full disk does not name the file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def check_file(path: str | PathLike[str], *, has_folder: bool = False) -> None:
    """Raise if a path names a folder, or a symbolic link that writing would replace.

    Args:
        path: The path.
        has_folder: Whether its folder must exist already.

    Raises:
        OSError: If it does, or the folder is missing.
    """
    path = Path(path)
    if path.is_dir():
        raise OSError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    if path.is_symlink() and (path.is_file() or not path.exists()):  # not one to a device
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself", str(path))
    if has_folder and not path.parent.is_dir():
        raise OSError(errno.ENOENT, f"the folder {path.parent} does not exist", str(path))
