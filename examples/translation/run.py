"""A translator's run: its corpus, encoded once, and its trained model with the tokenizers.

A training encodes the training pairs of files when it begins, in several processes, and memory-maps
the result, so that corpora larger than the memory can be trained on and a resumed training starts
at once::

    runs/NAME/corpus/
        tokens.bin ...    the training pairs: source and target in turn (:mod:`common.token_files`)
        splits.json       the validation and test pairs, and the number of training pairs

The manifest holds size, inode and times of change of each file of the corpus. As long as these are
the same, the files are not read again. Otherwise they are, and the SHA-256 of all pairs, which is
in the run's configuration, decides whether they have changed.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from common.errors import UserError
from common.files import identity, write_folder
from common.run import Run
from common.terminal import counted
from common.token_files import StaleError, TokenFiles, TokenWriter, token_type
from common.tokenizer import Tokenizer
from translation.corpus import Corpus, load_corpus
from translation.examples import Examples, check_lengths, encode_for_files, encode_pairs
from translation.pairs import FilePairs, Pair
from translation.presets import Config
from translation.translator import Translator

FIGURES = frozenset({"validation_bleu", "tokens_per_second"})
"""The metrics of a translator, besides those of every training."""

_log = logging.getLogger(__name__)
_SPLITS = "splits.json"

FolderWriter = Callable[[Path], AbstractContextManager[Path]]


def corpus_of(run: Run[Config], config: Config, *, write: FolderWriter | None = None) -> Corpus:
    """Load the corpus of a run, and check that it is unchanged.

    Args:
        run: The run.
        config: Its configuration.
        write: Function that writes a folder: the token files, if the training pairs are in files
            and are not encoded yet. By default, nothing is written.

    Raises:
        UserError: If the corpus has changed since the run began.
    """
    stale = ""
    if config.data_hash and config.source_file is not None:
        try:
            return _read_splits(_open(run, config), config)
        except StaleError as reason:
            stale = str(reason)
    data_dir = None if config.data_dir is None else Path(config.data_dir)
    corpus = load_corpus(config.languages, data_dir=data_dir, files=config.files)
    if stale and write is not None:
        encode_files(run, config, corpus, write=write)
        _log.info(f"{stale}: encoded the corpus again")
    elif config.data_hash:
        _check_unchanged(config, corpus.fingerprint)
    return corpus


def load_examples(
    run: Run[Config], config: Config, corpus: Corpus, *tokenizers: Tokenizer
) -> Examples:
    """Return the training pairs as token ids: memory-mapped if they are in files."""
    if isinstance(corpus.train, FilePairs):
        return Examples.from_files(_open(run, config))
    return encode_pairs(corpus.train, *tokenizers, max_length=config.max_length)


def encode_files(
    run: Run[Config],
    config: Config,
    corpus: Corpus,
    *,
    write: FolderWriter = write_folder,
    workers: int | None = None,
) -> str:
    """Write the token files of a corpus, and compute its fingerprint on the way.

    Args:
        run: The run.
        config: Its configuration, tokenizers included.
        corpus: The corpus, whose training pairs are in files.
        write: Function that writes a folder.
        workers: Number of processes; by default one for each CPU. The files are the same for any
            number.

    Returns:
        The SHA-256 of all pairs, for ``Config.data_hash``.

    Raises:
        UserError: If the corpus has changed, holds no pair that is short enough, or the disk fails.
    """
    train = corpus.train
    assert isinstance(train, FilePairs)
    source, target = run.load_tokenizers(config)
    before, digest = _identities(config), hashlib.sha256()
    dtype = token_type(max(source.vocab_size, target.vocab_size))
    with (
        write(_folder(run)) as folder,
        TokenWriter(folder, dtype) as written,
        tqdm(total=train.lines, unit="line", leave=False, disable=None) as bar,
    ):
        encode = partial(encode_for_files, source, target, config.max_length, dtype)
        for (tokens, lengths, text), counts in train.map(encode, workers=workers):
            written.append(tokens, lengths)
            digest.update(text)
            bar.update(counts["lines"])
        count = written.sequences // 2
        check_lengths(count, len(train), config.max_length)
        fingerprint = corpus.complete_fingerprint(digest)
        _check_unchanged(config, fingerprint)
        if _identities(config) != before:
            raise UserError("a file of the corpus was changed while it was read; begin again")
        splits = {
            "lines": train.lines,
            "pairs": train.pairs,
            "validation": corpus.validation,
            "test": corpus.test,
            "held_out": corpus.held_out,
        }
        (folder / _SPLITS).write_text(json.dumps(splits, ensure_ascii=False), encoding="utf-8")
        written.finish(_made_from(config, fingerprint), others=[_SPLITS])
    _log.info(f"{_folder(run)}: {counted(count, 'training pair')} of {written.tokens:,} tokens")
    return fingerprint


def _folder(run: Run[Config]) -> Path:
    return run.folder / "corpus"


def _open(run: Run[Config], config: Config) -> TokenFiles:
    """Open the token files of a run.

    Raises:
        StaleError: If there are none, or they were made from something else.
    """
    return TokenFiles(_folder(run), _made_from(config, config.data_hash))


def _read_splits(encoded: TokenFiles, config: Config) -> Corpus:
    """Read the splits of a run whose files have not changed."""
    found = json.loads((encoded.folder / _SPLITS).read_text(encoding="utf-8"))
    validation, test = ([Pair(*pair) for pair in found[name]] for name in ("validation", "test"))
    files, languages = config.files["train"], config.languages
    left_out = frozenset(pair.source for pair in [*validation, *test])
    train = FilePairs(files, languages, left_out, found["lines"], found["pairs"])
    return Corpus(languages, train, validation, test, tuple(found["held_out"]))


def _made_from(config: Config, fingerprint: str) -> dict[str, Any]:
    """Describe what token files are made from."""
    return {
        "files": _identities(config),
        "data_hash": fingerprint,
        "tokenizers": config.tokenizers,
        "max_length": config.max_length,
    }


def _identities(config: Config) -> list[list[int]]:
    """Return size, inode and times of each file, without the number of the disk.

    Raises:
        StaleError: If a file is missing.
    """
    try:
        return [
            [*identity(path.resolve())[1:]] for paths in config.files.values() for path in paths
        ]
    except OSError as error:
        raise StaleError(f"cannot read {error.filename}: {error.strerror}") from error


def _check_unchanged(config: Config, fingerprint: str) -> None:
    if config.data_hash and config.data_hash != fingerprint:
        raise UserError(
            f"the corpus {config.corpus} has changed since the run began, so that its test "
            "sentences may have been trained on; begin another --run"
        )


class TrainedTranslator(NamedTuple):
    """A translator that was trained, with all that is needed to use it.

    Attributes:
        config: The configuration of its run.
        model: The model, in evaluation mode.
        source: The tokenizer of the source language.
        target: The tokenizer of the target language.
    """

    config: Config
    model: Translator
    source: Tokenizer
    target: Tokenizer


def load_translator(
    run: Run[Config], device: torch.device, *, last: int | None = None
) -> TrainedTranslator:
    """Load the best weights of a run, with both tokenizers.

    Args:
        run: The run.
        device: The device to compute on.
        last: Load the mean of the weights of this many checkpoints instead, the last ones.

    Raises:
        UserError: If the run is missing, unfinished or damaged.
    """
    config = run.read_config()
    source, target = run.load_tokenizers(config)
    model = config.build(source.vocab_size, target.vocab_size)
    model = run.load_best(model, config, last=last)
    return TrainedTranslator(config, model.to(device), source, target)
