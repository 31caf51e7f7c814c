"""WordPiece: cut text as BERT was trained to read it.

A text is cleaned, cut into words at spaces and punctuation, and each word is cut into pieces of a
vocabulary: the longest that it begins with, then the longest that the rest begins with, which is
written with ``##`` before it, and so on (the paper on BERT, Devlin et al. 2019,
https://arxiv.org/abs/1810.04805, section 3; the vocabulary's idea is from "Japanese and Korean
Voice Search", Schuster and Nakajima 2012). A Chinese character is a word of its own.
"""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.text_files import read_lines
from pretrained.loading import check_vocabulary, read_json, shown

LONGEST_WORD = 100  # characters; a longer one is unknown
CHINESE = (  # first and last of each block, CJK ideographs in Unicode
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)

FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt")
GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")  # whose kind tokenizer.json tells
OPTIONS = {
    "do_lower_case": "lower_case",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "split_chinese",
}
"""What the options of :class:`WordPiece` are called in ``tokenizer_config.json``."""

MARKS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


class WordPiece:
    """BERT's tokenizer: text to ids.

    A ``[SEP]`` that somebody writes into a text is text as any other, never the mark.

    Args:
        vocabulary: The id of each piece; among them [PAD], [UNK], [CLS] and [SEP].
        lower_case: Whether "A" is read as "a".
        strip_accents: Whether "é" is read as "e"; as ``lower_case`` if not given.
        split_chinese: Whether Chinese characters are words of their own.

    Raises:
        UserError: If a special piece is missing.

    Example:
        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##know", "##n", "word", "!"]
        >>> tokenizer = WordPiece({piece: id for id, piece in enumerate(pieces)})
        >>> ids = tokenizer.encode("Unknown wörd!", max_length=10)
        >>> [pieces[id] for id in ids]
        ['[CLS]', 'un', '##know', '##n', 'word', '!', '[SEP]']
    """

    def __init__(
        self,
        vocabulary: dict[str, int],
        *,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> None:
        for mark in list(MARKS.values())[:4]:
            if mark not in vocabulary:
                raise UserError(f"the vocabulary of a WordPiece tokenizer must hold {mark}")
        self.vocabulary = vocabulary
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.split_chinese = split_chinese

    @classmethod
    def load(cls, folder: Path) -> "WordPiece":
        """Read ``tokenizer.json`` or ``vocab.txt``, and ``tokenizer_config.json`` if it is there.

        Raises:
            UserError: If the vocabulary is missing or lacks a special piece, the files contradict
                each other, or the tokenizer is of another kind.
        """
        path, fast, text = (folder / name for name in FILES)
        config = read_json(path) if path.exists() else {}
        kind = config.get("tokenizer_class") or "BertTokenizer"
        known = ("BertTokenizer", "BertTokenizerFast")
        if kind not in known and not (fast.exists() and kind in GENERAL):
            raise UserError(f"{path}: tokenizer_class must be BertTokenizer, got {shown(kind)}")
        for name in OPTIONS:
            if not _is_flag(config.get(name)):
                value = shown(config[name])
                raise UserError(f"{path}: {name} must be true, false or null, got {value}")
        _check_marks(path, config)
        found = {name: config[name] for name in OPTIONS if config.get(name) is not None}
        if text.exists() or not fast.exists():
            vocabulary = {piece: number for number, piece in enumerate(read_lines(text))}
        if fast.exists():
            published, options = read_tokenizer(fast)
            if text.exists() and published != vocabulary:
                raise UserError(f"{folder}: {text.name} and {fast.name} hold other vocabularies")
            if "strip_accents" in config:  # null stands for the value of do_lower_case
                found.setdefault("strip_accents", options["do_lower_case"])
            for name, value in found.items():
                if options[name] != value:
                    raise UserError(
                        f"{folder}: {name} is {value} by {path.name} but {options[name]} by "
                        f"{fast.name}"
                    )
            vocabulary, found = published, options
        return cls(vocabulary, **{OPTIONS[name]: value for name, value in found.items()})

    @property
    def padding_id(self) -> int:
        """The id that fills short sentences up."""
        return self.vocabulary["[PAD]"]

    def encode(self, text: str, *, max_length: int) -> list[int]:
        """Turn a text into ids between the marks [CLS] and [SEP].

        Args:
            text: Any text.
            max_length: Most ids, both marks included; what is longer is cut at its end.
        """
        pieces = [piece for word in self._words(text) for piece in self._pieces(word)]
        marked = ["[CLS]", *pieces[: max_length - 2], "[SEP]"]
        return [self.vocabulary[piece] for piece in marked]

    def _words(self, text: str) -> Iterator[str]:
        """Clean a text and cut it at spaces and around punctuation."""
        text = "".join(" " if _is_space(c) else c for c in text if not _is_noise(c))
        if self.split_chinese:
            text = "".join(f" {c} " if _is_chinese(c) else c for c in text)
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)  # an accent gets a character of its own
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        if self.lower_case:
            text = "".join(c.lower() for c in text)  # one by one: a last Σ is no exception
        text = "".join(f" {c} " if _is_punctuation(c) else c for c in text)
        yield from text.split(" ")

    def _pieces(self, word: str) -> list[str]:
        """Cut a word into the longest pieces there are, from left to right."""
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocabulary:
                    break
            else:
                return ["[UNK]"]  # a word is known as a whole or not at all
            pieces.append(piece)
            start = end
        return pieces


def read_tokenizer(path: Path) -> tuple[dict[str, int], dict[str, bool]]:
    """Read the vocabulary and the options of a ``tokenizer.json``.

    Returns:
        The id of each piece, and the options by their names in ``tokenizer_config.json``.

    Raises:
        UserError: If the file is damaged, or describes another tokenizer than BERT's.
    """
    content = read_json(path)

    def part(name: str) -> dict[str, Any]:
        found = content.get(name)
        return found if isinstance(found, dict) else {"type": found}

    def expect(name: str, found: object, *wanted: object) -> None:
        if not any(found == each and type(found) is type(each) for each in wanted):
            raise UserError(
                f"{path}: {name} must be {wanted[0]!r} for this program, got {shown(found)}"
            )

    model, normalizer, ending = part("model"), part("normalizer"), part("post_processor")
    expect("model", "BPE" if "merges" in model else model.get("type", "WordPiece"), "WordPiece")
    expect("unk_token", model.get("unk_token"), MARKS["unk"])
    expect("continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##")
    longest = model.get("max_input_chars_per_word", LONGEST_WORD)
    expect("max_input_chars_per_word", longest, LONGEST_WORD)
    expect("normalizer", normalizer.get("type"), "BertNormalizer")
    expect("clean_text", normalizer.get("clean_text"), True)
    for name in ("lowercase", "handle_chinese_chars"):
        expect(name, normalizer.get(name), True, False)
    expect("strip_accents", normalizer.get("strip_accents"), None, True, False)
    expect("pre_tokenizer", part("pre_tokenizer").get("type"), "BertPreTokenizer")
    expect("post_processor", ending.get("type"), "TemplateProcessing", "BertProcessing")
    vocabulary = check_vocabulary(model.get("vocab"), path)
    marks = [MARKS["cls"], MARKS["sep"]]
    if ending["type"] == "BertProcessing":
        pairs = [[mark, vocabulary.get(mark)] for mark in marks]
        expect("post_processor", [ending.get("cls"), ending.get("sep")], pairs)
    else:
        template = [
            {"SpecialToken": {"id": marks[0], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": marks[1], "type_id": 0}},
        ]
        expect("post_processor", ending.get("single"), template)
        ids = {
            mark: {"id": mark, "ids": [vocabulary.get(mark)], "tokens": [mark]} for mark in marks
        }
        expect("special_tokens", ending.get("special_tokens"), ids)
    added = content.get("added_tokens") or []
    for token in added if isinstance(added, list) else [added]:
        # A special one that stands in a text is text to this program; another would be cut out.
        special = isinstance(token, dict) and token.get("special")
        expect(f"special of the added token {shown(token)}", special, True)
    lower_case, strip_accents = normalizer["lowercase"], normalizer.get("strip_accents")
    return vocabulary, {
        "do_lower_case": lower_case,
        "strip_accents": lower_case if strip_accents is None else strip_accents,
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def _check_marks(path: Path, config: dict[str, Any]) -> None:
    """Raise if a ``tokenizer_config.json`` names other marks, or tokens that are cut out of text.

    Raises:
        UserError: If it does.
    """
    for name, mark in MARKS.items():
        found = config.get(f"{name}_token") or mark
        found = found.get("content") if isinstance(found, dict) else found
        if found != mark:
            raise UserError(f"{path}: {name}_token must be {mark}, got {shown(found)}")
    added = config.get("added_tokens_decoder") or {}
    for token in added.values() if isinstance(added, dict) else [added]:
        if not isinstance(token, dict) or token.get("special") is not True:
            raise UserError(f"{path}: an added token must be special, got {shown(token)}")


def _is_flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _is_noise(character: str) -> bool:
    """Tell controls, formats, private and broken characters, and the mark of lost ones."""
    if character in "\t\n\r":
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs") or character == "\ufffd"


def _is_space(character: str) -> bool:
    return character in "\t\n\r" or unicodedata.category(character) in ("Zs", "Zl", "Zp")


def _is_chinese(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CHINESE)


def _is_punctuation(character: str) -> bool:
    """Tell punctuation; among ASCII, all that is neither letter nor digit nor space."""
    if character.isascii():
        return not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")
