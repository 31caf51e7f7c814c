"""Ablation: the BLEU of translators without each of their parts, for ``ablate.py``."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import common.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch

from common.errors import UserError
from common.plots import plot_line, save, style
from common.program import finishing_unread
from common.run import Run
from common.searches import Greedy
from common.tables import format_table
from common.terminal import fit, limit
from transformer_blocks import Residual
from transformer_blocks.explorer.plots import new_figure
from transformer_blocks.explorer.style import PALETTES
from transformer_blocks.inspection import ablate
from translation.comparison import names_of
from translation.decoding import translate
from translation.encoding import corpus_of
from translation.pairs import Pair
from translation.presets import Config
from translation.run import load_translator
from translation.scoring import score
from translation.transformer import Transformer


class Ablation(NamedTuple):
    """A part of the model that is ablated.

    Attributes:
        title: The name of the part.
        choices: The arguments of ``ablate``, for each of several parts of that kind; the result is
            their mean.
    """

    title: str
    choices: list[dict[str, Any]]


def ablations(model: Transformer) -> Iterator[Ablation]:
    """Yield the ablations of a Transformer, from single parts to all of a kind."""
    yield Ablation("nothing", [{}])
    names = [name for name, _ in model.named_modules()]
    kinds = {
        "a head of the encoder's self-attention": ("encoder", "self_attention"),
        "a head of the decoder's self-attention": ("decoder", "self_attention"),
        "a head of the cross-attention": ("decoder", "cross_attention"),
    }
    layers = {
        title: [name for name in names if name.startswith(stack) and name.endswith(f".{kind}")]
        for title, (stack, kind) in kinds.items()
    }
    for title, attentions in layers.items():
        yield Ablation(
            f"{title}, one at a time",
            [
                {"heads": {name: [head]}}
                for name in attentions
                for head in range(getattr(model.get_submodule(name), "num_heads", 0))
            ],
        )
    for title, attentions in layers.items():
        yield Ablation(title.replace("a head of ", "all of "), [{"modules": attentions}])
    feed_forwards = [name for name in names if name.endswith(".feed_forward")]
    yield Ablation(
        "a feed-forward network, one at a time", [{"modules": [name]} for name in feed_forwards]
    )
    yield Ablation("all feed-forward networks", [{"modules": feed_forwards}])
    yield Ablation("the positional encoding", [{"positions": True}])
    yield Ablation("the scale 1 / sqrt(d_k)", [{"scale": True}])
    residuals = [name for name, part in model.named_modules() if isinstance(part, Residual)]
    yield Ablation(
        "a residual connection, one at a time", [{"residuals": [name]} for name in residuals]
    )
    yield Ablation("all residual connections", [{"residuals": residuals}])


def bleu_without(run: Run[Config], sentences: int) -> dict[str, float]:
    """Compute BLEU of a run's translations of validation sentences for each ablation."""
    config, model, source, target = load_translator(run, torch.device("cpu"))
    if not isinstance(model, Transformer):
        raise UserError(f"{run.folder} holds no Transformer but {config.model}")
    corpus = corpus_of(run, config)
    pairs: Sequence[Pair] = corpus.validation[:sentences]
    references = [pair.reference for pair in pairs]
    remaining = {}
    for ablation in ablations(model):
        scores = []
        for choice in ablation.choices:
            with ablate(model, **choice):
                lines = translate(
                    model, source, target, [pair.source for pair in pairs], search=Greedy()
                )
            scores.append(score(lines, references, tokenize=corpus.bleu_tokenizer).bleu)
        remaining[ablation.title] = mean(scores)
        progress = f"  {run.folder}: without {ablation.title}: {remaining[ablation.title]:.1f}"
        print(fit(progress, sys.stdout), flush=True)
    return remaining


def plot_ablations(names: Sequence[str], results: Sequence[dict[str, float]], path: Path) -> None:
    """Draw the remaining BLEU of each ablation: a bar for the mean, a dot for each run."""
    titles = list(results[0])
    figure = new_figure(9.0, 0.38 * len(titles) + 1.2)
    axes = figure.add_subplot()
    style(axes, "BLEU, greedy; bar: mean, marker: a run", "")
    rows = range(len(titles))
    axes.barh(
        rows,
        [mean(each[title] for each in results) for title in titles],
        color=PALETTES["light"].weights[1],
    )
    for run, (name, result) in enumerate(zip(names, results, strict=True)):
        plot_line(axes, [result[title] for title in titles], rows, run, linestyle="")
        axes.lines[-1].set_label(name if not name.startswith("_") else f" {name}")
    axes.set_yticks(rows, [f"without {title}" for title in titles])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, loc="lower right")
    save(figure, path)


@finishing_unread()
def compare_ablations(options: argparse.Namespace) -> None:
    """Score all runs without each part, and print and draw the results."""
    runs = [Run(folder, Config) for folder in options.runs]
    tasks = {(config.data_hash, config.preset) for config in (run.read_config() for run in runs)}
    if len(tasks) > 1 or len({run.folder.resolve() for run in runs}) < len(runs):
        raise UserError("runs must be different trainings of one corpus and one preset")
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    results = [bleu_without(run, options.sentences) for run in runs]
    names = names_of(options.runs)
    rows = []
    for title in results[0]:
        scores = [result[title] for result in results]
        change = mean(scores) - mean(result["nothing"] for result in results)
        cells = [f"{each:.1f}" for each in (*scores, mean(scores))]
        spread = f"{min(scores):.1f}-{max(scores):.1f}"
        rows.append((f"without {title}", *cells, spread, f"{change:+.1f}"))
    plot_ablations(names, results, options.picture)
    print()
    header = ("BLEU", *names, "mean", "range", "change")
    print(format_table(header, rows, words=1, width=limit(sys.stdout)))
    print(f"\nWritten: {options.picture}")
