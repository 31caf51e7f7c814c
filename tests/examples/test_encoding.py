"""A corpus in files is encoded once, whole and in order, and never taken for another one."""

import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples.tiny_run import SETTINGS

from common import token_files
from common.errors import UserError
from common.files import FolderLock, write_folder
from common.parallel import map_in_order
from common.run import Run
from common.text_files import read_lines
from translation import batches, corpus, pairs
from translation.batches import Batches, collate
from translation.corpus import Corpus, load_corpus
from translation.examples import Example, Examples, encode_pairs
from translation.pairs import Languages, Pair
from translation.presets import FILES, Config
from translation.run import corpus_of, encode_files, load_examples

LINES = 97
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    """Let even a small corpus have many parts, which one process reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "PART", 8)
        patch.setattr(pairs, "cpu_count", lambda: 1)
        yield


def write_lines(folder: Path, lines: int = LINES, name: str = "n") -> list[Path]:
    """Write aligned files whose lines have many lengths, and each a name and a number."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdef", k=1 + i % 4)) for i in range(40)]
    sides = [folder / "source.txt", folder / "target.txt"]
    for path in sides:
        sentences = [rng.choices(words, k=rng.randrange(12)) for _ in range(lines)]
        text = [" ".join([f"{name}{i}", *sentence]) for i, sentence in enumerate(sentences)]
        path.write_text("\n".join(text), encoding="utf-8")
    return sides


def prepare(folder: Path) -> tuple[Run[Config], Config]:
    """Write files, train tokenizers and return a run of them that is not encoded yet."""
    source, target = write_lines(folder)
    config = replace(SETTINGS, corpus="files", source_language="xx", target_language="yy")
    config = replace(config, source_file=str(source), target_file=str(target))
    run = Run(folder / "run", Config)
    texts = {path.stem: read_lines(path) for path in (source, target)}
    with FolderLock(run.folder) as lock:
        hashes = run.train_tokenizers(texts, 60, lock)
        lock.commit()
    return run, replace(config, tokenizers=hashes)


def encode(run: Run[Config], config: Config) -> Config:
    """Encode the files of a run, and return its configuration with their fingerprint."""
    fingerprint = encode_files(run, config, corpus_of(run, config), workers=1)
    return replace(config, data_hash=fingerprint)


@pytest.fixture
def encoded(tmp_path: Path) -> tuple[Run[Config], Config]:
    """A run whose files are encoded, and its configuration."""
    run, config = prepare(tmp_path)
    return run, encode(run, config)


def opened(run: Run[Config], config: Config) -> tuple[Corpus, Examples]:
    """Return what a training that starts finds."""
    found = corpus_of(run, config, write=write_folder)
    source, target = run.load_tokenizers(config)
    return found, load_examples(run, config, found, source, target)


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ------------------------------------------------------------------ writing


def test_the_files_hold_what_encoding_in_memory_gives_and_so_does_the_fingerprint(
    encoded: tuple[Run[Config], Config],
) -> None:
    run, config = encoded
    found, examples = opened(run, config)
    whole = load_corpus(config.languages, files=config.files)
    source, target = run.load_tokenizers(config)
    assert [*whole.train] == [*found.train]
    assert len(found.train) == len([*found.train]) < LINES
    for name in ("validation", "test", "held_out"):
        assert getattr(found, name) == getattr(whole, name)
    assert examples == encode_pairs(whole.train, source, target, max_length=config.max_length)
    assert config.data_hash == whole.fingerprint == found.fingerprint


def test_two_processes_give_the_results_of_one_in_order() -> None:
    parts = [[i] * (i % 5) for i in range(20)]
    assert [*map_in_order(len, parts, workers=2)] == [*map(len, parts)]


def test_a_second_start_reads_and_writes_nothing(
    encoded: tuple[Run[Config], Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = encoded

    def written() -> dict[str, tuple[int, int]]:
        files = [*(run.folder / "corpus").iterdir()]
        return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}

    before = written()
    monkeypatch.setattr(pairs, "read_aligned", None)
    assert len(opened(run, config)[1]) > 50
    assert written() == before


def test_interrupted_writing_leaves_nothing_and_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = prepare(tmp_path)
    folder, before = run.folder / "corpus", dict[str, bytes]()
    for _ in range(2):  # without a folder, and with one

        def fail(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("common.token_files.TokenWriter.finish", fail)
            with pytest.raises(KeyboardInterrupt):
                encode(run, config)
        assert (contents(folder) if folder.exists() else {}) == before
        assert not [*run.folder.glob(".*")]
        encode(run, config)
        before = contents(folder)


KILLED = """
import os, signal, sys
from pathlib import Path
from common.files import write_folder
with write_folder(Path(sys.argv[1])) as folder:
    (folder / "tokens.bin").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_has_left_is_never_read_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "examples")}
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len([*tmp_path.iterdir()]) == 1
    with write_folder(path) as folder:
        (folder / "tokens.bin").write_bytes(b"whole")
    assert [file.name for file in tmp_path.iterdir()] == ["corpus"]


def test_a_symbolic_link_where_the_folder_would_be_written_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / ".corpus.part").symlink_to(tmp_path / "other")
    with pytest.raises(UserError, match="cannot write"), write_folder(tmp_path / "corpus"):
        pass
    assert (tmp_path / "other").exists()


# ------------------------------------------------------------------ stale and damaged files


@pytest.mark.parametrize("name", [name for names in FILES.values() for name in names])
def test_a_changed_file_is_never_taken_for_the_old_one(tmp_path: Path, name: str) -> None:
    run, config = prepare(tmp_path)
    others: dict[str, Any] = {}
    for split in ("valid", "test"):
        (tmp_path / split).mkdir()
        for path in write_lines(tmp_path / split, 5, split):
            others[f"{split}_{path.stem}"] = str(path)
    config = encode(run, replace(config, **others))
    assert opened(run, config)[0].held_out == ()
    path = Path(getattr(config, name))
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text("m" + path.read_text("utf-8")[1:], encoding="utf-8")
    os.utime(path, ns=times)  # the same size, and the same time of change
    for write in (None, write_folder):
        with pytest.raises(UserError, match="has changed since the run began"):
            corpus_of(run, config, write=write)


def test_files_that_were_only_copied_are_encoded_again_and_accepted(
    encoded: tuple[Run[Config], Config], caplog: pytest.LogCaptureFixture
) -> None:
    run, config = encoded
    before = opened(run, config)[1]
    path = Path(str(config.source_file))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    caplog.set_level(logging.INFO)
    assert opened(run, config)[1] == before
    assert "was made from other files or tokenizers: encoded the corpus again" in caplog.text


def test_a_missing_file_is_named(encoded: tuple[Run[Config], Config]) -> None:
    run, config = encoded
    Path(str(config.source_file)).unlink()
    with pytest.raises(UserError, match=r"cannot read .*source\.txt: No such file"):
        corpus_of(run, config)


def test_tokens_of_another_length_are_not_used(encoded: tuple[Run[Config], Config]) -> None:
    run, config = encoded
    shorter, longer = (opened(run, each)[1] for each in (replace(config, max_length=9), config))
    assert 1 < shorter.lengths.max() < 9 < longer.lengths.max()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *(("tokens.bin", -1), ("offsets.bin", -1), ("checksums.bin", 0), ("manifest.json", 0)),
        *(("splits.json", None), ("tokens.bin", None)),
    ],
)
def test_an_incomplete_folder_is_written_again(
    encoded: tuple[Run[Config], Config], name: str, kept: int | None
) -> None:
    folder = encoded[0].folder / "corpus"
    whole = contents(folder)
    (folder / name).unlink()
    if kept is not None:
        (folder / name).write_bytes(whole[name][:kept])
    opened(*encoded)
    assert contents(folder) == whole


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "checksums.bin", "splits.json"])
def test_every_flipped_bit_is_found(encoded: tuple[Run[Config], Config], name: str) -> None:
    path = encoded[0].folder / "corpus" / name
    whole = path.read_bytes()
    for place in (0, 4 * len(whole) + 3, 8 * len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        _, examples = opened(*encoded)
        if name in ("checksums.bin", "splits.json"):  # read at every start
            assert path.read_bytes() == whole
            continue
        with pytest.raises(UserError, match=f"{name} is damaged: chunk 0 fails its checksum"):
            Batches(examples, batch_tokens=30, seed=0, epoch=0)[0]


@pytest.mark.parametrize("sequences", [4, 5])
def test_each_chunk_protects_all_offsets_that_it_uses(
    sequences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "CHUNK", 2)
    with token_files.TokenWriter(tmp_path, token_files.token_type(9)) as writer:
        writer.append(np.arange(2 * sequences, dtype="<u2"), np.full(sequences, 2))
        writer.finish({})
    path = tmp_path / "offsets.bin"
    whole = path.read_bytes()
    for place in range(sequences + 1):
        damaged = bytearray(whole)
        damaged[8 * place] ^= 1
        path.write_bytes(damaged)
        opened_files = token_files.TokenFiles(tmp_path, {})
        for chunk in range(-(-sequences // 2)):
            is_used = 2 * chunk <= place <= min(2 * chunk + 2, sequences)
            error = pytest.raises(UserError, match=f"{path} is damaged: chunk {chunk}")
            with error if is_used else nullcontext():
                opened_files.verify([chunk], offsets_only=True)
        path.write_bytes(whole)


# ------------------------------------------------------------------ the order of blocks

sentences = st.lists(st.integers(4, 9), max_size=9)
examples_of = st.lists(st.builds(Example, sentences, sentences), min_size=1, max_size=50)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Let a block be six pairs: three chunks of two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "CHUNK_PAIRS", 2)
        patch.setattr(batches, "BLOCK_CHUNKS", 3)
        yield


@settings(max_examples=40)
@given(examples_of, st.integers(1, 60), st.integers(0, 3))
def test_an_epoch_of_many_blocks_has_every_pair_once_within_the_bound(
    examples: list[Example], budget: int, epoch: int
) -> None:
    with small_blocks():
        made = Batches(examples, batch_tokens=budget, seed=0, epoch=epoch)
        assert len(made) == len([*made])
        assert Counter(map(str, examples)) == Counter(str(each) for batch in made for each in batch)
        for batch in made:
            collated = collate(batch)
            assert (
                max(collated.source.numel(), collated.target.numel()) <= budget or len(batch) == 1
            )


def test_any_part_of_an_epoch_of_many_blocks_is_the_same_wherever_one_begins() -> None:
    rng = random.Random(0)
    examples = [Example([rng.randrange(4, 9)] * rng.randrange(9), [i + 4]) for i in range(100)]
    with small_blocks():
        whole = [*Batches(examples, batch_tokens=12, seed=1, epoch=2)]
        for first in range(0, len(whole), 7):
            made = Batches(examples, batch_tokens=12, seed=1, epoch=2)
            assert made[first : first + 4] == whole[first : first + 4]
        other = Batches(examples, batch_tokens=12, seed=1, epoch=3)
        assert [*other] != whole
        read = [each.target[0] for batch in whole[: len(whole) // 4] for each in batch]
        assert min(read) < 30 < 75 < max(read)  # from the whole corpus


def test_the_batches_of_the_disk_are_those_of_memory(encoded: tuple[Run[Config], Config]) -> None:
    _, examples = opened(*encoded)
    on_disk = Examples(examples.tokens, examples.bounds)
    with small_blocks():
        for epoch in (0, 1):
            found, expected = (
                [*Batches(each, batch_tokens=40, seed=0, epoch=epoch)]
                for each in (on_disk, [*examples])
            )
            assert found == expected


# ------------------------------------------------------------------ splits


@given(st.lists(st.integers(0, 60), min_size=3, max_size=90))
def test_the_smallest_hashes_are_found_part_by_part(numbers: list[int]) -> None:
    everything = [Pair(str(number), str(i), "") for i, number in enumerate(numbers)]
    found: list[Pair] = []
    for first in range(0, len(everything), 7):
        found = corpus.smallest_hashes(found + everything[first : first + 7], 10)
    hashes = {pair.source: corpus.hash_of(pair.source) for pair in everything}
    smallest = set(sorted(hashes, key=hashes.__getitem__)[:10])
    assert found == [pair for pair in everything if pair.source in smallest]


def test_tokenizers_of_a_large_corpus_are_trained_on_lines_from_all_of_it(tmp_path: Path) -> None:
    run, config = prepare(tmp_path)
    found = corpus_of(run, config)
    whole = [*found.train]
    assert found.sample(LINES) == whole
    few = found.sample(10)
    assert few == whole[:: -(-len(whole) // 10)]
    assert len(few) <= 10


def test_a_line_that_is_not_utf8_is_named_wherever_it_is(tmp_path: Path) -> None:
    source, target = write_lines(tmp_path)
    lines = target.read_bytes().split(b"\n")
    lines[52] = "猫".encode("shift-jis")
    target.write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match=r"target\.txt:53 is not UTF-8: byte 0x94 at position 0"):
        load_corpus(Languages("files", "xx", "yy"), files={"train": (source, target)})


ORPHANS = """
import sys, time
from common.parallel import map_in_order
if __name__ == "__main__":
    for _ in map_in_order(time.sleep, [0.01, 100.0, 100.0, 100.0], workers=2):
        print("begun", flush=True)
"""


@pytest.mark.slow
def test_the_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "examples")}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        time.sleep(0.5)
        children: list[int] = []
        while len(children) < 3:  # two workers, and the tracker of resources
            text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii")
            children = [int(each) for each in text.split()]
        assert process.stdout is not None
        process.kill()
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{each}/cmdline").exists() for each in children):
            assert time.monotonic() < deadline
            time.sleep(0.1)
