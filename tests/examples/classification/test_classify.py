"""The classifier: a task that counts cannot solve, and the program around it."""

import io
import json
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import pytest
from tests.examples.common.test_checkpoint import stored
from tests.examples.translation.test_translate import one_error_line

import classify
from classification import commands as classify_commands
from classification import reviews as reviews_module
from classification.data import load_data, read_reviews
from classification.learning import ClassifierConfig
from classification.reviews import Review, family, toy_reviews
from common.checkpoint import latest_checkpoint
from common.run import Run
from common.training import Training

SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "32"]
TINY = [*SIZES, "--steps", "8", "--batch-size", "8", "--vocabulary", "60"]
NOUNS = "cat dog bird fish horse cow".split()  # noqa: SIM905


def order_matters(count: int = 12) -> list[Review]:
    """Texts whose label is their first word of two: every bag has two labels."""
    pairs = [(a, b) for a in NOUNS for b in NOUNS if a != b]
    return [Review(f"{a} {b}", "before" if a < b else "after") for a, b in pairs[:count]]


def write_reviews(folder: Path) -> list[str]:
    """Write two files of labelled texts; return the options that name them."""
    options, reviews = [], order_matters(30)
    for name, split in (("train", reviews[:24]), ("test", reviews[24:])):
        text = "".join(f"{review.label}\t{review.text}\n" for review in split)
        (folder / name).write_text(text, encoding="utf-8")
        options += [f"--{name}-file", str(folder / name)]
    return options


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of labelled texts, in a folder with a comma and a space in its name."""
    folder = tmp_path / "my, files"
    folder.mkdir()
    return write_reviews(folder)


def test_the_reviews_of_a_family_have_one_bag_and_different_labels() -> None:
    rng = Random(0)
    for _ in range(300):
        members = family(rng)
        assert len({tuple(sorted(review.text.split())) for review in members}) == 1
        assert len({review.label for review in members}) == len(members) in (2, 3)
        assert len({review.text for review in members}) == len(members)


def test_no_bag_of_words_is_in_two_splits_and_none_is_in_one_twice() -> None:
    splits = toy_reviews()
    seen: set[tuple[str, ...]] = set()
    for reviews in splits.values():
        bags = Counter(tuple(sorted(review.text.split())) for review in reviews)
        assert set(bags.values()) == {2, 3}
        assert not seen & bags.keys()
        seen |= bags.keys()
    assert {review.label for review in splits["test"]} == {"negative", "neutral", "positive"}
    assert toy_reviews() == splits
    assert toy_reviews(seed=1) != splits


def test_a_family_that_is_generated_again_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    families = ([Review(f"{number // 2} {word}", word) for word in "ab"] for number in count())
    monkeypatch.setattr(reviews_module, "SIZES", {"train": 20, "test": 10})
    monkeypatch.setattr(reviews_module, "family", lambda rng: next(families))
    texts = [review.text for split in toy_reviews().values() for review in split]
    assert len(texts) == len(set(texts)) == 2 * 30


def test_train_evaluate_and_classify_in_one_folder(
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = ["--run", str(tmp_path / "runs" / "first, try")]

    def output(*command: str) -> str:
        assert classify.main([*command, *run]) == 0
        return capsys.readouterr().out

    trained = output("train", *files, *TINY)
    assert trained.startswith(
        "22 training texts, 2 validation texts (held out from the training file), 6 test texts, "
    )
    assert output("evaluate") in trained  # the same figures
    lines = output("classify", "cat dog", "", "dog cat").split("\n")
    assert lines[1] == lines[3] == ""
    label, chance = lines[0].split("\t")
    assert label in ("after", "before")
    assert 0.5 <= float(chance) <= 1.0
    text = "\ufeffcat dog\r\n\r\ndog\u2028cat".encode()
    (tmp_path / "in.txt").write_bytes(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    of_file = output("classify", "--file", str(tmp_path / "in.txt"))
    assert output("classify") == of_file
    assert of_file.split("\n")[:2] == lines[:2]
    assert of_file.count("\n") == 3


def results(folder: Path) -> list[object]:
    """Return what a training has left, without clocks."""
    found: list[object] = []
    run = Run(folder, ClassifierConfig)
    for saved in (run.checkpoints, run.best):
        checkpoint = latest_checkpoint(saved)
        assert checkpoint is not None
        found.append(stored(checkpoint.tensors))
    clocks = {"minutes": 0.0, "texts_per_second": 0.0}
    found.append([json.loads(row) | clocks for row in run.metrics.read_text("utf-8").splitlines()])
    return found


class KilledError(Exception):
    """The process is gone."""


def test_a_training_killed_at_every_save_ends_with_the_bits_of_one_left_alone(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify_commands, "REPORT_STEPS", 4)
    plan = [*files, *TINY, "--dropout", "0.5"]
    assert classify.main(["train", "--run", str(tmp_path / "whole"), *plan]) == 0
    save, killed = Training._save, set()

    def die_once(training: Training) -> None:
        place = training.run.folder, training.progress.step
        if place not in killed:  # the last row is written, the checkpoint is not
            killed.add(place)
            raise KilledError
        save(training)

    # With the plan: what fails before its first checkpoint leaves nothing that could tell it.
    command = ["train", "--run", str(tmp_path / "killed"), *plan, "--resume"]
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_save", die_once)
        for _ in range(3):
            with pytest.raises(KilledError):
                classify.main(command)
        assert classify.main(command) == 0
    expected = results(tmp_path / "whole")
    assert results(tmp_path / "killed") == expected
    assert classify.main(["train", "--run", str(tmp_path / "other"), *plan, "--seed", "1"]) == 0
    assert results(tmp_path / "other")[-1] != expected[-1]  # the metrics


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        (1, b"", "holds no text"),
        (1, b"\xef\xbb\xbf", "holds no text"),
        (1, b"good\tfine\nbad dull\n", ":2 has no tab; a line must be label, tab, text"),
        (1, b"good\tfine\n\x8c\xa2\tx\n", ":2 is not UTF-8"),
        (1, b"good\tfi\0ne\n", ":1 holds a NUL byte"),
        (1, b"good\tfine\ngood\tbest\n", "must hold texts of at least two labels"),
        (3, b"never\tcat cow\n", "the label 'never' of the test texts is on no training text"),
    ],
)
def test_files_that_nobody_could_learn_from_are_refused(
    place: int,
    content: bytes,
    message: str,
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(files[place]).write_bytes(content)
    assert classify.main(["train", "--run", str(tmp_path / "run"), *files]) == 2
    error = one_error_line(capsys)
    assert message in error
    assert files[place] in error or "never" in error
    assert not (tmp_path / "run").exists()


def test_no_text_of_files_is_in_two_splits(tmp_path: Path) -> None:
    reviews = order_matters(30)
    for name, split in (("train", reviews * 2), ("test", reviews[20:])):
        lines = [f"{review.label}\t{review.text}\n" for review in split]
        (tmp_path / name).write_text("".join(lines))
    data = load_data(tmp_path / "train", tmp_path / "test")
    assert data.test == reviews[20:]
    known, kept_back = ({review.text for review in x} for x in (data.train, data.validation))
    assert not known & kept_back
    assert known | kept_back == {review.text for review in reviews[:20]}


def test_lines_without_a_label_or_a_text_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "texts"
    path.write_bytes(b"\xef\xbb\xbfgood\tfine\tand more\r\n\r\n\tnothing\nbad\t \nbad\tdull")
    assert read_reviews(path) == [Review("fine and more", "good"), Review("dull", "bad")]
    assert "left out 3 lines" in caplog.text
    with pytest.raises(OSError, match=f"'{tmp_path}'"):
        read_reviews(tmp_path)
