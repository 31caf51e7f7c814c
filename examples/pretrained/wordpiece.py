"""WordPiece: BERT's tokenizer.

WordPiece splits a text into tokens of a fixed vocabulary in three steps (Devlin et al. 2018,
https://arxiv.org/abs/1810.04805, section 3; the idea of the vocabulary is from "Japanese and Korean
Voice Search", Schuster and Nakajima 2012):

1. Normalise: remove control characters and, if the model was trained so, upper case and accents.
2. Split into words at spaces and punctuation. A Chinese character is a word of its own.
3. Match greedily: the first token of a word is the longest in the vocabulary that the word begins
   with; the next is the longest that the rest begins with, with ``##`` before it; and so on. A word
   that cannot be covered, or is longer than 100 characters, becomes one ``[UNK]``.

The library ``tokenizers`` performs the steps. This file configures it from published files, and
refuses files that describe a tokenizer of another kind.

Next: ``sentence_tokenizer.py``, RoBERTa's.
"""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from common.errors import UserError
from common.text_files import read_lines
from pretrained.loading import expect_parts, read_json, read_tokenizer, shown

MAX_WORD_LENGTH = 100
"""Characters; a longer word becomes [UNK]."""

FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt")
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")  # tokenizer.json names the model
DISTILBERT_CLASSES = ("DistilBertTokenizer", "DistilBertTokenizerFast")  # equal to BERT's
OPTIONS = {
    "do_lower_case": "lower_case",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "split_chinese",
}
"""Options of :meth:`WordPiece.from_vocabulary` by their names in ``tokenizer_config.json``."""

SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


PARTS: dict[str, dict[str, object]] = {
    "model": {
        "unk_token": SPECIAL["unk"],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": MAX_WORD_LENGTH,
    },
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
"""The parts of BERT's ``tokenizer.json``."""


class WordPiece:
    """BERT's tokenizer: text to token ids.

    A ``[SEP]`` within a text is text, never the special token.

    Args:
        tokenizer: A WordPiece tokenizer of the library ``tokenizers``. Its vocabulary must hold
            [PAD], [UNK], [CLS] and [SEP].

    Raises:
        UserError: If the vocabulary lacks a special token.

    Example:
        >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##know", "##n", "word", "!"]
        >>> tokenizer = WordPiece.from_vocabulary({token: id for id, token in enumerate(tokens)})
        >>> ids = tokenizer.encode("Unknown wörd!", max_length=10)
        >>> [tokens[id] for id in ids]
        ['[CLS]', 'un', '##know', '##n', 'word', '!', '[SEP]']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        for token in list(SPECIAL.values())[:4]:
            if token not in self.vocabulary:
                raise UserError(f"the vocabulary of a WordPiece tokenizer must hold {token}")

    @classmethod
    def from_vocabulary(
        cls,
        vocabulary: dict[str, int],
        *,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> "WordPiece":
        """Make a tokenizer of a vocabulary.

        Args:
            vocabulary: The id of each token, [PAD], [UNK], [CLS] and [SEP] among them.
            lower_case: Whether to replace "A" by "a".
            strip_accents: Whether to replace "é" by "e"; the value of ``lower_case`` if ``None``.
            split_chinese: Whether each Chinese character is a word of its own.

        Raises:
            UserError: If the vocabulary lacks a special token.
        """
        tokenizer = Tokenizer(
            WordPieceModel(
                vocabulary,
                unk_token=SPECIAL["unk"],
                continuing_subword_prefix="##",
                max_input_chars_per_word=MAX_WORD_LENGTH,
            )
        )
        tokenizer.normalizer = BertNormalizer(
            handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lower_case
        )
        tokenizer.pre_tokenizer = BertPreTokenizer()
        return cls(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> "WordPiece":
        """Read ``tokenizer.json`` or ``vocab.txt``, and ``tokenizer_config.json`` if it exists.

        Raises:
            UserError: If the vocabulary is missing or lacks a special token, the files contradict
                each other, or the tokenizer is of another kind.
        """
        path, fast, text = (folder / name for name in FILES)
        config = read_json(path) if path.exists() else {}
        found = config.get("tokenizer_class") or "BertTokenizer"
        known = ("BertTokenizer", "BertTokenizerFast", *DISTILBERT_CLASSES)
        if found not in known and not (fast.exists() and found in GENERIC_CLASSES):
            raise UserError(f"{path}: tokenizer_class must be BertTokenizer, got {shown(found)}")
        for name in OPTIONS:
            if not isinstance(config.get(name), bool | None):
                value = shown(config[name])
                raise UserError(f"{path}: {name} must be true, false or null, got {value}")
        _check_special_tokens(path, config)
        options = {name: config[name] for name in OPTIONS if config.get(name) is not None}
        if text.exists() or not fast.exists():
            vocabulary = {token: number for number, token in enumerate(read_lines(text))}
        if not fast.exists():
            return cls.from_vocabulary(
                vocabulary, **{OPTIONS[name]: value for name, value in options.items()}
            )
        tokenizer = cls(read_tokenizer(fast, "WordPiece"))
        if text.exists() and tokenizer.vocabulary != vocabulary:
            raise UserError(f"{folder}: {text.name} and {fast.name} hold other vocabularies")
        published = check_tokenizer(tokenizer, fast)
        if "strip_accents" in config:  # null stands for the value of do_lower_case
            options.setdefault("strip_accents", published["do_lower_case"])
        for name, value in options.items():
            if published[name] != value:
                raise UserError(
                    f"{folder}: {name} is {value} by {path.name} but {published[name]} by "
                    f"{fast.name}"
                )
        return tokenizer

    @property
    def padding_id(self) -> int:
        """The id of the padding token."""
        return self.vocabulary[SPECIAL["pad"]]

    def encode(self, text: str, *, max_length: int) -> list[int]:
        """Turn a text into token ids between [CLS] and [SEP].

        Args:
            text: Any text.
            max_length: Maximum number of ids, the two special tokens included; a longer text is
                truncated.
        """
        text = text.encode(errors="ignore").decode()  # without lone surrogates
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids[: max_length - 2]
        return [self.vocabulary[SPECIAL["cls"]], *ids, self.vocabulary[SPECIAL["sep"]]]


def check_tokenizer(found: WordPiece, path: Path) -> dict[str, bool]:
    """Check that a ``tokenizer.json`` describes BERT's tokenizer, and return its options.

    Args:
        found: The tokenizer that was read from the file.
        path: The file, which errors name.

    Returns:
        The options by their names in ``tokenizer_config.json``.

    Raises:
        UserError: If the file describes another tokenizer.
    """
    tokenizer = found.tokenizer
    normalizer = expect_parts(path, tokenizer, PARTS)["normalizer"]
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    cls, sep = (found.vocabulary[SPECIAL[name]] for name in ("cls", "sep"))
    if tokenizer.encode("a").ids != [cls, *plain, sep]:
        raise UserError(f"{path}: post_processor must add [CLS] before a text and [SEP] after it")
    lower_case, strip_accents = normalizer["lowercase"], normalizer["strip_accents"]
    return {
        "do_lower_case": lower_case,
        "strip_accents": lower_case if strip_accents is None else strip_accents,
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def _check_special_tokens(path: Path, config: dict[str, Any]) -> None:
    """Raise if a ``tokenizer_config.json`` names other special tokens, or adds ordinary ones.

    Raises:
        UserError: If it does.
    """
    for name, token in SPECIAL.items():
        found = config.get(f"{name}_token") or token
        found = found.get("content") if isinstance(found, dict) else found
        if found != token:
            raise UserError(f"{path}: {name}_token must be {token}, got {shown(found)}")
    added = config.get("added_tokens_decoder") or {}
    for each in added.values() if isinstance(added, dict) else [added]:
        if not isinstance(each, dict) or each.get("special") is not True:
            raise UserError(f"{path}: an added token must be special, got {shown(each)}")
