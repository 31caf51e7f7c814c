"""Comparison: several runs on the same test sentences, as a table and a figure."""

import statistics
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.files import load_json
from common.run import Run
from common.searches import Search
from common.terminal import say, table
from common.text_files import read_lines
from common.tokenizer import EOS
from transformer_blocks.inference import prepare
from translation.decoding import TrainedTranslator, load_translator, translate
from translation.pairs import Corpus, Pair
from translation.presets import TranslatorConfig
from translation.recording import AttentionRecord, attention_with_teacher_forcing
from translation.scoring import bootstrap, score

METRICS = "epoch", "minutes", "validation_loss", "validation_bleu", "tokens_per_second"
TIMED, ROUNDS = 200, 3  # number of sentences whose translation is timed, and of repetitions


@dataclass(frozen=True)
class ComparedRun:
    """A run that is compared, with its trained model."""

    name: str
    run: Run[TranslatorConfig]
    metrics: list[dict[str, float]]
    trained: TrainedTranslator

    @property
    def task(self) -> str:
        """The corpus and the direction of translation, in words."""
        languages = self.trained.config.languages
        return f"{languages.corpus} from {languages.source} to {languages.target}"


Result = dict[str, Any]
"""The results of a run by name, as :func:`compare` returns them and ``compare.json`` holds them."""
COLUMNS = {
    "run": "{name}",
    "model": "{model}",
    "parameters": "{parameters:,}",
    "minutes": "{minutes:.1f}",
    "epochs": "{epochs:.0f}",
    "tokens/s": "{training_speed:,.0f}",
    "validation loss": "{validation_loss:.3f}",
    "BLEU": "{bleu:.1f}",
    "p": "{p}",
    "chrF": "{chrf:.1f}",
    "sentences/s": "{decoding_speed:.0f}",
}
"""The columns of the table, and how each shows the results of a run."""


def names_of(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the full path where the last part is ambiguous.

    Example:
        >>> names_of([Path("runs/a"), Path("runs/b"), Path("old/b")])
        ['a', 'runs/b', 'old/b']
    """
    last = [folder.name for folder in folders]
    return [
        str(folder) if last.count(folder.name) > 1 else folder.name or str(folder)
        for folder in folders
    ]


def check_comparable(runs: Sequence[ComparedRun]) -> None:
    """Raise unless all runs were trained on one corpus, in one direction.

    Raises:
        UserError: If one was not, or a run is named twice.
    """
    folders = [compared.run.folder.resolve() for compared in runs]
    first = runs[0]
    for compared, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(f"{compared.run.folder} is named twice")
        if compared.trained.config.data_hash != first.trained.config.data_hash:
            raise UserError(
                f"{first.run.folder} and {compared.run.folder} were trained on different "
                f"sentences ({first.task}, and {compared.task}); their scores cannot be compared"
            )


def load_runs(folders: Sequence[Path], device: torch.device) -> list[ComparedRun]:
    """Load the runs that are compared.

    Raises:
        UserError: If one is missing, unfinished or damaged, or they cannot be compared.
    """
    compared = []
    for name, folder in zip(names_of(folders), folders, strict=True):
        run = Run(folder, TranslatorConfig)
        metrics = read_metrics(run.metrics)
        compared.append(ComparedRun(name, run, metrics, load_translator(run, device)))
    check_comparable(compared)
    return compared


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read ``METRICS`` of each validation of a run.

    Raises:
        OSError: If the file cannot be read.
        UserError: If it is empty or damaged.
    """
    try:
        rows = [load_json(line) for line in read_lines(path)]
        return [{name: float(row[name]) for name in METRICS} for row in [*rows[:-1], rows[-1]]]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error


def length_groups(lengths: Sequence[int], *, groups: int = 4) -> list[tuple[str, list[int]]]:
    """Divide sentences by length into groups of about the same size.

    Args:
        lengths: The length of each sentence.
        groups: Maximum number of groups; sentences of one length are in one group.

    Returns:
        For each group a title, such as "3-5", and the indices of its sentences.

    Example:
        >>> length_groups([3, 9, 4, 5, 3, 12, 7, 8], groups=2)
        [('3-5', [0, 2, 3, 4]), ('7-12', [1, 5, 6, 7])]
    """
    if len(lengths) < 2:
        return [(str(length), [0]) for length in lengths]
    edges = statistics.quantiles(lengths, n=groups, method="inclusive")
    indices: list[list[int]] = [[] for _ in range(groups)]
    for index, length in enumerate(lengths):
        indices[bisect_left(edges, length)].append(index)
    found = []
    for group in filter(None, indices):
        within = sorted({lengths[index] for index in group})
        title = str(within[0]) if len(within) == 1 else f"{within[0]}-{within[-1]}"
        found.append((title, group))
    return found


def compare(
    runs: Sequence[ComparedRun], corpus: Corpus, *, search: Search
) -> tuple[list[str], list[Result]]:
    """Score all runs on the test sentences.

    Args:
        runs: The runs, all of this corpus; see :func:`check_comparable`.
        corpus: The corpus, whose test sentences are translated.
        search: The decoding algorithm and its options.

    Returns:
        The titles of the length groups, and the results of each run: its "name", the kind of its
        "model", the number of its "parameters", the length of the training in "minutes" and
        "epochs", the last one possibly incomplete; "training_speed", target tokens per second, the
        median over the epochs; the lowest "validation_loss", label-smoothed, in nats per token,
        comparable between runs with the same target tokenizer; "bleu" and "chrf" of the test
        sentences; "p_value", that of the difference in BLEU from the first run, None for the first
        run; "bleu_by_length", of each group of test sentences (:func:`length_groups`);
        "decoding_speeds", test sentences per second in each round, and "decoding_speed", their
        median; and the "metrics" of each epoch.
    """
    pairs = corpus.test
    groups = length_groups([len(pair.source) for pair in pairs])
    prepared = [each.trained._replace(model=prepare(each.trained.model)) for each in runs]
    decode = partial(translate, search=search)
    sources, _, references = zip(*pairs, strict=True)
    outputs = [decode(each, sources) for each in prepared]
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):  # in turns, so that a slow phase of the machine affects all runs
        for each, times in zip(prepared, seconds, strict=True):
            begun = time.perf_counter()
            decode(each, sources[:TIMED])
            times.append(time.perf_counter() - begun)
    tokenize = corpus.bleu_tokenizer
    p_values = [None, *bootstrap(outputs, references, tokenize=tokenize)]
    results = []
    for compared, lines, times, p_value in zip(runs, outputs, seconds, p_values, strict=True):
        scores = [
            score([lines[i] for i in part], [references[i] for i in part], tokenize=tokenize)
            for part in (range(len(pairs)), *(indices for _, indices in groups))
        ]
        metrics = compared.metrics
        results.append(
            {
                "name": compared.name,
                "model": compared.trained.config.model,
                "parameters": sum(weight.numel() for weight in compared.trained.model.parameters()),
                "minutes": metrics[-1]["minutes"],
                "epochs": metrics[-1]["epoch"],
                "training_speed": statistics.median(row["tokens_per_second"] for row in metrics),
                "validation_loss": min(row["validation_loss"] for row in metrics),
                "bleu": scores[0].bleu,
                "p_value": p_value,
                "chrf": scores[0].chrf,
                "bleu_by_length": [each.bleu for each in scores[1:]],
                "decoding_speed": min(TIMED, len(pairs)) / statistics.median(times),
                "decoding_speeds": [min(TIMED, len(pairs)) / each for each in times],
                "metrics": metrics,
            }
        )
    return [f"{title} ({len(indices)})" for title, indices in groups], results


def attention_along(
    runs: Sequence[ComparedRun], pair: Pair
) -> list[tuple[str, AttentionRecord, list[str]]]:
    """Record the attention of each model over a reference, by teacher forcing.

    Returns:
        For each run whose model has attention: its name, its attention weights, and the names of
        its cross-attention layers.
    """
    records = []
    for compared in runs:
        _, model, _, target = compared.trained
        if model.cross_attentions:
            ids = [*target.encode(pair.target)[: model.max_length - 1], EOS]
            record = attention_with_teacher_forcing(compared.trained, pair.source, ids)
            records.append((compared.name, record, model.cross_attentions))
    return records


def print_results(groups: Sequence[str], results: Sequence[Result]) -> None:
    """Print the results as tables."""
    shown = [
        each | {"p": "-" if each["p_value"] is None else f"{each['p_value']:.3f}"}
        for each in results
    ]
    cells = [[column.format(**each) for column in COLUMNS.values()] for each in shown]
    by_length = [
        [each["name"], each["model"], *(f"{bleu:.1f}" for bleu in each["bleu_by_length"])]
        for each in results
    ]
    say(table([*COLUMNS], cells, words=2))
    say(f"p: of the difference in BLEU from {results[0]['name']}, by paired bootstrap")
    say("\nBLEU by characters of the source (number of sentences):")
    say(table(("run", "model", *groups), by_length, words=2))
