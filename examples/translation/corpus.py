"""Sentence pairs: where they come from and what is done to them before a model sees them.

Three corpora stand behind one door, :func:`load_corpus`. Each is split into training, validation
and test pairs, and no source sentence is in two of them: a model is asked to translate, not to
remember.

Text comes in many spellings of the same thing: １０ and 10, ｶﾅ and カナ, curly and straight
apostrophes, spaces inside Japanese. :func:`clean` chooses one. Training and use both go through
it, so that what a person types looks like what the model has learnt from. References are cleaned as
well, therefore scores compare like with like.

Next: ``download.py`` fetches the real corpus.
"""

import hashlib
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from translation.download import fetch, verify
from translation.errors import UserError
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
"""A longer line is no sentence; its pair is left out."""

_UNSPACED = {"ja", "zh"}  # languages written without spaces
_CJK = "[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # ideographs, kana, punctuation
_CJK_SPACE = re.compile(rf"(?<={_CJK}) | (?={_CJK}|[!?])")
_QUOTES = str.maketrans("‘’´“”", "'''\"\"")
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
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class Corpus:
    """Clean sentence pairs in three splits that share no source sentence."""

    name: str
    source_language: str
    target_language: str
    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]

    @property
    def bleu_tokenizer(self) -> str:
        """How sacreBLEU shall cut the target into words: one of its ``tokenize`` names."""
        if self.target_language in _UNSPACED:
            return "char"
        return "none" if _is_tokenised(self.name, self.target_language) else "13a"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all pairs, split by split: a run is only scored on what it began with."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for pair in split:
                digest.update(f"{pair.source}\t{pair.target}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()


def load_corpus(
    name: str,
    *,
    source_language: str = "ja",
    target_language: str = "en",
    data_dir: Path | None = None,
    files: tuple[Path, Path] | None = None,
    seed: int = 0,
) -> Corpus:
    """Load, clean and split a corpus.

    Args:
        name: "toy", made on the spot; "small_parallel_enja", downloaded at its first use; or
            "files", two line-aligned files of your own.
        source_language: "ja" or "en"; with "files", any code.
        target_language: The other one.
        data_dir: With "small_parallel_enja", a folder that holds its six files. It is only read,
            and the network is left alone.
        files: With "files", the sentences and their translations.
        seed: Of the sentences in "toy" and of the split of "files".

    Returns:
        The same corpus for the same arguments, always.

    Raises:
        UserError: If the arguments do not go together, a file is unreadable, or the network fails.
    """
    if name not in ("toy", SMALL_PARALLEL_ENJA, "files"):
        raise UserError(f"the corpus must be toy, {SMALL_PARALLEL_ENJA} or files, got {name!r}")
    if data_dir is not None and name != SMALL_PARALLEL_ENJA:
        raise UserError(f"a data folder belongs to {SMALL_PARALLEL_ENJA}, not to the corpus {name}")
    if (files is not None) != (name == "files"):
        raise UserError("the corpus 'files', and no other, needs a source file and a target file")
    if name != "files" and {source_language, target_language} != {"ja", "en"}:
        raise UserError(
            f"{name} translates from ja to en or from en to ja, got {source_language} to "
            f"{target_language}"
        )

    def cleaned(pairs: Iterable[tuple[str, str]]) -> list[Pair]:
        return [
            Pair(
                clean(source, source_language, corpus=name),
                clean(target, target_language, corpus=name),
            )
            for source, target in pairs
        ]

    if files is not None:
        splits = _split(cleaned(read_pairs(*files)), seed=seed, where=f"{files[0]} and {files[1]}")
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
            paths = (data_dir / f"{stem}.{code}" for code in (source_language, target_language))
            splits[split] = cleaned(read_pairs(*paths))
    return Corpus(name, source_language, target_language, **_disjoint(splits))


def seen_targets(corpus: Corpus) -> list[int]:
    """Find the test pairs whose translation the model has read in training.

    Different sentences may share a translation (はい。 and そうです。 are both "Yes."), so even
    disjoint splits can have targets in common. Report the score with and without these pairs.

    Returns:
        Indices into ``corpus.test``, ascending.
    """
    known = {pair.target for pair in corpus.train}
    return [i for i, pair in enumerate(corpus.test) if pair.target in known]


def download_small_parallel_enja(data_dir: Path, *, base_url: str = BASE_URL) -> None:
    """Download the six files of small_parallel_enja (4.5 MB), as far as they are not there yet.

    50,000 pairs of everyday sentences, prepared by Yusuke Oda from the Tanaka Corpus.

    Raises:
        UserError: If the network or the disk fails, or a file is not the one that we know.
    """
    fetch(SHA256, data_dir, base_url=base_url)


def clean(text: str, language: str, *, corpus: str) -> str:
    """Bring a sentence into the one spelling that models are trained on.

    Any text may come in. Cleaning clean text changes nothing.

    Args:
        text: A line as it was read or typed.
        language: Its language, such as "ja" or "en".
        corpus: The name of the corpus that the model is trained on. The English of
            small_parallel_enja is tokenised and lower-cased; English becomes the same here.

    Returns:
        One line, without spaces at its ends; empty if there was nothing to see.

    Example:
        >>> clean(" １０ 時 に、 New  York で。", "ja", corpus="toy")
        '10時に、New Yorkで。'
        >>> clean("Don’t call Mr. Brown at 10 p.m.!", "en", corpus="small_parallel_enja")
        "don 't call mr. brown at 10 p.m. !"
    """
    if language == "en":
        text = text.translate(_QUOTES)
    text = _visible(text)
    if language in _UNSPACED:
        # Again until nothing changes: a mark that joins its letter may lay another space bare.
        while (joined := unicodedata.normalize("NFKC", _CJK_SPACE.sub("", text))) != text:
            text = joined
    if _is_tokenised(corpus, language):
        return " ".join(_ENGLISH_TOKEN.findall(text.lower().replace('"', "''")))
    return text


def read_lines(path: Path) -> list[str]:
    r"""Read the lines of a UTF-8 file, however it was saved.

    A byte order mark, ``\r\n`` and a missing end of the last line make no difference. Only ``\n``
    ends a line: ``str.splitlines`` would also cut at U+2028 and others, and shift one file of a
    pair against the other.

    Raises:
        UserError: If the file cannot be read, or holds something else than UTF-8 text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [decode_line(line, where=f"{path}:{number}") for number, line in enumerate(lines, 1)]


def decode_line(line: bytes, *, where: str) -> str:
    r"""Decode one line of UTF-8, less its ``\r\n`` or ``\n`` and a byte order mark at its start.

    Raises:
        UserError: If it is something else than UTF-8 text; it names ``where`` and the byte.
    """
    line = line.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where} is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start}; "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise UserError(f"{where} holds a NUL byte (0x00); save the file as UTF-8 text")
    return text


def read_pairs(source_path: Path, target_path: Path) -> list[Pair]:
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
    for pair in map(Pair, sources, targets):
        if max(map(len, pair)) > MAX_CHARACTERS:
            long += 1
        elif not all(map(_visible, pair)):
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


def _visible(text: str) -> str:
    """Drop control, format and surrogate characters; NFKC; single spaces, none at the ends."""
    if not text.isprintable():
        unseen = {"Cc", "Cf", "Cs"}
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in unseen)
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _is_tokenised(corpus: str, language: str) -> bool:
    return corpus == SMALL_PARALLEL_ENJA and language == "en"


def _split(pairs: list[Pair], *, seed: int, where: str) -> dict[str, list[Pair]]:
    """Give validation and test 5% of the source sentences each, but no more than 500.

    Sentences are dealt by a hash of themselves, so neither their order nor copies of them matter.
    """
    sources = {pair.source for pair in pairs}
    if len(sources) < 3:
        raise UserError(f"three splits need three different sentences, got {len(sources)}: {where}")
    size = min(500, max(1, len(sources) // 20))
    dealt = sorted(sources, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())
    validation, test = set(dealt[:size]), set(dealt[size : 2 * size])
    return {
        "train": [pair for pair in pairs if pair.source not in validation | test],
        "validation": [pair for pair in pairs if pair.source in validation],
        "test": [pair for pair in pairs if pair.source in test],
    }


def _disjoint(splits: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Keep the test set whole, and drop its source sentences from validation, both from train."""
    taken: set[str] = set()
    result = {}
    for split in ("test", "validation", "train"):
        result[split] = [pair for pair in splits[split] if pair.source not in taken]
        taken |= {pair.source for pair in result[split]}
        dropped = len(splits[split]) - len(result[split])
        if dropped:
            _log.info(f"left {dropped:,} {split} pairs out: their source is in a later split")
    return result
