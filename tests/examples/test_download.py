import gc
import hashlib
import signal
import socket
import subprocess
import sys
import threading
import time
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
    """Serve ``files`` from memory and remember who asked for what."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.ranges = True
        self.cut: int | None = None  # how many bytes of a body go out ...
        self.stall = threading.Event()  # ... before it ends, or once cleared, hangs
        self.stall.set()
        self.requests: list[tuple[str, str | None]] = []
        self.answer: Callable[[Handler], object] | None = None  # instead of a file

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/here"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/here/")
        wanted = self.headers["Range"]
        self.server.requests.append((name, wanted))
        if self.server.answer:
            with suppress(OSError):  # the client has gone
                self.server.answer(self)
            return None
        content = self.server.files.get(name)
        if content is None:
            return self.send_error(404)
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: self.server.cut])
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
    assert server.requests == [("train.en", None)]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.cut, server.ranges = 30_000, ranges
    with pytest.raises(UserError, match=r"train\.ja .* 50,000 bytes too early; run again"):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == {"train.ja.part": FILES["train.ja"][:30_000]}
    server.cut = None
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES
    assert server.requests[1] == ("train.ja", "bytes=30000-")


def test_a_killed_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = 1_000
    server.stall.clear()
    program = (
        "import sys; from pathlib import Path; from translation.download import fetch\n"
        f"fetch({SHA256!r}, Path(sys.argv[1]), base_url={server.url!r})"
    )
    examples = str(Path(download.__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=examples)
    part = tmp_path / "train.ja.part"
    while not (part.exists() and part.stat().st_size == 1_000):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    server.cut = None
    server.stall.set()
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES
    assert server.requests[1] == ("train.ja", "bytes=1000-")


def test_a_download_killed_before_its_rename_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "train.ja.part").write_bytes(FILES["train.ja"])
    fetch({"train.ja": SHA256["train.ja"]}, tmp_path, base_url="http://127.0.0.1:9")
    assert contents(tmp_path) == {"train.ja": FILES["train.ja"]}


def test_a_part_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "train.en.part").write_bytes(b"x" * 100_000)
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


def test_a_part_of_another_file_spoils_one_run_only(server: Server, tmp_path: Path) -> None:
    (tmp_path / "train.ja.part").write_bytes(b"<html>please log in</html>")
    with pytest.raises(UserError, match="SHA-256"):
        fetch(SHA256, tmp_path, base_url=server.url)
    fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == FILES


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
    with pytest.raises(UserError):
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
        "run again to resume, or name a folder that holds train.ja, train.en with "
        "--data-dir"
    )


def test_a_refused_connection_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UserError, match=r"Connection refused; run again .* --data-dir"):
        fetch(SHA256, tmp_path, base_url=f"http://127.0.0.1:{port}")


def test_a_silent_server_is_left_after_a_while(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.5)  # a busy machine sends ten bytes in it, too
    server.cut = 10
    server.stall.clear()
    with pytest.raises(UserError, match="timed out"):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == {"train.ja.part": FILES["train.ja"][:10]}


def respond(status: int = 200, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("file:///etc/passwd", "not allowed"),
        ("ftp://127.0.0.1/x", "redirected to what is no web page"),
        pytest.param(
            "http://[127.0.0.1/x", "redirected to an address that is none", marks=pytest.mark.slow
        ),
        ("http://127.0.0.1:port/x", "nonnumeric port: 'port'"),
        pytest.param("http://127.0.0.1:99999999/x", "", marks=pytest.mark.slow),
        pytest.param("http://\u00e9\u00e9..x/", "", marks=pytest.mark.slow),
        pytest.param("http:///x", "infinite loop", marks=pytest.mark.slow),
        ("/here/train.ja", "infinite loop"),
        pytest.param("", "infinite loop", marks=pytest.mark.slow),
    ],
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


@pytest.mark.parametrize("length", ["many", "-5", "1_000", "1.5", "٣", "9" * 5000, "", "5, 5"])
def test_an_invalid_length_is_refused_in_one_line(
    server: Server, tmp_path: Path, length: str
) -> None:
    def answer(handler: Handler) -> None:
        handler.wfile.write(f"HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n".encode())

    server.answer = answer
    message = "Content-Length must be a number" if length else "has SHA-256"
    with pytest.raises(UserError, match=message):
        fetch(SHA256, tmp_path, base_url=server.url)


@pytest.mark.parametrize("said", [True, False])
def test_a_body_without_end_is_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    def answer(handler: Handler) -> None:
        (respond(Content_Length=str(10**15)) if said else respond())(handler)
        while True:
            handler.wfile.write(bytes(1 << 16))

    monkeypatch.setattr(download, "LARGEST", 10**6)
    server.answer = answer
    reason = "the file has 1,000,000,000,000,000 bytes" if said else "more than 1,000,000 bytes"
    with pytest.raises(UserError, match=reason):
        fetch(SHA256, tmp_path, base_url=server.url)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
    ],
    ids=["status", "header", "body", "chunk"],
)
def test_a_server_that_is_slow_without_end_is_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    done = threading.Event()

    def answer(handler: Handler) -> None:
        handler.wfile.write(beginning)
        while not done.wait(0.02):
            handler.wfile.write(b"x")

    monkeypatch.setattr(download, "LONGEST", 0.2)
    server.answer = answer
    with pytest.raises(UserError, match=r"it took longer than 0\.2 seconds; run again to resume"):
        fetch(SHA256, tmp_path, base_url=server.url)
    left = contents(tmp_path)
    time.sleep(0.1)
    assert contents(tmp_path) == left  # the thread that still waits writes no more
    done.set()


def test_a_link_is_not_written_through(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (folder := tmp_path / "folder").mkdir()
    (folder / "train.ja.part").symlink_to(tmp_path / "mine")
    fetch(SHA256, folder, base_url=server.url)
    assert contents(folder) == FILES
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot download .*file/folder"):
        fetch(SHA256, tmp_path / "file" / "folder", base_url=server.url)


def test_verify_accepts_the_right_files_and_writes_nothing(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    verify(SHA256, tmp_path)
    assert contents(tmp_path) == FILES


def test_verify_names_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "train.ja").mkdir()
    with pytest.raises(UserError, match=r"train\.ja is missing; .* must hold train\.ja, train\.en"):
        verify(SHA256, tmp_path)


def test_verify_names_a_wrong_file_and_both_checksums(tmp_path: Path) -> None:
    (tmp_path / "train.ja").write_bytes(FILES["train.en"])
    wrong, right = SHA256["train.en"], SHA256["train.ja"]
    with pytest.raises(UserError, match=rf"train\.ja has SHA-256 {wrong}, expected {right}"):
        verify(SHA256, tmp_path)
