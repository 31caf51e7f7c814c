"""Corpora: sentence pairs, how they are loaded, cleaned and split.

:func:`load_corpus` loads any of three corpora. Each is split into training, validation and test
pairs, and no source sentence is in two of them, so that memorised sentences do not count.

The real corpus is downloaded at its first use.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pooch

from common.errors import UserError
from common.files import file_hash
from common.terminal import counted
from translation.pairs import SMALL_PARALLEL_ENJA, Corpus, Files, Languages, Pair, read_pairs
from translation.presets import TranslatorConfig
from translation.toy import FOLDER

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
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
HELD_OUT = 500
"""Maximum number of source sentences that are held out for a split: at most 5 % of all."""

_log = logging.getLogger(__name__)


def load_corpus(
    languages: Languages, *, data_dir: Path | None = None, files: Mapping[str, Files] | None = None
) -> Corpus:
    """Load, clean and split a corpus.

    Args:
        languages: The corpus: "toy"; "small_parallel_enja", which is downloaded
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
    else:
        folder = FOLDER if name == "toy" else real_corpus(data_dir)
        for split, stem in (("train", "train"), ("validation", "dev"), ("test", "test")):
            source, target = (folder / f"{stem}.{code}" for code in codes)
            found[split] = read_pairs((source, target), languages)
    splits = _disjoint(found)
    for split, pairs in splits.items():
        if not pairs:
            raise UserError(
                f"the corpus {name} has no {split} pair whose source is in no later split"
            )
    return Corpus(languages, **splits, held_out=tuple(held_out))


def real_corpus(data_dir: Path | None) -> Path:
    """Return the folder of the real corpus, which is downloaded unless ``data_dir`` holds it.

    Raises:
        UserError: If ``data_dir`` lacks a file, or one has another checksum.
    """
    if data_dir is None:
        fetch(DATA_DIR)
        return DATA_DIR
    for name, expected in SHA256.items():
        path = data_dir / name
        if not path.is_file() or file_hash(path) != expected:
            raise UserError(f"{path} must be a file with SHA-256 {expected}")
    return data_dir


def fetch(folder: Path) -> None:
    """Download the files of the real corpus that are missing, or have another checksum.

    Raises:
        UserError: If the network or the disk fails, or a file arrives with another checksum. The
            file on the disk is then unchanged.
    """
    hashes = {name: f"sha256:{value}" for name, value in SHA256.items()}
    source = pooch.create(folder, f"{BASE_URL}/", registry=hashes)
    for name in hashes:
        try:
            source.fetch(name, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
        except (OSError, ValueError) as error:  # ValueError: of another checksum
            raise UserError(
                f"cannot download {BASE_URL}/{name} into {folder}: {error}; run again, or name a "
                f"folder that holds {', '.join(hashes)} with --data-dir"
            ) from error


def corpus_of(config: TranslatorConfig) -> Corpus:
    """Load the corpus of a run, and check that it is unchanged.

    Raises:
        UserError: If the corpus has changed since the run began.
    """
    data_dir = None if config.data_dir is None else Path(config.data_dir)
    corpus = load_corpus(config.languages, data_dir=data_dir, files=config.files)
    config.check_data(corpus.fingerprint)
    return corpus


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
