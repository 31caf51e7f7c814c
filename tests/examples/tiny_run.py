"""A corpus, settings and a training small enough for a test."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from common.files import FolderLock
from common.run import Run
from common.training import Training
from translation.pairs import Corpus, Languages, Pair
from translation.presets import TINY, TranslatorConfig
from translation.training import TranslationTask

NOUNS = {"犬": "dog", "猫": "cat", "鳥": "bird", "馬": "horse", "魚": "fish", "牛": "cow"}
VERBS = {"走る": "runs", "眠る": "sleeps", "泳ぐ": "swims", "歌う": "sings", "食べる": "eats"}
SETTINGS = replace(
    TINY,
    num_layers=1,
    d_model=32,
    num_heads=2,
    d_ff=64,
    vocabulary=80,
    batch_tokens=24,
    warmup_steps=5,
    peak_rate=1e-2,
    average=0.5,
    epochs=6,
    max_length=32,
)
PLAN = ["--epochs", "2", "--vocabulary", "80", "--batch-tokens", "64"]
"""Options of a training of two short epochs."""


class TranslationTraining(Training):
    """The training of a translator."""

    task: TranslationTask


def make_corpus() -> Corpus:
    """Every noun with every verb: thirty sentences, of which five are held out."""
    pairs = [
        Pair(f"{ja_noun}が{ja_verb}。", english := f"The {noun} {verb}.", english)
        for ja_noun, noun in NOUNS.items()
        for ja_verb, verb in VERBS.items()
    ]
    held_out = pairs[::7]
    train = [pair for pair in pairs if pair not in held_out]
    return Corpus(Languages("files"), train, validation=held_out[:2], test=held_out[2:])


def begin(folder: Path, config: TranslatorConfig = SETTINGS, **options: Any) -> TranslationTraining:
    """Begin a run in ``folder``, or find it there, and prepare its training.

    A run that exists keeps its definition; its plan is that of ``config``.
    """
    run, corpus = Run(folder, TranslatorConfig), make_corpus()
    if run.config_file.exists():
        begun = run.read_config()
        config = replace(begun, epochs=config.epochs, minutes=config.minutes)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        texts: dict[str, list[str]] = {}
        for name, side in zip(config.tokenizer_names, TranslatorConfig.TOKENIZERS, strict=True):
            texts.setdefault(name, []).extend(getattr(pair, side) for pair in corpus.train)
        config = replace(config, corpus="files", data_hash=corpus.fingerprint)
        config = run.begin(config, texts, FolderLock(folder))
    options = {"device": torch.device("cpu")} | options
    return TranslationTraining(run, config, TranslationTask(run, config, corpus), **options)


def write_files(folder: Path) -> list[str]:
    """Write all sentences to two aligned files; return the options that name them."""
    corpus = make_corpus()
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    source, target = folder / "ja.txt", folder / "en.txt"
    source.write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
    target.write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
    return ["--source-file", str(source), "--target-file", str(target)]
