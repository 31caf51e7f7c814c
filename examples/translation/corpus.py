"""Corpora: sentence pairs, how they are loaded, cleaned and split.

:func:`load_corpus` loads any of three corpora. Each is split into training, validation and test
pairs, and no source sentence is in two of them, so that memorised sentences do not count.

Next: ``download.py`` fetches the real corpus.
"""

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.terminal import counted
from common.text_files import UNSPACED
from translation.download import fetch, verify
from translation.pairs import (
    SMALL_PARALLEL_ENJA,
    Files,
    Languages,
    Pair,
    is_tokenised,
    read_pairs,
)
from translation.presets import TranslatorConfig
from translation.toy import toy_corpus

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
HELD_OUT = 500
"""Maximum number of source sentences that are held out for a split: at most 5 % of all."""

_log = logging.getLogger(__name__)


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
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for pair in split:
                digest.update(f"{pair.source}\t{pair.target}\n".encode())
                if pair.reference != pair.target and split is not self.train:
                    digest.update(f"\t{pair.reference}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def sample(self, most: int) -> list[Pair]:
        """Return the training pairs, or every n-th if there are more than ``most``."""
        return self.train[:: max(1, math.ceil(len(self.train) / most))]

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


def load_corpus(
    languages: Languages, *, data_dir: Path | None = None, files: Mapping[str, Files] | None = None
) -> Corpus:
    """Load, clean and split a corpus.

    Args:
        languages: The corpus: "toy", which is generated; "small_parallel_enja", which is downloaded
            at its first use; or "files", line-aligned files of your own. Its languages are "ja" and
            "en", in either direction; with "files", any codes.
        data_dir: With "small_parallel_enja", a folder that holds its six files; nothing is
            downloaded then.
        files: With "files", the sentences and their translations of the splits "train",
            "validation" and "test". For each of the last two that is missing, 5 % of the different
            training sentences, at most 500, are held out.

    Returns:
        The same corpus for the same arguments, always.

    Raises:
        UserError: If arguments contradict each other, a file is unreadable, or the network fails.
    """
    name, codes = languages.corpus, (languages.source, languages.target)
    if data_dir is not None and name != SMALL_PARALLEL_ENJA:
        raise UserError(f"a data folder belongs to {SMALL_PARALLEL_ENJA}, not to the corpus {name}")
    if name != "files" and set(codes) != {"ja", "en"}:
        raise UserError(
            f"{name} translates from ja to en or from en to ja, got {' to '.join(codes)}"
        )
    found: dict[str, list[Pair]] = {}
    held_out: list[str] = []
    if files:
        found = {split: read_pairs(paths, languages) for split, paths in files.items()}
        held_out = [split for split in ("validation", "test") if split not in found]
        found |= _hold_out(found["train"], held_out, where=" and ".join(map(str, files["train"])))
    elif name == "toy":
        order = 1 if languages.source == "ja" else -1
        for split, sentences in toy_corpus().items():
            found[split] = [languages.clean(*pair[::order]) for pair in sentences]
    else:
        if data_dir is None:
            data_dir = DATA_DIR
            fetch(SHA256, data_dir, base_url=BASE_URL)
        else:
            verify(SHA256, data_dir)
        for split, stem in (("train", "train"), ("validation", "dev"), ("test", "test")):
            source, target = (data_dir / f"{stem}.{code}" for code in codes)
            found[split] = read_pairs((source, target), languages)
    splits = _disjoint(found)
    for split, pairs in splits.items():
        if not pairs:
            raise UserError(
                f"the corpus {name} has no {split} pair whose source is in no later split"
            )
    return Corpus(languages, **splits, held_out=tuple(held_out))


def corpus_of(config: TranslatorConfig) -> Corpus:
    """Load the corpus of a run, and check that it is unchanged.

    Raises:
        UserError: If the corpus has changed since the run began.
    """
    data_dir = None if config.data_dir is None else Path(config.data_dir)
    corpus = load_corpus(config.languages, data_dir=data_dir, files=config.files)
    config.check_data(corpus.fingerprint)
    return corpus


def seen_targets(corpus: Corpus) -> list[int]:
    """Find the test pairs whose translation occurs in the training pairs.

    Different sentences may share a translation (はい。 and そうです。 are both "Yes."), so even
    disjoint splits can have targets in common. Report the score with and without these pairs.

    Returns:
        Indices into ``corpus.test``, ascending.
    """
    known = {pair.target for pair in corpus.train}
    return [i for i, pair in enumerate(corpus.test) if pair.target in known]


def _hold_out(pairs: Sequence[Pair], names: Sequence[str], *, where: str) -> dict[str, list[Pair]]:
    """Choose 5 % of the source sentences, at most ``HELD_OUT``, for each named split.

    Sentences are chosen by their hash, so that neither their order nor duplicates matter.

    Returns:
        The pairs of each named split, and the others as "train".
    """
    sources = {pair.source for pair in pairs}
    if names and len(sources) <= len(names):
        raise UserError(
            f"holding out {' and '.join(names)} needs at least {len(names) + 1} different source "
            f"sentences, got {len(sources)}: {where}"
        )
    size = min(HELD_OUT, max(1, len(sources) // 20))
    order = sorted(sources, key=lambda text: hashlib.sha256(f"0 {text}".encode()).digest())
    split_of = dict.fromkeys(sources, "train")
    for number, name in enumerate(names):
        split_of |= dict.fromkeys(order[number * size : (number + 1) * size], name)
    splits: dict[str, list[Pair]] = {name: [] for name in ("train", *names)}
    for pair in pairs:
        splits[split_of[pair.source]].append(pair)
    return splits


def _disjoint(splits: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Drop the source sentences of the test set from validation, and those of both from train."""
    taken: set[str] = set()
    result: dict[str, list[Pair]] = {}
    for split in ("test", "validation", "train"):
        result[split] = [pair for pair in splits[split] if pair.source not in taken]
        taken |= {pair.source for pair in result[split]}
        if dropped := len(splits[split]) - len(result[split]):
            pairs = counted(dropped, "training pair" if split == "train" else f"{split} pair")
            _log.info(f"left out {pairs} whose source is in a later split")
    return result
