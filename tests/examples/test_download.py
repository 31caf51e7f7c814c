import gc
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from common.errors import UserError
from translation import download
from translation.download import fetch, verify

FILES = {"train.ja": "猫がいる。\n".encode() * 5000, "train.en": b"there is a cat .\n" * 100}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.name = self.path.removeprefix("/here/")
        self.server.requests.append(self.name)
        with suppress(OSError):  # the client has gone
            self.server.answer(self)

    def send(self, content: bytes = b"", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def send_file(self) -> None:
        content = FILES[self.name]
        self.send(content, Content_Length=str(len(content)))

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
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.has_ended.set()
        server.shutdown()
        thread.join()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_arrives_is_what_was_sent(server: Server, tmp_path: Path) -> None:
    fetch(SHA256, tmp_path / "new" / "folder, too", base_url=server.url)
    assert contents(tmp_path / "new" / "folder, too") == FILES


def test_files_that_are_there_are_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "train.ja").write_bytes(FILES["train.ja"])
    fetch(SHA256, tmp_path, base_url=server.url)
    fetch(SHA256, tmp_path, base_url=server.url)
    assert server.requests == ["train.en"]


PAGE = b"<html>please log in</html>"
CANNOT = "cannot download {url}/train.ja into {folder}: "


def send_ten_bytes(handler: Handler) -> None:
    handler.send(bytes(10), Content_Length="80000")


def send_ten_bytes_and_hang(handler: Handler) -> None:
    send_ten_bytes(handler)
    handler.server.has_ended.wait()


def send_without_end(handler: Handler) -> None:
    handler.send()
    while True:
        handler.wfile.write(bytes(1 << 16))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda handler: handler.send(PAGE),
            f"{{url}}/train.ja has SHA-256 {hashlib.sha256(PAGE).hexdigest()}, "
            f"expected {SHA256['train.ja']}; it was not kept as {{folder}}/train.ja",
        ),
        (
            lambda handler: handler.send_error(404),
            CANNOT + "HTTP Error 404: Not Found; run again, or name a folder that holds "
            "train.ja, train.en with --data-dir",
        ),
        (send_ten_bytes, CANNOT + "79,990 bytes are missing; run again"),
        (send_ten_bytes_and_hang, CANNOT + "timed out"),
        (send_without_end, "{url}/train.ja has SHA-256 "),
        (lambda handler: handler.send(status=302, Location="file:///etc/passwd"), "not allowed"),
        (lambda handler: handler.send(status=302, Location="train.ja"), "infinite loop"),
    ],
)
def test_an_answer_that_is_not_the_file_is_refused_and_the_file_on_the_disk_stays(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[Handler], object],
    message: str,
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.5)  # a busy machine sends ten bytes in it, too
    monkeypatch.setattr(download, "LARGEST", 10**6)
    (tmp_path / "train.ja").write_bytes(b"my own")
    server.answer = answer
    expected = re.escape(message.format(url=server.url, folder=tmp_path))
    with pytest.raises(UserError, match=expected):
        fetch(SHA256, tmp_path, base_url=server.url)
    gc.collect()  # a connection that was not closed would be an error here
    assert contents(tmp_path) == {"train.ja": b"my own"}
    server.answer = Handler.send_file
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


def test_a_redirect_to_another_page_is_followed(server: Server, tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        server.answer = Handler.send_file
        handler.send(status=302, Location=f"{server.url}/train.ja")

    server.answer = answer
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r": \[Errno \d+\] Connection refused; run again"):
        fetch(SHA256, tmp_path, base_url="http://127.0.0.1:1")


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot download .*file/folder"):
        fetch(SHA256, tmp_path / "file" / "folder", base_url=server.url)


def test_verify_names_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "train.ja").mkdir()
    with pytest.raises(UserError, match=r"train\.ja is missing; .* must hold train\.ja, train\.en"):
        verify(SHA256, tmp_path)
