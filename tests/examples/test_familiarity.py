"""A translator warns of sentences that it cannot read."""

import logging
from pathlib import Path

import pytest
from tests.examples.tiny_run import make_corpus

import translate
from common.tokenizer import Tokenizer
from translation.familiarity import find_unfamiliar, warn_of_unfamiliar
from translation.training import TranslationTraining


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    folder: Path = tmp_path_factory.mktemp("tokenizers")
    pairs = make_corpus().train
    sides = [pair.source for pair in pairs] + ["ビデオは cd だ。"], [pair.target for pair in pairs]
    source, target = (
        Tokenizer.train(side, vocab_size=300, path=folder / f"{number}.model")
        for number, side in enumerate(sides)
    )
    return source, target


def test_known_sentences_are_familiar(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    pairs = make_corpus().train
    assert not find_unfamiliar(source, [pair.source for pair in pairs])
    assert not find_unfamiliar(target, [pair.target for pair in pairs])
    assert not find_unfamiliar(source, ["", "123 !?", "ビデオ"])


def test_a_sentence_of_another_script_or_of_unknown_letters_is_not(
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> None:
    source, target = tokenizers
    known = next(iter(make_corpus().train)).source
    foreign = ["I like dogs.", "cd", "Я читаю.", "麤鱻龘靐", f"{known[:2]} I like dogs."]
    assert find_unfamiliar(source, [known, *foreign]) == [1, 2, 3, 4, 5]
    assert find_unfamiliar(target, [known]) == [0]


def test_the_warning_names_the_first_sentence_and_counts_the_others(
    tokenizers: tuple[Tokenizer, Tokenizer], caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = tokenizers
    known = next(iter(make_corpus().train)).source
    with caplog.at_level(logging.WARNING):
        warn_of_unfamiliar(source, [known], languages="from ja to en")
        assert not caplog.text
        warn_of_unfamiliar(
            source, [known, "I like dogs.", "cats"], languages="from ja to en", first=8
        )
    (record,) = caplog.records
    assert record.getMessage().startswith("warning: most letters of sentence 9 and 1 more are")
    assert "from ja to en" in record.getMessage()


def test_the_program_translates_all_the_same_and_warns_on_standard_error(
    trained: TranslationTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    known = next(iter(make_corpus().train)).source
    options = ["--run", str(trained.run.folder), "--beam", "1", "--device", "cpu"]
    assert translate.main(["translate", "I like dogs.", known, *options]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("warning: most letters of sentence 1 are") == 1
    assert len(printed.out.splitlines()) == 2
