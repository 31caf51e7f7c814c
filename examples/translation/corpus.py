"""Corpora: sentence pairs, how they are loaded, cleaned and split.

:func:`load_corpus` loads any of three corpora. Each is split into training, validation and test
pairs, and no source sentence is in two of them, so that memorised sentences do not count.

Both sides are cleaned (:func:`clean`), in training and in translation, so that the input has the
spelling that the model was trained on. References are *not* cleaned: a translation is scored
against the original text of the file.

Next: ``download.py`` fetches the real corpus.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from common.text_files import UNSPACED, clean_text, normalize, read_lines
from translation.download import fetch, verify
from translation.toy import toy_corpus

SMALL_PARALLEL_ENJA = "small_parallel_enja"
COMMIT = "312408a11c5fbcbc09443bebb18121f7efdcd61e"
BASE_URL = f"https://raw.githubusercontent.com/odashi/small_parallel_enja/{COMMIT}"
DATA_DIR = Path(__file__).resolve().parents[2] / "data" / SMALL_PARALLEL_ENJA
SHA256 = {
    "dev.en": "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041",
    "dev.ja": "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca",
    "test.en": "45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf",
    "test.ja": "d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef",
    "train.en": "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76",
    "train.ja": "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc",
}
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
class Corpus:
    """Clean sentence pairs in three splits that share no source sentence.

    Attributes:
        name: "toy", "small_parallel_enja" or "files".
        source_language: Language code of the source sentences.
        target_language: Language code of the target sentences.
        train: The training pairs.
        validation: The validation pairs, which decide which weights are best.
        test: The test pairs.
        held_out: The names of the splits that were held out from the training files.
    """

    name: str
    source_language: str
    target_language: str
    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    held_out: tuple[str, ...] = ()

    @property
    def bleu_tokenizer(self) -> str:
        """The name of the tokenizer that sacreBLEU uses for the target language."""
        if self.target_language in UNSPACED:
            return "char"
        return "none" if _is_tokenised(self.name, self.target_language) else "13a"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all pairs, split by split."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for pair in split:
                digest.update(f"{pair.source}\t{pair.target}\n".encode())
                if split is not self.train and pair.reference != pair.target:
                    digest.update(f"\t{pair.reference}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()

    @property
    def sizes(self) -> str:
        """The number of pairs in each split, and which splits were held out, in words."""
        sizes = (
            f"{len(self.train):,} training pairs, {len(self.validation):,} validation pairs, "
            f"{len(self.test):,} test pairs"
        )
        if not self.held_out:
            return sizes
        return f"{sizes} ({' and '.join(self.held_out)} held out from the training files)"


def load_corpus(
    name: str,
    *,
    source_language: str = "ja",
    target_language: str = "en",
    data_dir: Path | None = None,
    files: Files | None = None,
    validation_files: Files | None = None,
    test_files: Files | None = None,
    seed: int = 0,
) -> Corpus:
    """Load, clean and split a corpus.

    Args:
        name: "toy", which is generated; "small_parallel_enja", which is downloaded at its first
            use; or "files", two line-aligned files of your own.
        source_language: "ja" or "en"; with "files", any code.
        target_language: The other one of the two; with "files", any code.
        data_dir: With "small_parallel_enja", a folder that holds its six files; nothing is
            downloaded then.
        files: With "files", the training sentences and their translations.
        validation_files: With "files", the validation sentences and their translations. Without,
            5 % of the different sentences of ``files``, at most 500, are held out.
        test_files: With "files", the same for the test sentences.
        seed: Seed of the sentences of "toy", and of the choice of held-out sentences of "files".

    Returns:
        The same corpus for the same arguments, always.

    Raises:
        UserError: If arguments contradict each other, a file is unreadable, or the network fails.
    """
    if name not in ("toy", SMALL_PARALLEL_ENJA, "files"):
        raise UserError(f"the corpus must be toy, {SMALL_PARALLEL_ENJA} or files, got {name!r}")
    if data_dir is not None and name != SMALL_PARALLEL_ENJA:
        raise UserError(f"a data folder belongs to {SMALL_PARALLEL_ENJA}, not to the corpus {name}")
    if (files is not None) != (name == "files"):
        raise UserError("the corpus 'files', and no other, needs a source file and a target file")
    if (validation_files or test_files) and name != "files":
        raise UserError(f"validation and test files belong to the corpus files, not to {name}")
    languages = (source_language, target_language)
    if name != "files" and set(languages) != {"ja", "en"}:
        raise UserError(
            f"{name} translates from ja to en or from en to ja, got {source_language} to "
            f"{target_language}"
        )

    cleaned = partial(
        _clean_pairs,
        source_language=source_language,
        target_language=target_language,
        corpus=name,
    )
    held_out: list[str] = []
    if files is not None:
        splits = {"train": cleaned(read_pairs(*files))}
        for split, paths in (("validation", validation_files), ("test", test_files)):
            if paths is not None:
                splits[split] = cleaned(read_pairs(*paths))
        held_out = [split for split in ("validation", "test") if split not in splits]
        splits = _hold_out(splits, held_out, seed=seed, where=f"{files[0]} and {files[1]}")
    elif name == "toy":
        splits = {
            split: cleaned((ja, en) if source_language == "ja" else (en, ja) for ja, en in pairs)
            for split, pairs in toy_corpus(seed=seed).items()
        }
    else:
        if data_dir is None:
            download_small_parallel_enja(DATA_DIR)
            data_dir = DATA_DIR
        else:
            verify(SHA256, data_dir)
        splits = {}
        for split, stem in (("train", "train"), ("validation", "dev"), ("test", "test")):
            source, target = (data_dir / f"{stem}.{code}" for code in languages)
            splits[split] = cleaned(read_pairs(source, target))
    splits = _disjoint(splits)
    for split, pairs in splits.items():
        if not pairs:
            raise UserError(
                f"the corpus {name} has no {split} pair whose source is in no later split"
            )
    return Corpus(name, source_language, target_language, **splits, held_out=tuple(held_out))


def load_test_pairs(
    files: Files, *, source_language: str, target_language: str, corpus: str
) -> list[Pair]:
    """Load and clean the pairs of two files, to score a trained model on.

    Args:
        files: The sentences and their translations.
        source_language: Language code of the sentences.
        target_language: Language code of their translations.
        corpus: The name of the corpus that the model was trained on.

    Raises:
        UserError: If a file cannot be read, the files differ in length, or no pair is left.
    """
    return _clean_pairs(
        read_pairs(*files),
        source_language=source_language,
        target_language=target_language,
        corpus=corpus,
    )


def seen_targets(corpus: Corpus) -> list[int]:
    """Find the test pairs whose translation occurs in the training pairs.

    Different sentences may share a translation (はい。 and そうです。 are both "Yes."), so even
    disjoint splits can have targets in common. Report the score with and without these pairs.

    Returns:
        Indices into ``corpus.test``, ascending.
    """
    known = {pair.target for pair in corpus.train}
    return [i for i, pair in enumerate(corpus.test) if pair.target in known]


def download_small_parallel_enja(data_dir: Path, *, base_url: str = BASE_URL) -> None:
    """Download those of the six files of small_parallel_enja (4.5 MB) that are missing.

    50,000 pairs of everyday sentences, prepared by Yusuke Oda from the Tanaka Corpus.

    Raises:
        UserError: If the network or the disk fails, or a file has another checksum.
    """
    fetch(SHA256, data_dir, base_url=base_url)


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
    if _is_tokenised(corpus, language):
        return " ".join(_ENGLISH_TOKEN.findall(text.lower().replace('"', "''")))
    return text


def read_pairs(source_path: Path, target_path: Path) -> list[tuple[str, str]]:
    """Read two files of which each line translates the same line of the other.

    A pair with a blank side, or a side beyond ``MAX_CHARACTERS``, is left out and counted in a
    warning; its neighbours stay aligned.

    Raises:
        UserError: If a file cannot be read, the files differ in length, or no pair is left.
    """
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        raise UserError(
            f"both files must have the same number of lines, got {source_path} with "
            f"{len(sources):,} and {target_path} with {len(targets):,}"
        )
    pairs, blank, long = [], 0, 0
    for pair in zip(sources, targets, strict=True):
        if max(map(len, pair)) > MAX_CHARACTERS:
            long += 1
        elif not all(map(normalize, pair)):
            blank += 1
        else:
            pairs.append(pair)
    if blank or long:
        _log.warning(
            f"{source_path} and {target_path}: left out {blank:,} of {len(sources):,} pairs with a "
            f"blank side and {long:,} longer than {MAX_CHARACTERS:,} characters"
        )
    if not pairs:
        raise UserError(f"{source_path} and {target_path} hold no sentence pair")
    return pairs


def _is_tokenised(corpus: str, language: str) -> bool:
    return corpus == SMALL_PARALLEL_ENJA and language == "en"


def _clean_pairs(
    pairs: Iterable[tuple[str, str]], *, source_language: str, target_language: str, corpus: str
) -> list[Pair]:
    """Clean both sides of each pair, and store the uncleaned translation as the reference."""
    return [
        Pair(
            source=clean(source, source_language, corpus=corpus),
            target=clean(target, target_language, corpus=corpus),
            reference=target,
        )
        for source, target in pairs
    ]


def _hold_out(
    given: Mapping[str, list[Pair]], names: Sequence[str], *, seed: int, where: str
) -> dict[str, list[Pair]]:
    """Move 5 % of the source sentences of "train", at most 500, to each named split.

    Sentences are chosen by their hash, so that neither their order nor duplicates matter.
    """
    pairs = given["train"]
    sources = {pair.source for pair in pairs}
    if len(sources) <= len(names):
        raise UserError(
            f"holding out {' and '.join(names)} needs at least {len(names) + 1} different source "
            f"sentences, got {len(sources)}: {where}"
        )
    size = min(500, max(1, len(sources) // 20))
    order = sorted(sources, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())
    split_of = {
        source: name
        for number, name in enumerate(names)
        for source in order[number * size : (number + 1) * size]
    }
    splits: dict[str, list[Pair]] = {**given, "train": [], **{name: [] for name in names}}
    for pair in pairs:
        splits[split_of.get(pair.source, "train")].append(pair)
    return splits


def _disjoint(splits: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Drop the source sentences of the test set from validation, and those of both from train."""
    taken: set[str] = set()
    result = {}
    for split in ("test", "validation", "train"):
        result[split] = [pair for pair in splits[split] if pair.source not in taken]
        taken |= {pair.source for pair in result[split]}
        dropped = len(splits[split]) - len(result[split])
        if dropped:
            _log.info(f"left {dropped:,} {split} pairs out: their source is in a later split")
    return result
