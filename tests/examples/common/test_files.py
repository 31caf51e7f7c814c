"""Files are written whole or not at all, and a run's folder belongs to one training at a time."""

import errno
import io
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from tests.examples.common.test_checkpoint import snapshot

from classification.data import Data
from classification.reviews import Review
from common.errors import UserError
from common.files import FolderLock, write_atomically
from text.source import Text
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.figure import PlainFigure, save_png
from translation.pairs import Corpus, Languages, Pair


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, path = tmp_path / "victim", tmp_path / "config.json"
    victim.write_text("mine")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".guessed.part").symlink_to(victim)
    with pytest.raises(OSError, match=f"File exists: '{path}'"):
        write_atomically(path, b"{}")
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not ours to remove
    path.symlink_to(victim)
    with pytest.raises(OSError, match=f"it is a symbolic link.*: '{path}'"):
        write_atomically(path, b"{}")
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_where_the_disk_refuses_the_file_is_named_and_all_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "config.json"
    write_atomically(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_atomically(path, b"new")
    assert snapshot(tmp_path) == {"config.json": b"old"}


def write_words(path: Path) -> None:
    write_atomically(path, b"words")


def write_page(path: Path) -> None:
    Explorer([AttentionMaps("Attention", torch.ones(1, 1, 1, 1), ["word"])]).save(path)


def write_picture(path: Path) -> None:
    save_png(PlainFigure(1.0, 1.0), path, dpi=10)


@pytest.mark.parametrize("write", [write_words, write_page, write_picture])
def test_a_device_or_a_pipe_is_written_to_and_a_link_refused(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    file, fifo, link = (tmp_path / name for name in ("file", "fifo", "link"))
    write(file)
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = Thread(target=write, args=(fifo,))  # a page is larger than what a pipe holds
    writer.start()
    read, is_written = b"", False
    while not is_written:
        is_written = not writer.is_alive()
        with suppress(BlockingIOError):
            while some := os.read(reader, 1 << 20):
                read += some
    os.close(reader)
    assert fifo.is_fifo()
    assert read == file.read_bytes()
    link.symlink_to(file)
    for path, rule in ((link, "it is a symbolic link"), (tmp_path, "it is a folder")):
        with pytest.raises(OSError, match=rule):
            write(path)
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "file", "link"]


def test_a_folder_is_locked_by_one_at_a_time_and_is_then_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    with FolderLock(folder):
        with pytest.raises(UserError, match=f"another training is using {folder}"):
            FolderLock(folder).__enter__()
        assert snapshot(tmp_path) == {"runs": None, "runs/a": None, "runs/a/.lock": b""}
    assert snapshot(tmp_path) == {"runs": None}
    with FolderLock(folder):  # free again
        (folder / "a file").touch()
    assert snapshot(tmp_path) == {"runs": None, "runs/a": None, "runs/a/a file": b""}


def test_a_planted_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=f"'{tmp_path}/.lock'"):
        FolderLock(tmp_path).__enter__()
    assert not (tmp_path / "victim").exists()


def fail(folder: Path, work: Callable[[FolderLock], object]) -> None:
    """Do something in a locked folder, and be interrupted."""
    with FolderLock(folder) as lock:
        work(lock)
        raise KeyboardInterrupt


def test_what_was_written_is_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def meet_others(lock: FolderLock) -> None:
        lock.write_new(folder / "ours", b"ours")
        (folder / "added").mkdir()

    with pytest.raises(KeyboardInterrupt):
        fail(folder, meet_others)
    assert snapshot(folder) == {"added": None}

    def commit(lock: FolderLock) -> None:
        lock.write_new(folder / "kept", b"kept")
        lock.commit()

    with pytest.raises(KeyboardInterrupt):
        fail(folder, commit)
    assert snapshot(folder) == {"added": None, "kept": b"kept"}


def test_a_file_that_exists_is_not_written_over_unless_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "source.model"
    path.write_bytes(b"theirs")
    with pytest.raises(UserError, match=f"{path} exists already"):
        fail(tmp_path, lambda lock: lock.write_new(path, b"ours"))
    with pytest.raises(KeyboardInterrupt):  # that of a training that was killed while it began
        fail(tmp_path, lambda lock: lock.write_new(path, b"theirs"))
    assert snapshot(tmp_path) == {"source.model": b"theirs"}


@pytest.mark.parametrize("call", ["open", "replace"])
def test_an_interruption_right_after_any_step_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    step: Callable[..., object] = getattr(Path, call)

    def interrupted(*arguments: object, **options: object) -> None:
        done = step(*arguments, **options)
        if isinstance(done, io.IOBase):
            done.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, call, interrupted)
    folder = tmp_path / "runs" / "run"
    with pytest.raises(KeyboardInterrupt), FolderLock(folder) as lock:
        lock.write_new(folder / "config.json", b"{}")
    monkeypatch.undo()
    assert snapshot(tmp_path) == {"runs": None}


@pytest.mark.parametrize(
    ("make", "row"),
    [(partial(Corpus, Languages()), lambda x: Pair(x, x, x)), (Data, lambda x: Review(x, x)),
     (Text, str)],
    ids=["pairs", "labelled texts", "lines"],
)  # fmt: skip
def test_data_have_another_fingerprint_if_a_row_changes_or_moves_to_another_split(
    make: Callable[..., Any], row: Callable[[str], Any]
) -> None:
    splits = ("r r r", "x r r", "r x r", "r r x", "rr  r", " rr r", "r  rr")
    data = [make(*[[*map(row, split)] for split in each.split(" ")]) for each in splits]
    assert len({each.fingerprint for each in data}) == len(splits)
