"""Pairs: sentences with their translations, cleaned, and read from line-aligned files.

Both sides are cleaned (:func:`clean`), in training and in translation, so that the input has the
spelling that the model was trained on. References are *not* cleaned: a translation is scored
against the original text of the file.

The training files may be larger than the memory. :class:`FilePairs` reads them part by part, in
several processes, whose results come in the order of the lines.

Next: ``corpus.py`` splits the pairs.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from common.errors import UserError
from common.files import disk_errors
from common.parallel import cpu_count, map_in_order
from common.text_files import clean_text, decode_line, normalize

SMALL_PARALLEL_ENJA = "small_parallel_enja"
MAX_CHARACTERS = 10_000
"""Maximum number of characters of a line; pairs with a longer one are left out."""
PART = 8192
"""Number of lines that a process reads at once."""

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

Result = TypeVar("Result")


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


class Lines(NamedTuple):
    """Lines of two aligned files, undecoded.

    Attributes:
        first: Number of the first line, from 1.
        sources: Lines of the source file.
        targets: Lines of the target file.
    """

    first: int
    sources: list[bytes]
    targets: list[bytes]


Counts = Counter[str]
"""Numbers of "lines" that were read, of "pairs", and of those left out: "blank" and "long"."""


def report(counts: Counts, files: Files) -> None:
    """Log how many pairs were left out.

    Raises:
        UserError: If none is left.
    """
    where = f"{files[0]} and {files[1]}"
    if counts["pairs"] < counts["lines"]:
        _log.warning(
            f"{where}: left out {counts['blank']:,} of {counts['lines']:,} pairs with a blank side "
            f"and {counts['long']:,} longer than {MAX_CHARACTERS:,} characters"
        )
    if not counts["pairs"]:
        raise UserError(f"{where} hold no sentence pair")


def read_aligned(files: Files) -> Iterator[Lines]:
    """Read two aligned files part by part.

    Raises:
        UserError: If a file cannot be read, or the files differ in length.
    """
    with (
        disk_errors(f"cannot read {files[0]}"),
        files[0].open("rb") as sources,
        disk_errors(f"cannot read {files[1]}"),
        files[1].open("rb") as targets,
    ):
        for done in count(0, PART):
            parts = list(islice(sources, PART)), list(islice(targets, PART))
            if len(parts[0]) != len(parts[1]):
                counts = [
                    done + len(part) + sum(1 for _ in file)
                    for part, file in zip(parts, (sources, targets), strict=True)
                ]
                raise UserError(
                    f"both files must have the same number of lines, got {files[0]} with "
                    f"{counts[0]:,} and {files[1]} with {counts[1]:,}"
                )
            if not parts[0]:
                return
            yield Lines(done + 1, *parts)


@dataclass(frozen=True)
class FilePairs(Collection[Pair]):
    """The clean pairs of two aligned files, which are read each time they are iterated over.

    The pairs in memory are those of a few parts, however long the files are.

    Attributes:
        files: The files.
        languages: How the pairs are cleaned.
        left_out: Source sentences whose pairs are left out: those of other splits.
        lines: Number of lines of each file.
        pairs: Number of pairs.
    """

    files: Files
    languages: Languages
    left_out: frozenset[str] = frozenset()
    lines: int = 0
    pairs: int = 0

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self.pairs

    def __iter__(self) -> Iterator[Pair]:
        """Read the pairs, in the order of the lines."""
        for pairs, _ in self.map(list):
            yield from pairs

    def __contains__(self, pair: object) -> bool:
        """Read the pairs until ``pair`` is found."""
        return any(each == pair for each in self)

    def map(
        self, function: Callable[[list[Pair]], Result], *, workers: int | None = None
    ) -> Iterator[tuple[Result, Counts]]:
        """Apply a function to the pairs of each part of the files, in several processes.

        Args:
            function: The function, which must be picklable.
            workers: Number of processes; by default one for each CPU.

        Yields:
            The result for each part, in the order of the lines, and the numbers of its lines.

        Raises:
            UserError: If a file cannot be read or is not UTF-8, or the files differ in length.
        """
        parts = read_aligned(self.files)
        return map_in_order(partial(self._read, function), parts, workers=workers or cpu_count())

    def _read(
        self, function: Callable[[list[Pair]], Result], lines: Lines
    ) -> tuple[Result, Counts]:
        """Decode and clean the lines of a part, and apply a function to the pairs.

        A pair with a blank side, or a side beyond ``MAX_CHARACTERS``, is left out.
        """
        pairs, counts = [], Counter(lines=len(lines.sources))
        both = zip(lines.sources, lines.targets, strict=True)
        for number, sides in enumerate(both, start=lines.first):
            source, target = (
                decode_line(line, where=f"{path}:{number}")
                for line, path in zip(sides, self.files, strict=True)
            )
            if max(len(source), len(target)) > MAX_CHARACTERS:
                counts["long"] += 1
            elif not (normalize(source) and normalize(target)):
                counts["blank"] += 1
            else:
                pairs.append(self.languages.clean(source, target))
        counts["pairs"] = len(pairs)
        return function([each for each in pairs if each.source not in self.left_out]), counts

    def load(self) -> list[Pair]:
        """Read all pairs into memory, and log how many were left out.

        Raises:
            UserError: If a file cannot be read, the files differ in length, or no pair is left.
        """
        pairs, counts = [], Counter[str]()
        for found, more in self.map(list, workers=1):
            pairs += found
            counts += more
        report(counts, self.files)
        return pairs


def is_tokenised(corpus: str, language: str) -> bool:
    """Return whether the sentences of a language are tokenised and lower-cased in a corpus."""
    return corpus == SMALL_PARALLEL_ENJA and language == "en"
