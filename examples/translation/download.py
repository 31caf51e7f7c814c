"""Download files of known checksum.

A file is written, in one step, once all of it has arrived and its SHA-256 is right. So a file that
is there is complete, and a download that was interrupted fetches only what is missing.
"""

import hashlib
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tqdm import tqdm

from common.errors import UserError
from common.files import check_output, disk_errors, file_hash, write_atomically

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
LARGEST = 2**26
"""Maximum number of bytes of a file."""


def fetch(files: Mapping[str, str], folder: Path, *, base_url: str) -> None:
    """Download the files that are missing.

    A file with the right checksum is not downloaded again. A file with another one is replaced once
    the right one has been downloaded.

    Args:
        files: The SHA-256 of each file, by name.
        folder: The folder to write the files to; created if missing.
        base_url: The address of the files, without the name and the slash before it.

    Raises:
        UserError: If the network or the disk fails, or a file arrives with another checksum.
    """
    missing = [name for name, expected in files.items() if _sha256(folder / name) != expected]
    for name in tqdm(missing, unit="file", leave=False, disable=None):  # no bar in a log file
        url, path = f"{base_url}/{name}", folder / name
        check_output(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with urlopen(url, timeout=TIMEOUT) as response:
                content = response.read(LARGEST)
                if response.length:
                    raise ConnectionError(f"{response.length:,} bytes are missing")
        except (HTTPException, OSError, ValueError) as error:  # an address may be invalid
            reason = error.reason if type(error) is URLError else error
            if isinstance(error, HTTPError):
                error.close()
            raise UserError(
                f"cannot download {url} into {folder}: {reason}; run again, or name a folder that "
                f"holds {', '.join(files)} with --data-dir"
            ) from error
        found = hashlib.sha256(content).hexdigest()
        if found != files[name]:
            raise UserError(
                f"{url} has SHA-256 {found}, expected {files[name]}; it was not kept as {path}"
            )
        write_atomically(path, content)


def verify(files: Mapping[str, str], folder: Path) -> None:
    """Check the checksums of files that exist, without writing anything.

    Raises:
        UserError: If one is missing, unreadable or has another checksum.
    """
    for name, expected in files.items():
        path = folder / name
        found = _sha256(path)
        if found is None:
            raise UserError(f"{path} is missing; {folder} must hold {', '.join(files)}")
        if found != expected:
            raise UserError(f"{path} has SHA-256 {found}, expected {expected}")


def _sha256(path: Path) -> str | None:
    with disk_errors(f"cannot read {path}"):
        return file_hash(path) if path.is_file() else None
