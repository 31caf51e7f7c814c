"""The smallest training, in one file that users copy."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import train_minimal
from train_minimal import BOS, EOS, PAD, english, japanese, make_corpus
from transformer_blocks import Seq2Seq
from transformer_blocks.generation import Generation

EXAMPLES = Path(train_minimal.__file__).parent


@pytest.mark.parametrize(
    ("number", "kanji", "words"),
    [
        (1, "一", "one"),
        (10, "十", "ten"),
        (11, "十一", "eleven"),
        (20, "二十", "twenty"),
        (205, "二百五", "two hundred five"),
        (1000, "千", "one thousand"),
        (1119, "千百十九", "one thousand one hundred nineteen"),
        (9999, "九千九百九十九", "nine thousand nine hundred ninety nine"),
    ],
)
def test_a_number_is_spelled_in_both_languages(number: int, kanji: str, words: str) -> None:
    assert "".join(japanese(number)) == kanji
    assert " ".join(english(number)) == words


def test_the_corpus_has_every_number_once_in_both_languages() -> None:
    pairs = [("".join(ja), " ".join(en)) for ja, en in zip(*make_corpus(), strict=True)]
    expected = {("".join(japanese(n)), " ".join(english(n))) for n in range(1, 10_000)}
    assert {*pairs} == expected
    assert len(pairs) == len({ja for ja, _ in pairs}) == len({en for _, en in pairs}) == 9_999


def test_a_short_training_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = train_minimal.main(steps=2, batch_size=8)
    assert 0.0 <= accuracy < 0.5
    expected = f"{accuracy:.1%} of 1,000 test numbers are translated correctly\n"
    assert capsys.readouterr().out.endswith(expected)


def test_no_number_is_trained_on_and_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, ...]] = []
    tested: list[tuple[int, ...]] = []
    pad = train_minimal.pad

    def record(rows: list[list[int]]) -> torch.Tensor:
        trained.extend(map(tuple, rows))
        return pad(rows)

    def generate(model: Seq2Seq, sources: list[list[int]], *_: Any, **__: Any) -> list[Generation]:
        tested.extend(map(tuple, sources))
        return [Generation([], 0.0, finished=True)] * len(sources)

    monkeypatch.setattr(train_minimal, "pad", record)
    monkeypatch.setattr(Seq2Seq, "generate", generate)
    train_minimal.main(steps=2, batch_size=9, test_size=9_990)
    assert len(trained) == 2 * 2 * 9  # sources and targets of two updates
    assert len(tested) == 9_990
    assert not set(tested) & set(trained[:9] + trained[18:27])


@pytest.mark.slow
def test_training_generalises_to_numbers_of_the_test_set() -> None:
    assert train_minimal.main() > 0.98


def test_rows_are_padded_at_the_end() -> None:
    assert train_minimal.pad([[BOS, 5, EOS], [BOS, EOS]]).tolist() == [
        [BOS, 5, EOS],
        [BOS, EOS, PAD],
    ]


@pytest.mark.parametrize(
    ("option", "status", "said"),
    [
        ("--help", 0, "Train a small Transformer"),
        ("--foo", 2, "error: unrecognized arguments: --foo"),
    ],
)
def test_an_option_trains_nothing(
    option: str,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("it is trained"))
    monkeypatch.setattr(sys, "argv", ["train_minimal.py", option])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(EXAMPLES / "train_minimal.py"), run_name="__main__")
    assert stopped.value.code == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
