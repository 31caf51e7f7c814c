"""Ablation: the BLEU of translators without each of their parts, for ``ablate.py``."""

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from common.errors import UserError
from common.run import Run
from common.terminal import say, table
from transformer_blocks import Residual, greedy_search
from transformer_blocks.inspection import ablate
from translation.comparison import names_of
from translation.corpus import corpus_of
from translation.decoding import load_translator, translate
from translation.presets import TranslatorConfig
from translation.scoring import score
from translation.transformer import Transformer


def ablations(model: Transformer) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the ablations of a Transformer, from single parts to all of a kind.

    Returns:
        For each kind of part, the arguments of ``ablate`` for each of several parts of that kind;
        the result is their mean.
    """
    parts: dict[str, Any] = dict(model.named_modules())
    kinds = {
        "the encoder's self-attention": "encoder.*.self_attention",
        "the decoder's self-attention": "decoder.*.self_attention",
        "the cross-attention": "decoder.*.cross_attention",
    }
    attentions = {title: fnmatch.filter(parts, kind) for title, kind in kinds.items()}
    heads = range(parts[model.cross_attentions[0]].num_heads)
    feed_forwards = fnmatch.filter(parts, "*.feed_forward")
    residuals = [name for name, part in parts.items() if isinstance(part, Residual)]
    return {
        "nothing": [{}],
        **{
            f"a head of {title}, one at a time": [
                {"heads": {name: [head]}} for name in names for head in heads
            ]
            for title, names in attentions.items()
        },
        **{f"all of {title}": [{"modules": names}] for title, names in attentions.items()},
        "a feed-forward network, one at a time": [{"modules": [name]} for name in feed_forwards],
        "all feed-forward networks": [{"modules": feed_forwards}],
        "the positional encoding": [{"positions": True}],
        "the scale 1 / sqrt(d_k)": [{"scale": True}],
        "a residual connection, one at a time": [{"residuals": [name]} for name in residuals],
        "all residual connections": [{"residuals": residuals}],
    }


def bleu_without(run: Run[TranslatorConfig], sentences: int) -> dict[str, float]:
    """Compute BLEU of a run's translations of validation sentences for each ablation."""
    trained = load_translator(run, torch.device("cpu"))
    model, corpus = trained.model, corpus_of(trained.config)
    if not isinstance(model, Transformer):
        raise UserError(f"only a Transformer can be ablated, and {run.folder} holds another model")
    sources, _, references = zip(*corpus.validation[:sentences], strict=True)
    remaining = {}
    for title, choices in ablations(model).items():
        scores = []
        for choice in choices:
            with ablate(model, **choice):
                lines = translate(trained, sources, search=greedy_search)
            scores.append(score(lines, references, tokenize=corpus.bleu_tokenizer).bleu)
        remaining[title] = mean(scores)
        say(f"  {run.folder}: without {title}: {remaining[title]:.1f}")
    return remaining


def compare_ablations(folders: Sequence[Path], sentences: int) -> None:
    """Score all runs without each part, and print the results."""
    runs = [Run(folder, TranslatorConfig) for folder in folders]
    tasks = {(config.data_hash, config.preset) for config in (run.read_config() for run in runs)}
    if len(tasks) > 1 or len({run.folder.resolve() for run in runs}) < len(runs):
        raise UserError("runs must be different trainings of one corpus and one preset")
    results = [bleu_without(run, sentences) for run in runs]
    rows = []
    for title in results[0]:
        scores = [result[title] for result in results]
        change = mean(scores) - mean(result["nothing"] for result in results)
        cells = [f"{each:.1f}" for each in (*scores, mean(scores))]
        spread = f"{min(scores):.1f}-{max(scores):.1f}"
        rows.append((f"without {title}", *cells, spread, f"{change:+.1f}"))
    header = ("BLEU", *names_of(folders), "mean", "range", "change")
    print()
    say(table(header, rows, words=1))
