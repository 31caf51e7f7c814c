"""The real corpus is downloaded whole, or the file on the disk stays and the error names it."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pooch
import pytest

from common.errors import UserError
from translation import corpus
from translation.pairs import SMALL_PARALLEL_ENJA, Languages

FILES = {"train.ja": "猫がいる。\n".encode() * 50, "train.en": b"there is a cat .\n"}
Answer = Callable[[str], bytes]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer with ``FILES`` in place of the network; return what was asked for."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(corpus, "SHA256", hashes)
    return answer_with(FILES.__getitem__, monkeypatch)


def answer_with(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def download(url: str, file: str, _: object) -> None:
        names.append(url.removeprefix(f"{corpus.BASE_URL}/"))
        Path(file).write_bytes(answer(names[-1]))

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda timeout: download)
    return names


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_missing_arrives_and_nothing_else_is_asked_for(
    asked: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder, too"
    corpus.fetch(folder)
    assert contents(folder) == FILES
    (folder / "train.en").unlink()
    for _ in range(2):
        corpus.fetch(folder)
    assert asked == [*FILES, "train.en"]


def no_network(name: str) -> bytes:
    raise OSError(f"no route to {name}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(lambda name: b"please log in", "SHA256 hash .* does not match"), (no_network, "no route to")],
)
def test_an_answer_that_is_not_the_file_is_refused_and_the_file_on_the_disk_stays(
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    reason: str,
) -> None:
    (tmp_path / "train.ja").write_bytes(b"my own")
    answer_with(answer, monkeypatch)
    message = f"cannot download .*/train.ja into {tmp_path}: .*{reason}.*run again, .*--data-dir"
    with pytest.raises(UserError, match=message):
        corpus.fetch(tmp_path)
    assert contents(tmp_path) == {"train.ja": b"my own"}


def test_files_of_a_named_folder_are_checked_and_never_replaced(
    asked: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.ja").write_bytes(b"my own")
    for name in FILES:
        with pytest.raises(UserError, match=f"{name} must be a file with SHA-256 "):
            corpus.load_corpus(Languages(SMALL_PARALLEL_ENJA), data_dir=tmp_path)
        (tmp_path / "train.ja").write_bytes(FILES["train.ja"])
    assert (contents(tmp_path), asked) == ({"train.ja": FILES["train.ja"]}, [])
