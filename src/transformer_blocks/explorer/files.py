"""Files: written whole or not at all, and never in the place of a device, a pipe or a link."""

import errno
import os
import secrets
from pathlib import Path


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write a file atomically: the earlier content stays until the new one is on the disk.

    The content goes to a new file of a random name beside ``path``, which is then renamed. A device
    or a pipe, which holds nothing that could be lost, is written to directly.

    Args:
        path: The file. Its folder must exist. It must not be a symbolic link.
        content: The content of the file.

    Raises:
        OSError: If the disk fails, or ``path`` is a symbolic link or a folder; the error names
            ``path``. The folder is then unchanged.

    Example:
        >>> from pathlib import Path
        >>> import tempfile
        >>> from transformer_blocks.explorer.files import write_atomically
        >>> path = Path(tempfile.mkdtemp()) / "page.html"
        >>> write_atomically(path, b"<p>")
        >>> [file.name for file in path.parent.iterdir()], path.read_bytes()
        (['page.html'], b'<p>')
    """
    path = Path(path)
    check_file(path)
    partial = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        try:
            with partial.open("xb") as file:  # "x" neither overwrites nor follows a link
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except FileExistsError:  # a file of another process stays
            raise
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:  # the error of a full disk does not name the file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def check_file(path: Path) -> None:
    """Raise if a path names a folder, or a symbolic link that writing would replace.

    Raises:
        OSError: If it does.
    """
    if path.is_dir():
        raise OSError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    if path.is_symlink() and (path.is_file() or not path.exists()):  # not one to a device
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself", str(path))
