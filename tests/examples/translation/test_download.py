"""The corpus is downloaded whole, or the file on the disk stays and the error names the address."""

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from common.errors import UserError
from translation import corpus
from translation.pairs import SMALL_PARALLEL_ENJA, Languages

FILES = {"train.ja": "猫がいる。\n".encode() * 5000, "train.en": b"there is a cat .\n" * 100}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.name = self.path.removeprefix("/here/")
        self.server.requests.append(self.name)
        with suppress(OSError):  # the client has gone
            self.server.answer(self)

    def send(self, content: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def send_file(self) -> None:
        self.send(FILES[self.name], len(FILES[self.name]))

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Answer with ``FILES``, or otherwise, and remember what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Callable[[Handler], object] = Handler.send_file
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/here"
        self.has_ended = threading.Event()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    pooch.get_logger().setLevel(logging.WARNING)
    monkeypatch.setattr(corpus, "SHA256", SHA256)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.has_ended.set()
        server.shutdown()
        thread.join()


def fetch(folder: Path, server: Server, *, timeout: float = 30.0) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BASE_URL", server.url)
        patch.setattr(corpus, "TIMEOUT", timeout)
        corpus.fetch(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_missing_arrives_and_nothing_else_is_asked_for(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder, too"
    fetch(folder, server)
    assert contents(folder) == FILES
    (folder / "train.en").unlink()
    for _ in range(2):
        fetch(folder, server)
    assert server.requests == [*FILES, "train.en"]


def send_ten_bytes_and_hang(handler: Handler) -> None:
    handler.send(bytes(10), 80000)
    handler.server.has_ended.wait()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda handler: handler.send(b"please log in", 13), r"SHA256 hash .* does not match"),
        (lambda handler: handler.send_error(404), "404 Client Error: Not Found"),
        (lambda handler: handler.send(bytes(10), 80000), "79990 more expected"),
        (send_ten_bytes_and_hang, "timed out"),
    ],
)
def test_an_answer_that_is_not_the_file_is_refused_and_the_file_on_the_disk_stays(
    server: Server,
    tmp_path: Path,
    answer: Callable[[Handler], object],
    reason: str,
) -> None:
    (tmp_path / "train.ja").write_bytes(b"my own")
    server.answer = answer
    where = re.escape(f"cannot download {server.url}/train.ja into {tmp_path}: ")
    with pytest.raises(UserError, match=where + f".*{reason}.*--data-dir"):
        fetch(tmp_path, server, timeout=0.5)  # a busy machine sends ten bytes in it, too
    assert contents(tmp_path) == {"train.ja": b"my own"}
    server.answer = Handler.send_file
    fetch(tmp_path, server)
    assert contents(tmp_path) == FILES


def test_a_server_or_a_folder_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    server.url = "http://127.0.0.1:1"
    with pytest.raises(UserError, match=r"Connection refused.*; run again"):
        fetch(tmp_path, server)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot download .*file/folder"):
        fetch(tmp_path / "file" / "folder", server)


def test_files_of_a_named_folder_are_checked_and_never_replaced(
    server: Server, tmp_path: Path
) -> None:
    languages = Languages(SMALL_PARALLEL_ENJA)
    (tmp_path / "train.ja").write_bytes(b"my own")
    for name in ("train.ja", "train.en"):
        with pytest.raises(UserError, match=rf"{name} must be a file with SHA-256 {SHA256[name]}"):
            corpus.load_corpus(languages, data_dir=tmp_path)
        (tmp_path / "train.ja").write_bytes(FILES["train.ja"])
    assert (contents(tmp_path), server.requests) == ({"train.ja": FILES["train.ja"]}, [])
