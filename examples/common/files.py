"""Files: what may be written where, strict JSON, and the lock of a run's folder.

Files are written by :func:`transformer_blocks.files.write_atomically`, which replaces a file by one
rename. Errors of the disk need no handling here: ``program`` prints them with their path.
:class:`FolderLock` excludes other trainings from a run's folder until the training ends, and
removes the files of a training that failed before its first checkpoint.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock, Timeout

from common.errors import UserError
from transformer_blocks.files import check_file
from transformer_blocks.files import write_atomically as write_atomically

PATIENCE = 0.2
"""Seconds in which a lock is taken again whose file another process removed meanwhile."""
RUN_FILES = "config.json", "metrics.jsonl", ".lock", "checkpoints", "best", "bag"
"""Names of the files and folders of a run, besides its tokenizers, ``*.model``."""


def check_output(path: Path, *, has_folder: bool = False) -> None:
    """Raise if a file to write, which the command line names, is no file or belongs to a run.

    Args:
        path: The file.
        has_folder: Whether its folder must exist already.

    Raises:
        OSError: If it is a folder or a symbolic link, or its folder is missing.
        UserError: If it belongs to a run.
    """
    check_file(path, has_folder=has_folder)
    place = path.parent.resolve() / path.name
    for folder in place.parents:
        first = place.relative_to(folder).parts[0]
        if (first in RUN_FILES or first.endswith(".model")) and (folder / "config.json").exists():
            raise UserError(f"cannot write {path}: it belongs to the run in {folder}")


def load_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: If it is not JSON, holds NaN or infinity, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def file_hash(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(*splits: Iterable[Iterable[str]]) -> str:
    """Compute the SHA-256 of the rows of each split; a row has one text or several."""
    digest = hashlib.sha256()
    for split in splits:
        for row in split:
            digest.update("\t".join(row).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class FolderLock:
    """The lock of a run's folder, which is created if it is missing.

    The lock is held on the file ``.lock`` in the folder, from the beginning of a ``with`` block to
    its end, or until the process dies. The file is removed while it is still locked; a process that
    opened it meanwhile tries again.

    A training that fails before :meth:`commit` leaves the folder unchanged: files that were written
    with :meth:`write_new` are removed, then the folder, if it is empty.

    Args:
        folder: The folder of the run.

    Attributes:
        is_committed: Whether :meth:`commit` was called.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "run"
        >>> try:
        ...     with FolderLock(folder) as lock:
        ...         lock.write_new(folder / "source.model", b"...")
        ...         raise ValueError("no such corpus")
        ... except ValueError:
        ...     folder.exists()
        False
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_committed = folder, False
        self._file = folder / ".lock"
        self._lock = FileLock(self._file, timeout=PATIENCE)
        self._written = ExitStack()  # removes what was written

    def __enter__(self) -> "FolderLock":
        """Take the lock.

        Raises:
            OSError: If the folder cannot be written to.
            UserError: If another training holds it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise UserError(f"another training is using {self.folder}") from error
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Release the lock; after an error, first remove the files that were written."""
        if error is None:
            self.commit()
        self._written.close()
        with suppress(OSError):
            self._file.unlink()
        self._lock.release()
        with suppress(OSError):
            self.folder.rmdir()  # only if it is empty

    def write_new(self, path: Path, content: bytes) -> None:
        """Write a file that does not exist yet; one with the same content is not written again.

        Raises:
            UserError: If a file with other content exists already.
        """
        if path.is_file() and path.read_bytes() == content:  # of a training that was killed here
            return
        if os.path.lexists(path):
            raise UserError(
                f"{path} exists already, and is not from this training; "
                "remove it, or choose another --run"
            )
        # Before it is written: an interruption may come at any time.
        self._written.callback(path.unlink, missing_ok=True)
        write_atomically(path, content)

    def commit(self) -> None:
        """Keep all files from now on, because there is a checkpoint to resume from."""
        self.is_committed = True
        self._written.pop_all()
