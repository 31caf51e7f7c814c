"""Compiled programs on disk: kept for the next process, and authenticated before they are loaded.

Loading a compiled program executes its code, and a folder of programs may come from another person.
Each program is therefore stored with a message authentication code (HMAC-SHA-256, RFC 2104,
https://www.rfc-editor.org/rfc/rfc2104): a hash of its fingerprint and its bytes that only the owner
of a secret can compute. The secret is a random number in a file that only this user can read.
"""

import hmac
import json
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

log = logging.getLogger(__name__)

MOST_PROGRAMS = 16
"""Largest number of programs in a folder; the least recently used ones are removed."""

MOST_BYTES = 2**31
"""Size above which a file is neither written nor read."""

PACKAGE = __name__.partition(".")[0]

Program = TypeVar("Program")


class ProgramStore:
    """A folder of compiled programs, from which only programs that this user wrote are loaded.

    Nothing here raises an error if the disk fails: a program that cannot be loaded is compiled
    again, and a program that cannot be kept is not kept. Both are logged.

    Args:
        folder: The folder; it is created when the first program is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(
        self, fingerprint: str, open_library: Callable[[str], Program]
    ) -> tuple[Program, dict[str, Any]] | None:
        """Load a program, if there is one with this fingerprint that this user has kept.

        The file is authenticated while it is copied to a folder that only this user can access, and
        the copy is loaded: what was checked cannot be replaced before it is loaded.

        Args:
            fingerprint: Everything that determines the program, as
                :func:`~transformer_blocks.inference.fingerprint.fingerprint` hashes it.
            open_library: Function that loads the shared library of a path. The library is removed
                afterwards.

        Returns:
            The program and the facts that were stored with it, or None.
        """
        path = self._path(fingerprint)
        if not os.path.lexists(path):
            return None
        try:
            with _open_own(path) as file, tempfile.TemporaryDirectory() as private:
                expected, copy = file.read(32), Path(private, "program.so")
                code = hmac.new(_secret(create=False), fingerprint.encode(), "sha256")
                facts = file.readline(1000)
                code.update(facts)
                with copy.open("xb") as target:
                    for block in iter(lambda: file.read(2**20), b""):
                        code.update(block)
                        target.write(block)
                if not hmac.compare_digest(code.digest(), expected):
                    raise PermissionError("another user or machine wrote it, or it was changed")
                program = open_library(str(copy)), json.loads(facts)
            with suppress(OSError):
                os.utime(path)  # it was used now
        except Exception as error:
            log.warning("the compiled program %s is not used: %s", path, error)
            return None
        return program

    def save(self, fingerprint: str, library: Path, facts: dict[str, Any]) -> None:
        """Keep a program; the file appears only when it is complete.

        Args:
            fingerprint: Everything that determines the program.
            library: Shared library of the program.
            facts: Short facts about the program, which JSON can represent.
        """
        path = self._path(fingerprint)
        partial = path.with_name(f"{secrets.token_hex(8)}.part")
        header = json.dumps(facts).encode() + b"\n"
        try:
            data = header + library.read_bytes()
            if len(header) > 1000 or len(data) > MOST_BYTES - 32:
                raise ValueError("it is too large")
            code = hmac.digest(_secret(create=True), fingerprint.encode() + data, "sha256")
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("xb") as file:  # "x" neither overwrites nor follows a link
                    file.write(code + data)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            self._remove_oldest()
        except Exception as error:
            log.warning("the compiled program %s is not kept: %s", path, error)

    def _path(self, fingerprint: str) -> Path:
        return self.folder / f"{fingerprint[:32]}.program"

    def _remove_oldest(self) -> None:
        """Remove the least recently used programs, and what killed processes left."""
        files = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process removed it
                if path.suffix in (".program", ".part"):
                    files.append((path.lstat().st_mtime_ns, path))
        for _, path in sorted(files)[:-MOST_PROGRAMS]:
            path.unlink(missing_ok=True)


@contextmanager
def _open_own(path: Path, *, is_secret: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file of this user for reading, neither following a link nor waiting.

    Raises:
        OSError: If there is no file, or it is not a regular file of this user; for a secret, also
            if others may read or write it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} must be a regular file of this user")
        if is_secret and status.st_mode & 0o077:
            raise PermissionError(f"{path} must be accessible by this user alone")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES} bytes")
        yield file


def _secret(*, create: bool) -> bytes:
    """Return the secret of this user on this machine.

    Args:
        create: Whether to create the secret if there is none.

    Raises:
        OSError: If there is none, it cannot be created, or others have access to it.
        ValueError: If it is damaged.
    """
    if os.name != "posix":
        raise OSError("the access of other users to a file is known on POSIX systems only")
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = (state if state.is_absolute() else Path.home() / ".local/state") / PACKAGE
    path = folder / "secret"
    if create and not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder / f"{secrets.token_hex(8)}.part"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was faster
                os.link(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    with _open_own(path, is_secret=True) as file:
        secret = file.read(33)
    if len(secret) != 32:
        raise ValueError(f"{path} must hold 32 bytes")
    return secret
