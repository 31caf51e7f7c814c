"""The toy corpus: one right translation for each sentence, and new combinations of known words."""

import re
from functools import cache

from translation.corpus import load_corpus
from translation.pairs import Languages
from translation.toy import HELD_OUT, toy_corpus


@cache
def corpus() -> dict[str, list[tuple[str, str]]]:
    return toy_corpus()


def all_pairs() -> list[tuple[str, str]]:
    return [pair for pairs in corpus().values() for pair in pairs]


def words(english: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", english)


def test_the_corpus_is_the_one_whose_scores_are_published() -> None:
    assert load_corpus(Languages()).fingerprint.startswith("ed199c0b9f071e383aee")


def test_no_sentence_occurs_twice_in_either_language() -> None:
    pairs = all_pairs()
    assert len({japanese for japanese, _ in pairs}) == 27_500
    assert len({english for _, english in pairs}) == 27_500


def test_every_word_of_the_test_set_occurs_in_training() -> None:
    train, test = corpus()["train"], corpus()["test"]
    for split in (words, list):  # English words, Japanese signs
        side = int(split is words)
        known = {part for pair in train for part in split(pair[side])}
        assert {part for pair in test for part in split(pair[side])} <= known


def test_held_out_combinations_occur_in_the_test_set_alone() -> None:
    joined = {
        split: [
            (one, other)
            for japanese, _ in pairs
            for one, other in HELD_OUT
            if one in japanese and other in japanese
        ]
        for split, pairs in corpus().items()
    }
    assert joined["train"] == joined["validation"] == []
    assert {*joined["test"]} == {*HELD_OUT}
    assert len(joined["test"]) >= 333  # a third
    for word in {word for pair in HELD_OUT for word in pair}:
        assert sum(word in japanese for japanese, _ in corpus()["train"]) >= 10


def test_japanese_and_english_are_well_formed() -> None:
    for japanese, english in all_pairs():
        assert re.fullmatch(r"[\u3041-\u30ff\u4e00-\u9fff、]+。", japanese)
        assert re.fullmatch(r"[A-Z][A-Za-z', ]+[a-z][.?]", english), english
        assert "  " not in english
        assert " ," not in english
        assert english.endswith("?") == japanese.endswith("か。")
        assert 3 <= len(english.split()) <= 14
