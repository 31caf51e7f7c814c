import gc
import hashlib
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


class Server(ThreadingHTTPServer):
    """Serve ``files`` from memory and remember what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.cut: int | None = None  # how many bytes of a body go out ...
        self.stall = threading.Event()  # ... before it ends, or once cleared, hangs
        self.stall.set()
        self.requests: list[str] = []
        self.answer: Callable[[Handler], object] | None = None  # instead of a file

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/here"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/here/")
        self.server.requests.append(name)
        if self.server.answer:
            with suppress(OSError):  # the client has gone
                self.server.answer(self)
            return None
        content = self.server.files.get(name)
        if content is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.cut])
        self.wfile.flush()
        self.server.stall.wait()
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.stall.set()
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


def test_a_wrong_file_is_refused_with_both_checksums(server: Server, tmp_path: Path) -> None:
    page = b"<html>please log in</html>"
    server.files["train.ja"] = page
    with pytest.raises(UserError) as error:
        fetch(SHA256, tmp_path, base_url=server.url)
    assert str(error.value) == (
        f"{server.url}/train.ja has SHA-256 {hashlib.sha256(page).hexdigest()}, "
        f"expected {SHA256['train.ja']}; it was not kept as {tmp_path / 'train.ja'}"
    )
    assert contents(tmp_path) == {}


def test_a_wrong_file_on_disk_stays_until_the_right_one_is_here(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "train.ja").write_bytes(b"my own")
    server.cut = 10
    with pytest.raises(UserError, match=r"train\.ja .* 79,990 bytes are missing; run again"):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert (tmp_path / "train.ja").read_bytes() == b"my own"
    server.cut = None
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


def test_a_missing_page_says_what_to_do(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(UserError) as error:
        fetch(SHA256, tmp_path, base_url=server.url)
    assert str(error.value) == (
        f"cannot download {server.url}/train.ja into {tmp_path}: HTTP Error 404: Not Found; "
        "run again, or name a folder that holds train.ja, train.en with "
        "--data-dir"
    )


def test_a_silent_server_is_left_after_a_while(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.5)  # a busy machine sends ten bytes in it, too
    server.cut = 10
    server.stall.clear()
    with pytest.raises(UserError, match="timed out"):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == {}


def respond(status: int = 200, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


@pytest.mark.parametrize(
    ("location", "reason"), [("file:///etc/passwd", "not allowed"), ("train.ja", "infinite loop")]
)
def test_an_invalid_redirect_is_refused_in_one_line(
    server: Server, tmp_path: Path, location: str, reason: str
) -> None:
    server.answer = respond(302, Location=location)
    with pytest.raises(UserError, match=rf"cannot download .*{reason}"):
        fetch(SHA256, tmp_path, base_url=server.url)
    gc.collect()  # a connection that was not closed would be an error here
    assert contents(tmp_path) == {}


def test_a_redirect_to_another_page_is_followed(server: Server, tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        server.answer = None
        respond(302, Location=f"{server.url}/train.ja")(handler)

    server.answer = answer
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


def test_a_body_without_end_is_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(handler: Handler) -> None:
        respond()(handler)
        while True:
            handler.wfile.write(bytes(1 << 16))

    monkeypatch.setattr(download, "LARGEST", 10**6)
    server.answer = answer
    with pytest.raises(UserError, match="has SHA-256"):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == {}


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot download .*file/folder"):
        fetch(SHA256, tmp_path / "file" / "folder", base_url=server.url)


def test_verify_names_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "train.ja").mkdir()
    with pytest.raises(UserError, match=r"train\.ja is missing; .* must hold train\.ja, train\.en"):
        verify(SHA256, tmp_path)
