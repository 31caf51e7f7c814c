"""A corpus, settings and a training small enough for a test."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from common.files import file_hash
from common.tokenizer import Tokenizer
from translation.corpus import Corpus, Pair
from translation.presets import TINY, Settings
from translation.run import Config, Run
from translation.training import Training

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


def make_corpus() -> Corpus:
    """Every noun with every verb: thirty sentences, of which five are held out."""
    pairs = [
        Pair(f"{ja_noun}が{ja_verb}。", english := f"The {noun} {verb}.", english)
        for ja_noun, noun in NOUNS.items()
        for ja_verb, verb in VERBS.items()
    ]
    held_out = pairs[::7]
    train = [pair for pair in pairs if pair not in held_out]
    return Corpus("files", "ja", "en", train=train, validation=held_out[:2], test=held_out[2:])


def begin(folder: Path, settings: Settings = SETTINGS, **options: Any) -> Training:
    """Begin a run in ``folder``, or find it there, and prepare its training."""
    run, corpus = Run(folder), make_corpus()
    if not run.config_file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        hashes = {}
        for side, texts in (
            ("source", [pair.source for pair in corpus.train]),
            ("target", [pair.target for pair in corpus.train]),
        ):
            path = run.tokenizer_file(side)
            Tokenizer.train(texts, vocab_size=settings.vocabulary, path=path)
            hashes[side] = file_hash(path)
        config = Config(
            *("files", "ja", "en", None, None, None, None, None, None, None, 0, "tiny"),
            settings=settings,
            minutes=None,
            corpus_hash=corpus.fingerprint,
            tokenizers=hashes,
        )
        run.write_config(config)
    tokenizers = run.load_tokenizers(run.read_config())
    device = torch.device("cpu")
    return Training(run, settings, corpus, tokenizers, seed=0, device=device, **options)
