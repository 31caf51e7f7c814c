import hashlib
import logging
import unicodedata
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import UserError
from common.text_files import read_lines
from translation import corpus as corpus_module
from translation.corpus import load_corpus
from translation.pairs import (
    MAX_CHARACTERS,
    SMALL_PARALLEL_ENJA,
    Corpus,
    Languages,
    Pair,
    clean,
    read_pairs,
)

# Where cleaning might not settle: marks that join what a space has parted, quotes, dots, case.
NASTY = (
    "aİßσΣI.'’´`｀\"“!?1,-… \t\u3000\u200b\u0085\u2028\0\ud800か゛\u3099\u0323\u0307カﾞ１ｶ時々。〜▁"
)
anything = st.one_of(st.text(), st.text(NASTY), st.text(st.characters()))
languages = st.sampled_from(["ja", "en", "zh", "de"])
corpora = st.sampled_from(["toy", SMALL_PARALLEL_ENJA, "files"])


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ------------------------------------------------------------------ cleaning


@given(anything, languages, corpora)
@example("Q \u0323 \u3099", "ja", "toy")  # the second mark goes before the first, to the space
def test_cleaning_clean_text_changes_nothing(text: str, language: str, corpus: str) -> None:
    once = clean(text, language, corpus=corpus)
    assert clean(once, language, corpus=corpus) == once


@given(anything, languages, corpora)
def test_clean_text_is_one_utf8_line_without_anything_invisible(
    text: str, language: str, corpus: str
) -> None:
    cleaned = clean(text, language, corpus=corpus)
    assert cleaned == " ".join(cleaned.split())
    assert not {unicodedata.category(c) for c in cleaned} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    cleaned.encode()


@given(st.text(st.sampled_from("彼はテニスー々。、「」？"), min_size=1), st.data())
def test_spaces_inside_japanese_make_no_difference(text: str, data: st.DataObject) -> None:
    spaces = data.draw(st.lists(st.sampled_from(["", " ", "\u3000", "\t"]), min_size=len(text)))
    spaced = "".join(c + space for c, space in zip(text, spaces, strict=False))
    assert clean(spaced, "ja", corpus="toy") == clean(text, "ja", corpus="toy")


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("彼 は １０ 時 前 に 戻 っ た 。", "彼は10時前に戻った。"),
        ("髪 が めちゃくちゃ ！ ！", "髪がめちゃくちゃ!!"),
        ("ﾃﾆｽ と　ＣＤ", "テニスとCD"),
        ("か\u3099 か ゛", "がが"),
        ("New York と Los Angeles", "New YorkとLos Angeles"),
        ("\ufeff猫\u200bが\0いる\ud800", "猫がいる"),
        ("one\ttwo\x85three\u2028four", "one two three four"),
        (" \u200b\t", ""),
    ],
)
def test_japanese_has_one_spelling_on_every_corpus(raw: str, cleaned: str) -> None:
    for corpus in ("toy", SMALL_PARALLEL_ENJA, "files"):
        assert clean(raw, "ja", corpus=corpus) == cleaned


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("I can't tell who will arrive first.", "i can 't tell who will arrive first ."),
        ("I’ll come at two o’clock, won’t I?", "i 'll come at two o 'clock , won 't i ?"),
        ('He said, "Stop."', "he said , '' stop . ''"),
        ("“Hello,” she said.", "'' hello , '' she said ."),
        ("Mr. Brown is taller than I.", "mr. brown is taller than i."),
        ("He lives in the U.S. now.", "he lives in the u.s. now ."),
        ("It's ten minutes' walk.", "it 's ten minutes ' walk ."),
        ("Here's $5, not 1,000.", "here 's $ 5 , not 1,000 ."),
        ("A part-time job...", "a part-time job ..."),
        ("So do I... maybe.", "so do i ... maybe ."),
        ("You cannot have two; choose!", "you cannot have two ; choose !"),
    ],
)
def test_raw_english_becomes_like_the_tokenised_corpus(raw: str, cleaned: str) -> None:
    assert clean(raw, "en", corpus=SMALL_PARALLEL_ENJA) == cleaned


# ------------------------------------------------------------------ reading


def read_sides(source: Path, target: Path) -> list[tuple[str, str]]:
    """Read pairs, each as its clean source and its reference, which is as it is in the file."""
    pairs = read_pairs((source, target), Languages("files", "en", "ja"))
    return [(pair.source, pair.reference) for pair in pairs]


@pytest.mark.parametrize(
    "content", ["猫\n犬\n", "猫\n犬", "猫\r\n犬\r\n", "\ufeff猫\n犬\n", "\ufeff猫\r\n犬"]
)
def test_the_way_a_file_was_saved_makes_no_difference(tmp_path: Path, content: str) -> None:
    assert read_lines(write(tmp_path / "a, b.txt", content)) == ["猫", "犬"]


NO_PAIR = "{0} and {1} hold no sentence pair"


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\r"])
def test_only_a_newline_ends_a_line(tmp_path: Path, inside: str) -> None:
    source = write(tmp_path / "source", "a cat\na dog\n")
    target = write(tmp_path / "target", f"猫{inside}猫\n犬\n")
    assert read_sides(source, target) == [("a cat", f"猫{inside}猫"), ("a dog", "犬")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("猫\n犬\n".encode("shift-jis"), ":1 is not UTF-8: byte 0x94 at position 0;"),
        (b"a cat\n" + "犬\n".encode("euc-jp"), ":2 is not UTF-8: byte 0xb8 at position 0;"),
        ("猫\n".encode("utf-16"), ":1 is not UTF-8: byte 0xff at position 0;"),
        ("cat\n".encode("utf-16-le"), ":1 holds a NUL byte (0x00);"),
        (b"ok\nok \xed\xa0\x80\n", ":2 is not UTF-8: byte 0xed at position 3;"),
        (b"ok\nok\nN\0L\n", ":3 holds a NUL byte (0x00);"),
    ],
)
def test_other_encodings_are_refused_with_line_and_byte(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = write(tmp_path / "text", content)
    with pytest.raises(UserError) as error:
        read_lines(path)
    assert str(error.value).startswith(f"{path}{message}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "nowhere", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(OSError, match=f"{reason}.*: '{path}'"):
            read_lines(path)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        *((text, text, NO_PAIR) for text in ("", "\ufeff", "\n", " \n\u3000\n\u200b\n")),
        ("x" * (MAX_CHARACTERS + 1), "x", NO_PAIR),
        (
            *("a\n" * 5, "a\n" * 4),
            "both files must have the same number of lines, got {0} with 5 and {1} with 4",
        ),
    ],
)
def test_files_without_a_pair_or_of_different_length_are_refused(
    tmp_path: Path, left: str, right: str, message: str
) -> None:
    source, target = write(tmp_path / "s", left), write(tmp_path / "t", right)
    with pytest.raises(UserError) as error:
        read_sides(source, target)
    assert str(error.value) == message.format(source, target)


def test_pairs_that_teach_nothing_are_counted_and_the_rest_stays_aligned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endless = "x" * (MAX_CHARACTERS + 1)
    source = write(tmp_path / "s", f"one\n\ntwo\n\u200b\n{endless}\nthree\nfour\n")
    target = write(tmp_path / "t", "1\n2\n3\n4\n5\n \u3000\n6\n")
    assert read_sides(source, target) == [("one", "1"), ("two", "3"), ("four", "6")]
    assert caplog.messages == [
        f"{source} and {target}: left out 3 of 7 pairs with a blank side and 1 longer than "
        "10,000 characters"
    ]
    write(source, f"{endless}\n" + "one\n" * 6)
    write(target, "1\n" * 7)
    assert len(read_sides(source, target)) == 6
    assert "left out 0 of 7 pairs with a blank side and 1 longer than" in caplog.messages[-1]


# ------------------------------------------------------------------ corpora


def sources(pairs: Collection[Pair]) -> set[str]:
    return {pair.source for pair in pairs}


def check_disjoint(corpus: Corpus) -> None:
    train, validation, test = map(sources, (corpus.train, corpus.validation, corpus.test))
    assert all((train, validation, test))
    assert not any((train & validation, train & test, validation & test))


def load_own(folder: Path, english: str = "{} cats, {}", /, **numbers: Iterable[int]) -> Corpus:
    """Load files of some numbers for each split; two lines have one source 300 numbers apart."""
    files = {}
    for split, chosen in numbers.items():
        own = folder / split
        own.mkdir(parents=True, exist_ok=True)
        lines = [(f"猫 は {n % 300} 匹\n", english.format(n % 300, n) + "\n") for n in chosen]
        source, target = map("".join, zip(*lines, strict=True))
        files[split] = write(own / "mine.ja", source), write(own / "mine.en", target)
    return load_corpus(Languages("files"), files=files)


def test_own_files_are_split_by_source_sentence_in_any_order(tmp_path: Path) -> None:
    corpus = load_own(tmp_path, train=range(900))
    check_disjoint(corpus)
    everything = [*corpus.train, *corpus.validation, *corpus.test]
    assert len(everything) == 900
    assert Pair("猫は7匹", "7 cats, 7", "7 cats, 7") in everything
    assert len(sources(corpus.validation)) == len(sources(corpus.test)) == 15
    backward = load_own(tmp_path / "backward", train=range(899, -1, -1))
    assert sources(backward.test) == sources(corpus.test)


def test_two_different_sentences_cannot_fill_three_splits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"at least 3 different .*, got 2: .*mine\.ja and .*"):
        load_own(tmp_path, train=[1, 2, 301])
    check_disjoint(load_own(tmp_path, train=[1, 2, 3]))


def test_given_validation_and_test_files_leave_the_training_file_whole(tmp_path: Path) -> None:
    numbers = {"train": range(100), "validation": range(200, 202), "test": range(210, 213)}
    corpus = load_own(tmp_path, **numbers)
    for split, chosen in numbers.items():
        assert [pair.source for pair in getattr(corpus, split)] == [f"猫は{n}匹" for n in chosen]
    assert corpus.held_out == ()
    assert corpus.sizes == "100 training pairs, 2 validation pairs, 3 test pairs"


@pytest.mark.parametrize(("given", "other"), [("validation", "test"), ("test", "validation")])
def test_only_the_split_that_is_not_given_is_held_out(
    tmp_path: Path, given: str, other: str
) -> None:
    corpus = load_own(tmp_path, **{"train": range(100), given: [200]})
    check_disjoint(corpus)
    assert [len(getattr(corpus, split)) for split in ("train", other, given)] == [95, 5, 1]
    assert corpus.held_out == (other,)
    assert corpus.sizes.endswith(f" ({other} held out from the training files)")


def test_test_sentences_of_own_files_leave_the_training_set(tmp_path: Path) -> None:
    check_disjoint(load_own(tmp_path, train=range(50), test=[3, 4, 5]))
    with pytest.raises(UserError, match="no validation pair whose source"):
        load_own(tmp_path, train=[3, 4], validation=[3, 4], test=[3, 4])


def test_references_are_scored_as_they_stand_in_the_file(tmp_path: Path) -> None:
    corpus = load_own(tmp_path, "I can’t see  {} ﾈｺ cats…", train=range(40))
    for pair in corpus.validation + corpus.test:
        number = pair.source.removeprefix("猫は").removesuffix("匹")
        assert pair.target == f"I can't see {number} ネコ cats..."
        assert pair.reference == f"I can’t see  {number} ﾈｺ cats…"
    changed = load_own(tmp_path / "other", "I can't see  {} ﾈｺ cats…", train=range(40))
    assert [*changed.train] != [*corpus.train]  # only the references differ
    assert [pair[:2] for pair in changed.train] == [pair[:2] for pair in corpus.train]
    assert changed.fingerprint != corpus.fingerprint


TINY = {
    "train.ja": "猫 が い る 。\n犬 が い る 。\n鳥 が い る 。\n",
    "train.en": "there is a cat .\nthere is a dog .\nthere is a bird .\n",
    "dev.ja": "馬 が い る 。\n魚 が い る 。\n",
    "dev.en": "there is a horse .\nthere is a pet .\n",
    "test.ja": "ペット が い る 。\nネコ が い る 。\n",
    "test.en": "there is a pet .\nthere is a cat .\n",
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a small_parallel_enja of a few lines into a folder."""
    folder = tmp_path / "my data, here"
    folder.mkdir()
    for name, text in TINY.items():
        write(folder / name, text)
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in TINY.items()}
    monkeypatch.setattr(corpus_module, "SHA256", hashes)
    return folder


def test_a_given_data_folder_is_only_read_and_the_network_left_alone(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "fetch", None)
    before = sorted(tiny.rglob("*"))
    corpus = load_corpus(Languages(SMALL_PARALLEL_ENJA), data_dir=tiny)
    assert next(iter(corpus.train))[:2] == ("猫がいる。", "there is a cat .")
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (3, 2, 2)
    assert sorted(tiny.rglob("*")) == before


def test_source_sentences_of_the_test_set_leave_the_other_splits(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    corpus = load_corpus(Languages(SMALL_PARALLEL_ENJA, "en", "ja"), data_dir=tiny)
    check_disjoint(corpus)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (2, 1, 2)
    assert caplog.messages == [
        "left out 1 validation pair whose source is in a later split",
        "left out 1 training pair whose source is in a later split",
    ]


def test_without_a_data_folder_the_corpus_is_downloaded_into_the_repository(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Path(__file__).resolve().parents[3]
    assert repository / "data" / SMALL_PARALLEL_ENJA == corpus_module.DATA_DIR
    calls = []
    monkeypatch.setattr(corpus_module, "DATA_DIR", tiny)
    monkeypatch.setattr(
        corpus_module, "fetch", lambda *args, **options: calls.append((*args, options))
    )
    assert len(load_corpus(Languages(SMALL_PARALLEL_ENJA)).train) == 3
    assert calls == [(tiny, {})]


def test_scores_cut_words_as_the_target_language_does() -> None:
    for name, target_language, tokenizer in (
        (SMALL_PARALLEL_ENJA, "en", "none"),
        (SMALL_PARALLEL_ENJA, "ja", "char"),
        ("toy", "en", "13a"),
        ("files", "zh", "char"),
        ("files", "de", "13a"),
    ):
        corpus = Corpus(Languages(name, "xx", target_language), [], [], [])
        assert corpus.bleu_tokenizer == tokenizer


def test_the_toy_corpus_has_two_directions() -> None:
    with pytest.raises(UserError, match=r"toy translates from ja to en or .*, got ja to de"):
        load_corpus(Languages(target="de"))


def test_held_out_sentences_are_spread_over_the_alphabet(tmp_path: Path) -> None:
    files = tmp_path / "source.txt", tmp_path / "target.txt"
    for file in files:
        file.write_text("\n".join(f"{number:04} word" for number in range(2000)), encoding="utf-8")
    corpus = load_corpus(Languages("files", "xx", "yy"), files={"train": files})
    for split in (corpus.validation, corpus.test):
        numbers = [int(pair.source[:4]) for pair in split]
        assert len(numbers) == 100
        assert min(numbers) < 200 < 1800 < max(numbers)


def test_the_two_directions_of_a_corpus_have_exchanged_sides() -> None:
    there, back = (load_corpus(Languages("toy", *codes)) for codes in (("ja", "en"), ("en", "ja")))
    assert [pair[:2] for pair in back.test] == [pair[1::-1] for pair in there.test]


@pytest.mark.parametrize("longer", [0, 1])
def test_files_of_different_length_and_lines_too_long_are_found_on_either_side(
    longer: int, tmp_path: Path
) -> None:
    files = tmp_path / "a.ja", tmp_path / "a.en"
    for side, file in enumerate(files):
        file.write_text("a\nb\n" + "c\n" * (side == longer), encoding="utf-8")
    with pytest.raises(UserError, match="the same number of lines"):
        read_pairs(files, Languages("files"))
    for side, file in enumerate(files):
        file.write_text("a\n" + "b" * (MAX_CHARACTERS + (side == longer)) + "\n", encoding="utf-8")
    assert len(read_pairs(files, Languages("files"))) == 1


def test_a_fingerprint_tells_every_side_of_every_split() -> None:
    pair = Pair("a", "b", "b")
    corpora = []
    for other in (pair._replace(source="x"), pair._replace(target="x")):
        for changed in range(4):  # the last changes nothing
            splits = [[other if place == changed else pair] for place in range(3)]
            corpora.append(Corpus(Languages(), splits[0], splits[1], splits[2]))
    assert len({each.fingerprint for each in corpora}) == 7
