"""Comparison: runs side by side on the same test sentences, as one table and one picture."""

import statistics
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.run import Run
from common.searches import Search
from common.tables import format_table
from common.tokenizer import EOS, Tokenizer
from transformer_blocks.inference import prepare
from translation.corpus import Corpus, Pair
from translation.decoding import AttentionRecord, attention_with_teacher_forcing, translate
from translation.presets import Config
from translation.scoring import score
from translation.translator import Translator

TIMED, ROUNDS = 200, 3  # sentences that are translated on the clock, and how often


@dataclass(frozen=True)
class ComparedRun:
    """A run that is compared, with what translates."""

    name: str
    run: Run[Config]
    metrics: list[dict[str, Any]]
    config: Config
    model: Translator
    source: Tokenizer
    target: Tokenizer

    @property
    def task(self) -> str:
        """What it learnt, in words."""
        config = self.config
        return f"{config.corpus} from {config.source_language} to {config.target_language}"


@dataclass(frozen=True)
class Result:
    """What a run has come to; a row of the table.

    Attributes:
        name: Of the run.
        model: What was trained.
        parameters: How many numbers were learnt.
        minutes: How long the training took.
        epochs: Passes over the data, the last one perhaps not whole.
        training_speed: Target tokens a second, the median over the epochs.
        validation_loss: The lowest, label-smoothed, in nats a token; comparable where the target
            tokenizers are the same.
        bleu: Of the test sentences.
        chrf: The same.
        bleu_by_length: BLEU of each group of test sentences; see :func:`length_groups`.
        decoding_speed: Test sentences a second.
        metrics: A row for each epoch.
    """

    name: str
    model: str
    parameters: int
    minutes: float
    epochs: int
    training_speed: float
    validation_loss: float
    bleu: float
    chrf: float
    bleu_by_length: list[float]
    decoding_speed: float
    metrics: list[dict[str, Any]]


def names_of(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, in full where the last part would not do.

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
        if compared.config.data_hash != first.config.data_hash:
            raise UserError(
                f"{first.run.folder} and {compared.run.folder} were trained on different "
                f"sentences ({first.task}, and {compared.task}); their scores cannot be compared"
            )


def length_groups(lengths: Sequence[int], *, groups: int = 4) -> list[tuple[str, list[int]]]:
    """Sort sentences by length into groups of about the same size.

    Args:
        lengths: Of each sentence.
        groups: How many at most; sentences of one length stay together.

    Returns:
        A title for each group, such as "3-5", and the places of its sentences.

    Example:
        >>> length_groups([3, 9, 4, 5, 3, 12, 7, 8], groups=2)
        [('3-5', [0, 2, 3, 4]), ('7-12', [1, 5, 6, 7])]
    """
    if len(lengths) < 2:
        return [(str(length), [0]) for length in lengths]
    edges = statistics.quantiles(lengths, n=groups, method="inclusive")
    places: list[list[int]] = [[] for _ in range(groups)]
    for place, length in enumerate(lengths):
        places[bisect_left(edges, length)].append(place)
    found = []
    for group in filter(None, places):
        shortest = min(lengths[place] for place in group)
        longest = max(lengths[place] for place in group)
        title = str(shortest) if shortest == longest else f"{shortest}-{longest}"
        found.append((title, group))
    return found


def compare(
    runs: Sequence[ComparedRun], corpus: Corpus, *, search: Search, batch_tokens: int
) -> tuple[list[str], list[Result]]:
    """Score all runs on the test sentences.

    Args:
        runs: Loaded runs of this corpus; see :func:`check_comparable`.
        corpus: Whose test sentences are translated.
        search: How to choose words.
        batch_tokens: Most source tokens of a batch.

    Returns:
        The titles of the groups of lengths, and a result for each run.
    """
    pairs = corpus.test
    groups = length_groups([len(pair.source) for pair in pairs])
    prepared = [prepare(compared.model) for compared in runs]

    def write(number: int, chosen: Sequence[Pair]) -> list[str]:
        compared = runs[number]
        return translate(
            prepared[number],
            compared.source,
            compared.target,
            [pair.source for pair in chosen],
            search=search,
            batch_tokens=batch_tokens,
        )

    outputs = [write(number, pairs) for number in range(len(runs))]
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine meets all
        for number, times in enumerate(seconds):
            begun = time.perf_counter()
            write(number, pairs[:TIMED])
            times.append(time.perf_counter() - begun)
    results = []
    for compared, lines, times in zip(runs, outputs, seconds, strict=True):
        scores = [
            score(
                [lines[place] for place in places],
                [pairs[place].reference for place in places],
                tokenize=corpus.bleu_tokenizer,
            )
            for places in ([*range(len(pairs))], *(places for _, places in groups))
        ]
        metrics = compared.metrics
        results.append(
            Result(
                name=compared.name,
                model=compared.config.model,
                parameters=sum(weight.numel() for weight in compared.model.parameters()),
                minutes=metrics[-1]["minutes"],
                epochs=metrics[-1]["epoch"],
                training_speed=statistics.median(row["tokens_per_second"] for row in metrics),
                validation_loss=min(row["validation_loss"] for row in metrics),
                bleu=scores[0].bleu,
                chrf=scores[0].chrf,
                bleu_by_length=[each.bleu for each in scores[1:]],
                decoding_speed=min(TIMED, len(pairs)) / statistics.median(times),
                metrics=metrics,
            )
        )
    return [f"{title} ({len(places)})" for title, places in groups], results


def attention_along(
    runs: Sequence[ComparedRun], pair: Pair
) -> list[tuple[str, AttentionRecord, list[str]]]:
    """Record where each model looks while it is led through a translation that is known.

    Returns:
        Of each run whose model has attention: its name, where it looked, and the names of the
        layers that look into the source.
    """
    return [
        (
            compared.name,
            attention_with_teacher_forcing(
                compared.model,
                compared.source,
                compared.target,
                pair.source,
                [*compared.target.encode(pair.target)[: compared.model.max_length - 1], EOS],
            ),
            compared.model.cross_attentions,
        )
        for compared in runs
        if compared.model.cross_attentions
    ]


def format_results(groups: Sequence[str], results: Sequence[Result]) -> str:
    """Write the table: what each run is and took, and how well and fast it translates."""
    first = format_table(
        (
            *("run", "model", "parameters", "minutes", "epochs", "tokens/s", "validation loss"),
            *("BLEU", "chrF", "sentences/s"),
        ),
        [
            (
                *(each.name, each.model, f"{each.parameters:,}", f"{each.minutes:.1f}"),
                *(f"{each.epochs}", f"{each.training_speed:,.0f}", f"{each.validation_loss:.3f}"),
                *(f"{each.bleu:.1f}", f"{each.chrf:.1f}", f"{each.decoding_speed:.0f}"),
            )
            for each in results
        ],
        words=2,
    )
    second = format_table(
        ("run", "model", *groups),
        [
            (each.name, each.model, *(f"{bleu:.1f}" for bleu in each.bleu_by_length))
            for each in results
        ],
        words=2,
    )
    return f"{first}\n\nBLEU by characters of the source (number of sentences):\n{second}"
