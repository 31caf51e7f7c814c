"""Figures of chapter 13: from text to batches."""

import sys
import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN
from style import (
    curves,
    figure,
    new_figure,
)

sys.path.append(str(LEARN.parents[1] / "examples"))


@figure
def vocabulary() -> Figure:
    """Draw the number of tokens of a sentence against the size of the vocabulary."""
    from common.tokenizer import Tokenizer
    from translation.toy import toy_corpus

    pairs = toy_corpus()["train"][:4000]
    made = new_figure(6.4, 3.0)
    axes: Axes = made.subplots()
    sizes = {
        "Japanese": (330, 400, 600, 1000, 1500, 2000),
        "English": (80, 150, 300, 600, 1000, 1500, 2000),
    }
    with tempfile.TemporaryDirectory() as folder:
        for side, (name, each) in enumerate(sizes.items()):
            sentences = [pair[side] for pair in pairs]
            points = []
            for size in each:
                made_tokenizer = Tokenizer.train(
                    sentences, vocab_size=size, path=Path(folder) / "model"
                )
                lengths = [len(made_tokenizer.encode(sentence)) for sentence in sentences[:1000]]
                points.append((made_tokenizer.vocab_size, sum(lengths) / len(lengths)))
            axes.plot(*zip(*points, strict=True), label=name)
    axes.set_ylim(bottom=0)
    curves(axes, x="tokens in the vocabulary", y="tokens per sentence")
    axes.legend()
    return made
