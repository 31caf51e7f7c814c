"""Time and memory of a corpus on disk: encoding it, starting a training, and reading batches.

    python benchmarks/corpus.py                       # 50 million tokens, about half an hour
    python benchmarks/corpus.py --tokens 5000000      # a tenth of them

The sentences are made for the purpose: words of random letters, the frequent ones short, and each
is translated by another. Each measurement runs in a process of its own, which alone uses its
memory:

    write      train tokenizers of 8,000 subwords on 20,000 pairs; encode all pairs with 1, 2 ...
               processes
    start      resume a training of a tiny model, until its first update
    read       make and collate all batches of an epoch, from the disk and from memory
    train      train the tiny model with the batches of the disk and with the same ones in memory

Beside the time stand the seconds of CPU, which other processes disturb less, of the process and its
children. Memory is that of the process: private (``RssAnon``), and pages of mapped files that
happen to be in memory and can be dropped at any time (``RssFile``).
"""

import argparse
import json
import logging
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import run_in_process, status

WORDS = 30_000
TOKENIZER_PAIRS = 20_000
BATCH_TOKENS = 4096
SECONDS = 10.0
"""How long each kind of training is timed."""


def make_files(folder: Path, tokens: int) -> None:
    """Write aligned files with about this many subwords on both sides together."""
    import numpy as np

    rng = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = [
        np.array(
            [
                "".join(rng.choices(letters, k=2 + min(9, rank.bit_length() // 2)))
                for rank in range(WORDS)
            ]
        )
        for _ in range(2)
    ]
    numbers = np.random.default_rng(0)
    shares = 1.0 / np.arange(3, WORDS + 3)
    cumulative = np.cumsum(shares / shares.sum())
    remaining = 0.237 * tokens  # words on one side: a word is about 2.1 subwords
    with (
        (folder / "train.source").open("w", encoding="utf-8") as sources,
        (folder / "train.target").open("w", encoding="utf-8") as targets,
    ):
        while remaining > 0:
            lengths = np.clip(numbers.gamma(2.2, 7.0, 10_000).astype(int), 2, 90)
            drawn = np.searchsorted(cumulative, numbers.random(lengths.sum()))
            ends = np.cumsum(lengths).tolist()
            for file, names in zip((sources, targets), words, strict=True):
                text = names[np.minimum(drawn, WORDS - 1)].tolist()  # one word after another
                lines = (" ".join(text[i:j]) for i, j in pairwise([0, *ends]))
                file.write("\n".join(lines) + "\n")
            remaining -= int(lengths.sum())


def memory() -> dict[str, float]:
    """Return the resident memory of this process, in MB."""
    return {name: status(name) for name in ("RssAnon", "RssFile")}


@contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """Measure the highest resident memory within a ``with`` block, 50 times a second."""
    peak = memory()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for name, value in memory().items():
                peak[name] = max(peak[name], value)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def settings(folder: Path) -> Any:
    """Return the run, and its configuration without the results of the first start."""
    from common.run import Run
    from translation.presets import TINY, Config

    config = replace(
        TINY,
        corpus="files",
        source_language="xx",
        target_language="yy",
        source_file=str(folder / "train.source"),
        target_file=str(folder / "train.target"),
        vocabulary=8000,
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=64,
        batch_tokens=BATCH_TOKENS,
        epochs=None,
        steps=10**6,
        report_steps=10**6,
    )
    return Run(folder, Config), config


def write(folder: Path, results: Path, *, workers: int) -> None:
    """Encode the corpus with some processes; the first call trains the tokenizers."""
    from common.files import file_hash
    from common.tokenizer import Tokenizer
    from translation.run import corpus_of, encode_files

    run, config = settings(folder)
    started = clock()
    with peak_memory() as peak:
        corpus = corpus_of(run, config)
    note(results, f"split the files, {len(corpus.train):,} pairs", started, peak)
    if not run.tokenizer_file("source").exists():
        started = clock()
        with peak_memory() as peak:
            pairs = corpus.sample(TOKENIZER_PAIRS)
            for side, name in enumerate(("source", "target")):
                texts = [pair[side] for pair in pairs]
                Tokenizer.train(texts, vocab_size=8000, path=run.tokenizer_file(name))
        note(results, f"train tokenizers on {len(pairs):,} pairs", started, peak)
    names = ("source", "target")
    hashes = {name: file_hash(run.tokenizer_file(name)) for name in names}
    config = replace(config, tokenizers=hashes)
    started = clock()
    with peak_memory() as peak:
        fingerprint = encode_files(run, config, corpus, workers=workers)
    seconds = time.perf_counter() - started[0]
    size = (folder / "corpus" / "tokens.bin").stat().st_size // 2
    what = f"encode, {workers} workers ({size / seconds:,.0f} tokens/s)"
    note(results, what, started, peak)
    if not run.config_file.exists():
        run.write_config(replace(config, data_hash=fingerprint))


def start(folder: Path, results: Path) -> None:
    """Start a training, until its first update."""
    started = clock()
    with peak_memory() as peak:
        training = make_training(folder)
        training.learner.update(training.task.batches(0)[:1], 1e-3)
    note(results, "start, until the first update (with importing torch)", started, peak)


def make_training(folder: Path, *, from_memory: bool = False) -> Any:
    """Prepare the training as the program does, or with a copy of its token ids in memory."""
    import torch

    from common.files import write_folder
    from translation.examples import Examples
    from translation.run import corpus_of
    from translation.training import TranslationTask, TranslationTraining

    run, _ = settings(folder)
    config = run.read_config()
    corpus = corpus_of(run, config, write=write_folder)
    torch.set_num_threads(1)
    task = TranslationTask(run, config, corpus)
    training = TranslationTraining(task, device=torch.device("cpu"))
    if from_memory:
        mapped = training.task.train_set
        training.task.train_set = Examples(mapped.tokens.copy(), mapped.bounds.copy())
    return training


def read(folder: Path, results: Path, *, from_memory: bool) -> None:
    """Make and collate the batches of an epoch."""
    from translation.batches import Batches, collate

    training = make_training(folder, from_memory=from_memory)
    started = clock()
    with peak_memory() as peak:
        batches = Batches(training.task.train_set, batch_tokens=BATCH_TOKENS, seed=0, epoch=0)
        first = time.perf_counter() - started[0]
        tokens = sum(
            int(collate(batch).source.ne(0).sum()) + training.task.count(batch) for batch in batches
        )
    seconds = time.perf_counter() - started[0]
    where = "memory" if from_memory else "disk"
    what = f"read an epoch from {where} ({tokens / seconds:,.0f} tokens/s; plan {first:.2f} s)"
    note(results, what, started, peak)


def train(folder: Path, results: Path, *, from_memory: bool) -> None:
    """Train for some seconds."""
    training = make_training(folder, from_memory=from_memory)
    batches = training.task.batches(0)
    training.model.train()
    for number in range(20):
        training.learner.update(batches[number : number + 1], 1e-3)
    started, tokens, number = clock(), 0, 20
    with peak_memory() as peak:
        while time.perf_counter() - started[0] < SECONDS:
            group = batches[number : number + 1]
            training.learner.update(group, 1e-3)
            tokens, number = tokens + training.task.count(group[0]), number + 1
    seconds = time.perf_counter() - started[0]
    where = "memory" if from_memory else "disk"
    note(results, f"train from {where} ({tokens / seconds:,.0f} target tokens/s)", started, peak)


def clock() -> tuple[float, float]:
    """Return the time, and the CPU time of this process and its children, in seconds."""
    return time.perf_counter(), sum(os.times()[:4])


def note(results: Path, what: str, started: tuple[float, float], peak: dict[str, float]) -> None:
    """Print and save a measurement."""
    seconds, cpu = (now - then for now, then in zip(clock(), started, strict=True))
    print(
        f"{seconds:8.1f} s {cpu:8.1f} s CPU  {peak['RssAnon']:7.0f} MB private  "
        f"{peak['RssFile']:7.0f} MB mapped  {what}",
        flush=True,
    )
    row = {"what": what, "seconds": seconds, "cpu": cpu, "private_mb": peak["RssAnon"]}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "mapped_mb": peak["RssFile"]}) + "\n")


def measure(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function without warnings in the log."""
    logging.disable(logging.WARNING)
    function(*arguments)


def main() -> None:
    """Make a corpus, and measure all that is done with it."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=50_000_000, help="subwords on both sides")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="processes")
    parser.add_argument("--folder", type=Path, help="keep the files in this folder")
    kinds = ("write", "start", "read", "train")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, help="only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        results = folder / "results.jsonl"
        if not (folder / "train.source").exists():
            started = time.perf_counter()
            make_files(folder, options.tokens)
            print(f"{time.perf_counter() - started:8.1f} s  to make the files", flush=True)
        measurements: dict[str, Sequence[Callable[..., object]]] = {
            "write": [partial(write, workers=workers) for workers in options.workers],
            "start": [start] * 2,
            "read": [partial(read, from_memory=choice) for choice in (True, False)] * 2,
            "train": [partial(train, from_memory=choice) for choice in (True, False)] * 2,
        }
        for name, functions in measurements.items():
            for function in functions if name in options.only else ():
                run_in_process(measure, function, folder, results)


if __name__ == "__main__":
    main()
