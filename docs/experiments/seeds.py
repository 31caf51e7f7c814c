"""Seeds: what two translators, trained with three seeds each, write for the same sentences.

    python docs/experiments/seeds.py

The translator is that of chapter 7 of the book, with one table of embeddings at its exit or two,
after 400 updates. At this point it is still far from perfect, so that differences can be seen. It
translates sentences of the toy corpus's test set greedily. The results are the texts, which
chapter 10 scores.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "_ext"))

from cells import definitions
from experiment import Experiment, new_parser, run_single_threaded
from transformer_blocks import Seq2Seq, greedy_search

COMMAND = "python docs/experiments/seeds.py"
MODELS = {"one table": True, "two tables": False}
SIZES = {"updates": 400, "sentences": 200}
LONGEST = 30


def translate(model: Seq2Seq, sources: torch.Tensor, words: Sequence[str]) -> list[str]:
    """Translate greedily; return texts whose words are separated by spaces."""
    found = model.generate(sources, greedy_search, end_id=2, max_length=LONGEST)
    return [" ".join(words[i] for i in each.tokens if i > 2) for each in found]


def main(arguments: Sequence[str] | None) -> None:
    """Run the experiment from the command line."""
    parser = new_parser(__doc__, seeds=range(3))
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"(default: {size})")
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    chapter = definitions("07_embeddings", until="def train_translator")
    pairs = chapter["corpus"]["test"][: options.sentences]
    sources, _ = chapter["to_ids"](pairs)
    results: dict[str, Any] = {
        "sources": [japanese for japanese, _ in pairs],
        "references": [" ".join(chapter["split"](english)) for _, english in pairs],
    }
    for name, tied in MODELS.items():
        models = [
            chapter["train_translator"](seed, updates=options.updates, tied=tied)
            for seed in options.seeds
        ]
        results[name] = [translate(model, sources, chapter["words"]) for model in models]
        results[f"{name}, exact"] = [
            sum(map(str.__eq__, texts, results["references"])) for texts in results[name]
        ]
    settings = {name: getattr(options, name) for name in SIZES}
    print(experiment.write("seeds", settings, results))


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
