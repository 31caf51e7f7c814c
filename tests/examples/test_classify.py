"""The classifier: a task that counts cannot solve, two models, and the program around them."""

import io
import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from tests.examples.test_translate import one_error_line

import classify
from classification import commands as classify_commands
from classification import reviews as reviews_module
from classification.data import Data, best_of_counts, load_data, read_reviews
from classification.learning import Classification, Config, predict
from classification.models import BagClassifier, EncoderClassifier
from classification.reviews import Review, family, toy_reviews
from common.errors import UserError
from common.tokenizer import Tokenizer
from common.training import Training

SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "32"]
TINY = [*SIZES, "--steps", "8", "--batch-size", "8", "--vocabulary", "60"]
NOUNS = "cat dog bird fish horse cow".split()  # noqa: SIM905


def order_matters(count: int = 12) -> list[Review]:
    """Texts whose label is their first word of two: every bag has two labels."""
    pairs = [(a, b) for a in NOUNS for b in NOUNS if a != b]
    return [Review(f"{a} {b}", "before" if a < b else "after") for a, b in pairs[:count]]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of labelled texts, in a folder with a comma and a space in its name."""
    folder = tmp_path / "my, files"
    folder.mkdir()
    reviews = order_matters(30)
    for name, split in (("train", reviews[:24]), ("test", reviews[24:])):
        text = "".join(f"{review.label}\t{review.text}\n" for review in split)
        (folder / name).write_text(text, encoding="utf-8")
    return ["--train-file", str(folder / "train"), "--test-file", str(folder / "test")]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing, which takes longer than a tiny training."""
    for name in ("plot_accuracy", "plot_encoder_attention"):
        monkeypatch.setattr(classify_commands, name, lambda *arguments, **options: None)


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
    small = {
        "PLACES": ["the zoo"],
        "OTHERS": ["my sister", "a friend"],
        "OPINIONS": {"positive": "good", "negative": "bad", "neutral": "plain"},
        "CLAUSES": ["{who} found it {opinion}"],
        "JOINTS": {2: ["{} and {}"], 3: ["{} ; {} and {}"]},
        "SIZES": {"train": 20, "validation": 10, "test": 10},
    }
    for name, value in small.items():  # so little to say that it is soon said again
        monkeypatch.setattr(reviews_module, name, value)
    splits = toy_reviews()
    texts = [review.text for reviews in splits.values() for review in reviews]
    assert len({tuple(sorted(text.split())) for text in texts}) == 40
    assert len(texts) == len(set(texts))


def test_whoever_counts_words_is_right_once_in_each_family() -> None:
    reviews = [review for _ in range(50) for review in family(Random(_))]
    bags = {tuple(sorted(review.text.split())) for review in reviews}
    assert best_of_counts(reviews) == pytest.approx(len(bags) / len(reviews))
    assert best_of_counts([Review("a", "x"), Review("b", "y"), Review("b", "y")]) == 1.0


def config_of(**changes: object) -> Config:
    plan = {"seed": 0, "report_steps": 50, "peak_rate": 2e-2, "warmup_steps": 10, "average": 0.9}
    sizes = {"num_layers": 1, "d_model": 32, "num_heads": 4, "d_ff": 64, "dropout": 0.0}
    return Config(**{**plan, **sizes, "steps": 60, "vocabulary": 60, "batch_size": 16, **changes})  # type: ignore[arg-type]


def test_a_prediction_depends_neither_on_padding_nor_on_the_batch() -> None:
    encoder = EncoderClassifier(
        *(20, 3), num_layers=2, d_model=16, num_heads=2, d_ff=32, dropout=0.5, max_length=30
    ).eval()
    bag = BagClassifier(20, 3, d_model=16).eval()
    texts = [torch.randint(4, 20, (length,)).tolist() for length in (9, 2, 5, 2, 1)]
    for model in (encoder, bag):
        together = predict(model, texts)
        alone = torch.cat([predict(model, [text]) for text in texts])
        torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)
        assert together.sum(1).sub(1.0).abs().max() < 1e-9


def test_sizes_that_make_no_model_are_named_as_the_reason() -> None:
    for build in (config_of(num_heads=3).build_encoder, config_of(d_model=-1).build_bag):
        with pytest.raises(UserError, match="do not make a valid model: "):
            build(20)


def test_every_text_is_read_once_an_epoch(tmp_path: Path) -> None:
    reviews = order_matters(30)
    config = config_of(labels=["after", "before"], batch_size=7)
    texts = [review.text for review in reviews]
    tokenizer = Tokenizer.train(texts, vocab_size=60, path=tmp_path / "tokenizer.model")
    task = Classification(Data(reviews, reviews, reviews), tokenizer, config)
    epochs = [task.batches(epoch) for epoch in (0, 1)]
    assert [len(batch) for batch in epochs[0]] == [7, 7, 7, 7, 2]
    read = [[i for batch in epoch for i in batch] for epoch in epochs]
    assert sorted(read[0]) == sorted(read[1]) == list(range(30))
    assert read[0] != read[1]
    assert task.batches(0) == epochs[0]  # whatever was read in between


@pytest.mark.usefixtures("pictures")
def test_train_evaluate_and_classify_in_one_folder(
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "runs" / "first, try"
    assert classify.main(["train", "--run", str(folder), *files, *TINY]) == 0
    out = capsys.readouterr().out
    assert "best of word counts" in out
    assert out.startswith(
        "22 training texts, 2 validation texts (held out from the training file), 6 test texts, "
    )
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "tokenizer.model", "checkpoints", "best", "bag"),
        *("metrics.jsonl", "accuracy.png", "attention.png"),
    }
    for name in ("accuracy", "attention"):
        assert imread(folder / f"{name}.png").ndim == 3
    assert classify.main(["evaluate", "--run", str(folder)]) == 0
    again = capsys.readouterr().out
    assert again in out  # the same figures
    assert classify.main(["classify", "--run", str(folder), "cat dog", "", "dog cat"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    label, chance = lines[0].split("\t")
    assert label in ("after", "before")
    assert 0.5 <= float(chance) <= 1.0
    text = "\ufeffcat dog\r\n\r\ndog\u2028cat".encode()
    (tmp_path / "in.txt").write_bytes(text)
    capsys.readouterr()
    assert (
        classify.main(["classify", "--run", str(folder), "--file", str(tmp_path / "in.txt")]) == 0
    )
    of_file = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert classify.main(["classify", "--run", str(folder)]) == 0
    assert capsys.readouterr().out == of_file
    assert of_file.count("\n") == 3


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def fingerprint(folder: Path) -> dict[str, bytes]:
    """All that a training leaves, clocks left out."""
    kept = {}
    for path in sorted(folder.rglob("*.safetensors")):
        name = re.sub(r"\.\d+/", "/", str(path.relative_to(folder)))  # a save that was made again
        kept[name] = path.read_bytes()
    for file in sorted(folder.rglob("metrics.jsonl")):
        clocks = {"minutes": 0.0, "texts_per_second": 0.0}
        rows = [row | clocks for row in read_rows(file)]
        kept[str(file.relative_to(folder))] = json.dumps(rows).encode()
    return kept


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.usefixtures("no_pictures")
def test_a_training_killed_at_every_save_ends_with_the_bits_of_one_left_alone(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify_commands, "REPORT_STEPS", 4)
    plan = [*files, *TINY, "--dropout", "0.5"]
    assert classify.main(["train", "--run", str(tmp_path / "whole"), *plan]) == 0
    save, killed = Training._save, set()

    def die_once(training: Training[torch.nn.Module, list[int]]) -> None:
        place = training.run.folder, training.progress.step
        if place not in killed:  # the last row is written, the checkpoint is not
            killed.add(place)
            raise KilledError
        save(training)

    # With the plan: what fails before its first checkpoint leaves nothing that could tell it.
    command = ["train", "--run", str(tmp_path / "killed"), *plan, "--resume"]
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_save", die_once)
        for _ in range(6):
            with pytest.raises(KilledError):
                classify.main(command)
        assert classify.main(command) == 0
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")
    assert len(read_rows(tmp_path / "killed" / "metrics.jsonl")) == 2
    other = tmp_path / "other"
    assert classify.main(["train", "--run", str(other), *plan, "--seed", "1"]) == 0
    assert fingerprint(other) != fingerprint(tmp_path / "whole")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no text"),
        (b"\xef\xbb\xbf", "holds no text"),
        (b"good\tfine\nbad dull\n", ":2 has no tab; a line must be label, tab, text"),
        (b"good\tfine\n\x8c\xa2\tx\n", ":2 is not UTF-8"),
        (b"good\tfi\0ne\n", ":1 holds a NUL byte"),
        (b"good\tfine\ngood\tbest\n", "must hold texts of at least two labels"),
    ],
)
def test_a_file_without_enough_labels_is_refused(
    content: bytes,
    message: str,
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(files[1]).write_bytes(content)
    assert classify.main(["train", "--run", str(tmp_path / "run"), *files]) == 2
    error = one_error_line(capsys)
    assert message in error
    assert files[1] in error
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


def test_a_test_label_that_nobody_learns_is_named(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[3]).write_text("never\tcat cow\n")
    assert classify.main(["train", "--run", str(tmp_path / "run"), *files]) == 2
    assert "the label 'never' of the test texts is on no training text" in one_error_line(capsys)


def test_lines_without_a_label_or_a_text_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "texts"
    path.write_bytes(b"\xef\xbb\xbfgood\tfine\tand more\r\n\r\n\tnothing\nbad\t \nbad\tdull")
    assert read_reviews(path) == [Review("fine and more", "good"), Review("dull", "bad")]
    assert "left out 3 lines" in caplog.text
    with pytest.raises(UserError, match="cannot read"):
        read_reviews(tmp_path)
