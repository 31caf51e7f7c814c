"""Pairs: sentences with their translations, cleaned, and read from line-aligned files.

Both sides are cleaned (:func:`clean`), in training and in translation, so that the input has the
spelling that the model was trained on. References are *not* cleaned: a translation is scored
against the original text of the file.

Next: ``corpus.py`` splits the pairs.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from common.files import fingerprint
from common.terminal import counted
from common.text_files import UNSPACED, clean_text, normalize, read_lines

SMALL_PARALLEL_ENJA = "small_parallel_enja"
MAX_CHARACTERS = 10_000
"""Maximum number of characters of a line; pairs with a longer one are left out."""

_ENGLISH_TOKEN = re.compile(
    r"""''                              # a quotation mark
    | '(?:clock|d|ll|m|re|s|t|ve)\b     # as in o'clock, I'd, we'll, I'm, they're, don't, I've
    | (?:mrs?|ms|dr|prof)\.             # a title
    | (?:[a-z]\.)+(?!\.)                # an initial or an abbreviation: u.s.
    | \d+(?:[.,:]\d+)+                  # 1,000
    | \w+(?:-\w+)*                      # a word: part-time
    | \.\.+                             # an ellipsis
    | \S""",
    re.VERBOSE,
)

_log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: The cleaned sentence.
        target: Its cleaned translation, the target of training.
        reference: The translation as it is in the file, for scoring.
    """

    source: str
    target: str
    reference: str


Files = tuple[Path, Path]
"""A file of sentences, and a file that translates it line by line."""


@dataclass(frozen=True)
class Languages:
    """A corpus and the direction of its translation, which decide how sentences are cleaned.

    Attributes:
        corpus: The name of the corpus: "toy", "small_parallel_enja" or "files".
        source: Language code of the sentences.
        target: Language code of their translations.
    """

    corpus: str = "toy"
    source: str = "ja"
    target: str = "en"

    def clean(self, source: str, target: str) -> Pair:
        """Clean both sides of a pair, and store the uncleaned translation as the reference."""
        return Pair(
            source=clean(source, self.source, corpus=self.corpus),
            target=clean(target, self.target, corpus=self.corpus),
            reference=target,
        )


def clean(text: str, language: str, *, corpus: str) -> str:
    """Normalise a sentence to the one spelling that models are trained on.

    Any text may come in. Cleaning clean text changes nothing.

    Args:
        text: A line as it was read or typed.
        language: Its language, such as "ja" or "en".
        corpus: The name of the corpus that the model is trained on. The English of
            small_parallel_enja is tokenised and lower-cased; English becomes the same here.

    Returns:
        One line, without spaces at its ends; empty if it holds no visible character.

    Example:
        >>> clean(" １０ 時 に、 New  York で。", "ja", corpus="toy")
        '10時に、New Yorkで。'
        >>> clean("Don’t call Mr. Brown at 10 p.m.!", "en", corpus="small_parallel_enja")
        "don 't call mr. brown at 10 p.m. !"
    """
    text = clean_text(text, language)
    if is_tokenised(corpus, language):
        return " ".join(_ENGLISH_TOKEN.findall(text.lower().replace('"', "''")))
    return text


def read_pairs(files: Files, languages: Languages) -> list[Pair]:
    """Read and clean the pairs of two aligned files, and log how many were left out.

    A pair with a blank side, or a side beyond ``MAX_CHARACTERS``, is left out.

    Raises:
        UserError: If a file cannot be read or is not UTF-8, the files differ in length, or no pair
            is left.
    """
    sources, targets = map(read_lines, files)
    where = f"{files[0]} and {files[1]}"
    if len(sources) != len(targets):
        raise UserError(
            f"both files must have the same number of lines, got {files[0]} with {len(sources):,} "
            f"and {files[1]} with {len(targets):,}"
        )
    pairs, long, blank = [], 0, 0
    for source, target in zip(sources, targets, strict=True):
        if max(len(source), len(target)) > MAX_CHARACTERS:
            long += 1
        elif not (normalize(source) and normalize(target)):
            blank += 1
        else:
            pairs.append(languages.clean(source, target))
    if long or blank:
        _log.warning(
            f"{where}: left out {blank:,} of {len(sources):,} pairs with a blank side and {long:,} "
            f"longer than {MAX_CHARACTERS:,} characters"
        )
    if not pairs:
        raise UserError(f"{where} hold no sentence pair")
    return pairs


@dataclass(frozen=True)
class Corpus:
    """Clean sentence pairs in three splits that share no source sentence.

    Attributes:
        languages: Its name, and the languages of both sides.
        train: The training pairs.
        validation: The validation pairs, which decide which weights are best.
        test: The test pairs.
        held_out: The names of the splits that were held out from the training files.
    """

    languages: Languages
    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    held_out: tuple[str, ...] = ()

    @property
    def bleu_tokenizer(self) -> str:
        """The name of the tokenizer that sacreBLEU uses for the target language."""
        language = self.languages.target
        if language in UNSPACED:
            return "char"
        return "none" if is_tokenised(self.languages.corpus, language) else "13a"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all pairs, split by split."""
        return fingerprint(self.train, self.validation, self.test)

    @property
    def shown_pairs(self) -> list[Pair]:
        """The test pairs that are shown after a training: five, spread over the test split."""
        return self.test[:: max(1, len(self.test) // 5)][:5]

    @property
    def example_sentences(self) -> list[str]:
        """The test sentences that a page offers; the first is also the example of commands."""
        return [pair.source for pair in reversed(self.shown_pairs[-4:])]

    @property
    def sizes(self) -> str:
        """The number of pairs in each split, and which splits were held out, in words."""
        splits = {"training": self.train, "validation": self.validation, "test": self.test}
        sizes = ", ".join(counted(len(pairs), f"{name} pair") for name, pairs in splits.items())
        if not self.held_out:
            return sizes
        return f"{sizes} ({' and '.join(self.held_out)} held out from the training files)"


def is_tokenised(corpus: str, language: str) -> bool:
    """Return whether the sentences of a language are tokenised and lower-cased in a corpus."""
    return corpus == SMALL_PARALLEL_ENJA and language == "en"
