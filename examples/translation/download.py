"""Download files of known checksum, by pooch: a file is there once its SHA-256 is right."""

from collections.abc import Mapping
from pathlib import Path

import pooch

from common.errors import UserError
from common.files import disk_errors, file_hash

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""


def fetch(files: Mapping[str, str], folder: Path, *, base_url: str) -> None:
    """Download the files that are missing, or have another checksum than the right one.

    Args:
        files: The SHA-256 of each file, by name.
        folder: The folder to write the files to; created if missing.
        base_url: The address of the files, without the name and the slash before it.

    Raises:
        UserError: If the network or the disk fails, or a file arrives with another checksum. The
            file on the disk is then unchanged.
    """
    hashes = {name: f"sha256:{value}" for name, value in files.items()}
    source = pooch.create(folder, f"{base_url}/", registry=hashes)
    download = pooch.HTTPDownloader(timeout=TIMEOUT)
    for name in files:
        try:
            source.fetch(name, downloader=download)
        except (OSError, ValueError) as error:  # ValueError: of another checksum
            raise UserError(
                f"cannot download {base_url}/{name} into {folder}: {error}; run again, or name a "
                f"folder that holds {', '.join(files)} with --data-dir"
            ) from error


def verify(files: Mapping[str, str], folder: Path) -> None:
    """Check the checksums of files that exist, without writing anything.

    Raises:
        UserError: If one is missing, unreadable or has another checksum.
    """
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing; {folder} must hold {', '.join(files)}")
        with disk_errors(f"cannot read {path}"):
            found = file_hash(path)
        if found != expected:
            raise UserError(f"{path} has SHA-256 {found}, expected {expected}")
