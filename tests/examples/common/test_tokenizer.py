import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from common.errors import UserError
from common.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from translation.pairs import clean

JAPANESE = [
    f"{who}は{what}{verb}。"
    for who in ("私", "彼", "彼女", "太郎", "先生")
    for what in ("本を", "手紙を", "New Yorkで新聞を")
    for verb in ("読みます", "読みません", "書きました")
]
ENGLISH = [
    f"{who} {verb} {what}{end}"
    for who in ("i", "he", "she", "this boy", "my teacher")
    for verb in ("read", "wrote", "didn 't read")
    for what in ("a book", "this letter", "the newspaper")
    for end in (" .", " ?", "")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a folder, with a comma")


@pytest.fixture(scope="module")
def japanese(folder: Path) -> Tokenizer:
    return Tokenizer.train(JAPANESE, vocab_size=50, path=folder / "ja.model")


@pytest.fixture(scope="module")
def english(folder: Path) -> Tokenizer:
    return Tokenizer.train(ENGLISH, vocab_size=70, path=folder / "en.model")


def characters(sentences: list[str]) -> list[str]:
    return sorted(set("".join(sentences)))


@given(st.text(st.sampled_from(characters(JAPANESE))))
def test_any_clean_text_of_known_characters_survives(japanese: Tokenizer, text: str) -> None:
    text = clean(text, "ja", corpus="files")
    ids = japanese.encode(text)
    assert japanese.decode([BOS, *ids, EOS, PAD, PAD]) == text
    assert not {PAD, UNK, BOS, EOS} & set(ids)


@given(st.text(st.characters()))
def test_no_text_crashes_or_writes_a_special_token(japanese: Tokenizer, text: str) -> None:
    assert not {PAD, BOS, EOS} & set(japanese.encode(text))


@pytest.mark.parametrize("text", ["<pad>", "<s>", "</s>", "<unk>"])
def test_the_names_of_special_tokens_are_plain_text(folder: Path, text: str) -> None:
    alphabet = " ".join("<>/padsunk")
    tokenizer = Tokenizer.train([alphabet, text], vocab_size=50, path=folder / "special.model")
    assert not {PAD, UNK, BOS, EOS} & set(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_have_the_ids_that_the_model_relies_on(japanese: Tokenizer) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert japanese.subwords([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("unknown", ["龍", "🦀"])
def test_an_unknown_character_is_one_unknown_token(japanese: Tokenizer, unknown: str) -> None:
    ids = japanese.encode(f"彼は{unknown}。")
    assert ids.count(UNK) == 1
    assert japanese.decode(ids) == "彼は⁇。"


def test_unknown_parts_of_texts_are_named_once_in_one_line(
    japanese: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["", JAPANESE[0], f"Ω{JAPANESE[0]}😀Ω", "😀Ω"]
    for _ in range(2):
        japanese.warn_of_unknown(texts)
    japanese.warn_of_unknown(["سلام"])
    parts = ("'Ω', '😀Ω'", "'سلام'")
    expected = [f"no token stands for {each}: the model reads <unk> instead" for each in parts]
    assert caplog.messages == expected


def test_the_commonest_neighbours_become_the_first_piece(folder: Path) -> None:
    text = ["読みます。", "書きます。", "泳ぎます。"]
    smallest = len(characters(text)) + 4
    tokenizer = Tokenizer.train(text, vocab_size=smallest + 1, path=folder / "masu.model")
    assert tokenizer.subwords(tokenizer.encode("書きます。")) == ["書", "き", "ます", "。"]


# ------------------------------------------------------------------ training


def test_training_again_writes_the_same_bytes_and_no_noise(
    folder: Path, japanese: Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    Tokenizer.train(iter(JAPANESE), vocab_size=50, path=folder / "again.model")
    assert (folder / "again.model").read_bytes() == (folder / "ja.model").read_bytes()
    assert capfd.readouterr() == ("", "")


def test_a_small_text_gives_a_small_vocabulary_and_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = folder / "small.model"
    tokenizer = Tokenizer.train(JAPANESE, vocab_size=32_000, path=path)
    assert len(characters(JAPANESE)) + 4 < tokenizer.vocab_size < 1000
    assert caplog.messages == [f"{path}: {tokenizer.vocab_size} tokens, at most 32,000"]


@pytest.mark.parametrize("text", [JAPANESE, ENGLISH, ["a"], ["あ"]])
def test_the_smallest_vocabulary_works_and_one_less_names_the_range(
    tmp_path: Path, text: list[str]
) -> None:
    path = tmp_path / "m.model"
    smallest = len(characters(text)) + 4
    tokenizer = Tokenizer.train(text, vocab_size=smallest, path=path)
    assert tokenizer.vocab_size == smallest
    assert [tokenizer.decode(tokenizer.encode(sentence)) for sentence in text] == text
    saved = path.read_bytes()
    for wrong in (smallest - 1, 0, -1, 1_000_001):
        with pytest.raises(UserError) as error:
            Tokenizer.train(text, vocab_size=wrong, path=path)
        assert str(error.value) == (
            f"the vocabulary size must be from {smallest} ({smallest - 4} different characters "
            f"and 4 special tokens) to 1,000,000, got {wrong:,}"
        )
    assert path.read_bytes() == saved


@pytest.mark.parametrize("text", [[], [""], [" ", "  "]])
def test_no_text_is_not_enough(tmp_path: Path, text: list[str]) -> None:
    with pytest.raises(UserError, match="the training split holds no text"):
        Tokenizer.train(text, vocab_size=100, path=tmp_path / "m.model")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ loading


def test_the_file_is_an_ordinary_sentencepiece_model(folder: Path, japanese: Tokenizer) -> None:
    processor = SentencePieceProcessor(model_file=str(folder / "ja.model"))
    assert [processor.encode(text) for text in JAPANESE] == japanese.encode_many(JAPANESE)
