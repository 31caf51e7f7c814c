"""Download files of known checksum, and resume a download that was interrupted.

An incomplete file is called ``NAME.part``. It is renamed once its SHA-256 has been checked; so a
file under its own name is complete, even if the program was killed. A download has a maximum size
and a maximum time, so it ends whatever a server sends.
"""

import hashlib
import re
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tqdm import tqdm

from common.errors import UserError
from common.files import check_output

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
LONGEST = 1800.0
"""Maximum number of seconds that the download of a file may take."""
LARGEST = 2**28
"""Maximum number of bytes of a file."""


def fetch(files: Mapping[str, str], folder: Path, *, base_url: str) -> None:
    """Download the files that are missing; only one process at a time may do so.

    A file with the right checksum is not downloaded again. A file with another one is replaced once
    the right one has been downloaded.

    Args:
        files: The SHA-256 of each file, by name.
        folder: The folder to write the files to; created if missing.
        base_url: The address of the files, without the name and the slash before it.

    Raises:
        UserError: If the network or the disk fails, or a file arrives with another checksum.
    """
    for name, expected in files.items():
        url, path, part = f"{base_url}/{name}", folder / name, folder / f"{name}.part"
        try:
            if _sha256(path) == expected:
                continue
            check_output(path)
            folder.mkdir(parents=True, exist_ok=True)
            if part.is_symlink():  # not made here: what it leads to is not to be overwritten
                part.unlink()
            if _sha256(part) != expected:
                _download_in_time(url, part)
            found = _sha256(part)
            if found == expected:
                part.replace(path)
            else:
                part.unlink()
        except (HTTPException, OSError) as error:
            reason = error.reason if type(error) is URLError else error
            raise UserError(
                f"cannot download {url} into {folder}: {reason}; run again to resume, "
                f"or name a folder that holds {', '.join(files)} with --data-dir"
            ) from error
        if found != expected:
            raise UserError(
                f"{url} has SHA-256 {found}, expected {expected}; it was not kept as {path}"
            )


def verify(files: Mapping[str, str], folder: Path) -> None:
    """Check the checksums of files that exist, without writing anything.

    Raises:
        UserError: If one is missing, unreadable or has another checksum.
    """
    for name, expected in files.items():
        path = folder / name
        try:
            found = _sha256(path)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        if found is None:
            raise UserError(f"{path} is missing; {folder} must hold {', '.join(files)}")
        if found != expected:
            raise UserError(f"{path} has SHA-256 {found}, expected {expected}")


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Redirects(HTTPRedirectHandler):
    """Follow redirects from one web server to another, and nowhere else."""

    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> HTTPResponse | None:
        """Follow a redirect; close the connection if it leads nowhere."""
        try:
            response: HTTPResponse | None = super().http_error_302(req, fp, code, msg, headers)
        except Exception:
            fp.close()
            raise
        return response

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the request to send next."""
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise HTTPError(newurl, code, "redirected to what is no web page", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download_in_time(url: str, part: Path) -> None:
    """Call :func:`_download`, but wait no longer than ``LONGEST``.

    A server can be slow wherever Python waits for it, as in the middle of a header. So a thread
    waits, which is abandoned after ``LONGEST`` seconds and writes nothing after that.
    """
    errors: list[Exception] = []
    given_up = Event()

    def work() -> None:
        try:
            _download(url, part, given_up)
        except Exception as error:  # whatever it is, it is raised again below
            errors.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join(LONGEST)
    finally:
        given_up.set()
    if thread.is_alive():
        raise TimeoutError(f"it took longer than {LONGEST:g} seconds")
    if errors:
        raise errors[0]


def _download(url: str, part: Path, given_up: Event) -> None:
    """Download the rest of ``part``, or all of it from a server that cannot send a range."""
    start = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = build_opener(_Redirects).open(request, timeout=TIMEOUT)
    except ValueError as error:
        raise HTTPException(f"redirected to an address that is none ({error})") from error
    except HTTPError as error:
        error.close()
        if error.code != 416 or not start:
            raise
        part.unlink()  # longer than the file that it should become
        _download(url, part, given_up)
        return
    with response:
        if response.status != 206:
            start = 0
        length = response.headers["Content-Length"] or "0"
        if not re.fullmatch(r"[0-9]{1,18}", length):
            raise HTTPException(f"Content-Length must be a number of bytes, got {length[:40]!r}")
        missing, size = int(length), start
        if start + missing > LARGEST:
            raise HTTPException(f"the file has {start + missing:,} bytes, more than any wanted")
        with (
            part.open("ab" if start else "wb") as file,
            tqdm(
                desc=part.stem,
                total=start + missing or None,
                initial=start,
                unit="B",
                unit_scale=True,
                disable=None,  # no bar in a log file
            ) as bar,
        ):
            while (chunk := response.read1(1 << 16)) and not given_up.is_set():
                size += len(chunk)
                if size > LARGEST:
                    part.unlink()
                    raise HTTPException(f"more than {LARGEST:,} bytes came")
                file.write(chunk)
                file.flush()  # what has come once need not come again
                bar.update(len(chunk))
                missing -= len(chunk)
    if missing > 0:
        raise ConnectionError(f"the connection closed {missing:,} bytes too early")
