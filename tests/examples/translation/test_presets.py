"""What the command line leaves open follows from the size of the corpus, not from its name."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from translation.commands import fit
from translation.corpus import corpus_of
from translation.pairs import Languages
from translation.presets import BASE, SMALL, TINY, TranslatorConfig, fit_to_corpus, new_config
from translation.toy import toy_corpus

LANGUAGES = {"source": "de", "target": "fr"}
SIDES = ("source", "target")


def sentences(words: int) -> list[str]:
    """Return sentences of two words each, ``words`` different words in all."""
    return [f"w{i} w{i + 1}" for i in range(0, words, 2)]


def fitted(pairs: int, *sides: list[str], **chosen: Any) -> TranslatorConfig:
    return fit_to_corpus(new_config(chosen), chosen, sides or [sentences(5000)] * 2, pairs)


def test_the_preset_follows_from_the_size() -> None:
    by_words = [fitted(26_000, *[sentences(words)] * 2).preset for words in (2, 1_998, 2_000)]
    assert by_words == ["tiny", "tiny", "small"]
    assert [fitted(n).preset for n in (1, 999_999, 1_000_000)] == ["small", "small", "base"]


def test_the_language_with_fewer_different_words_counts() -> None:
    many, few = sentences(5000), sentences(1000)
    for sides in ([many, few], [few, many]):
        assert fitted(50_000, *sides).preset == "tiny"
    assert fitted(50_000, many, many).preset == "small"


def test_the_toy_corpus_gets_the_tiny_preset() -> None:
    japanese, english = zip(*toy_corpus()["train"], strict=True)
    assert fitted(26_000, [*japanese], [*english]) == TINY


def test_the_smaller_the_corpus_the_more_epochs() -> None:
    epochs = [fitted(pairs).epochs for pairs in (1, 10_000, 40_000, 50_000, 100_000, 900_000)]
    assert epochs == [40, 40, 20, 16, 8, 4]
    assert fitted(50_000).epochs == SMALL.epochs
    assert fitted(1_000_000).epochs == BASE.epochs


def test_the_vocabulary_is_twice_the_characters_or_more() -> None:
    kanji = [chr(0x4E00 + i) * 2 for i in range(3000)]
    words = sentences(5000)
    assert fitted(50_000, kanji, words).vocabulary == 6000
    assert fitted(50_000, words, kanji).vocabulary == 6000
    more = [chr(0x7000 + i) for i in range(3000)]
    assert fitted(50_000, kanji, more).vocabulary == 6000
    assert fitted(50_000, kanji, more, shared_vocabulary=True).vocabulary == 12_000
    assert fitted(50_000, words, words).vocabulary == SMALL.vocabulary


def test_what_the_command_line_sets_stays() -> None:
    kanji, chosen = [chr(0x4E00 + i) for i in range(3000)], {"vocabulary": 100, "dropout": 0.4}
    for layers, more in ((3, {"minutes": 20.0}), (1, {"preset": "tiny", "model": "rnn"})):
        config = fitted(50_000, kanji, kanji, **chosen, **more)
        assert {name: getattr(config, name) for name in chosen | more} == chosen | more
        assert config.num_layers == layers


def test_the_files_of_a_split_are_its_sentences_and_then_their_translations() -> None:
    names = {"train": "{}_file", "validation": "valid_{}", "test": "test_{}"}
    chosen = {name.format(side): f"{name}.{side}" for name in names.values() for side in SIDES}
    config = new_config(chosen)
    for split, name in names.items():
        assert config.files[split] == tuple(Path(f"{name}.{side}") for side in SIDES)
    assert new_config({}).files == {}


def test_a_run_of_files_says_no_language_that_nobody_named() -> None:
    for source, given, language in (
        ("train.de", {}, "de"),
        ("train", {}, "und"),
        ("train.txt", {}, "und"),
        ("train.de", {"source_language": "nl"}, "nl"),
    ):
        config = new_config({"source_file": source, "target_file": "train.fr", **given})
        assert (config.source_language, config.target_language) == (language, "fr")
    assert new_config({}).source_language == "ja"


def test_what_was_derived_from_the_command_line_survives_the_choice_by_the_corpus(
    tmp_path: Path,
) -> None:
    chosen = {f"{side}_file": str(tmp_path / f"train.{end}") for side, end in LANGUAGES.items()}
    for path in chosen.values():
        Path(path).write_text("\n".join(sentences(4000)))
    given = new_config(chosen)
    config, _ = fit(given, chosen, corpus_of(given))
    assert config.preset != given.preset
    changed = {name for name, value in asdict(config).items() if value != asdict(given)[name]}
    tiny, *others = map(asdict, (TINY, SMALL, BASE))
    of_presets = {name for name in tiny if any(each[name] != tiny[name] for each in others)}
    assert changed <= of_presets
    assert config.languages == Languages("files", "de", "fr")


def test_only_the_preset_of_the_paper_shares_its_vocabulary() -> None:
    chosen = {"source_file": "a", "target_file": "b"}
    assert BASE.shared_vocabulary
    assert BASE.vocabulary == 37_000
    assert new_config({**chosen, "preset": "base"}).shared_vocabulary
    assert not new_config({**chosen, "preset": "small"}).shared_vocabulary
    separate = new_config({**chosen, "preset": "base", "shared_vocabulary": False})
    assert separate.tokenizer_names == ("source", "target")
