"""Figures of chapter 11: from text to batches."""

import sys
import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN
from style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    arrow,
    box,
    canvas,
    curves,
    figure,
    new_figure,
    note,
)

sys.path.append(str(LEARN.parents[1] / "examples"))


@figure
def merges() -> Figure:
    """Draw the chapter's words before and after each of its three merges."""
    stages = [
        ("characters", ["食 べ ま す", "飲 み ま す", "食 べ た"], ""),
        ("1. ま + す", ["食 べ ます", "飲 み ます", "食 べ た"], "ます"),
        ("2. 食 + べ", ["食べ ます", "飲 み ます", "食べ た"], "食べ"),
        ("3. 食べ + ます", ["食べます", "飲 み ます", "食べ た"], "食べます"),
    ]
    made, axes = canvas(10, 5.3)
    for number, (name, words, new) in enumerate(stages):
        y = 0.3 + 1.27 * number
        note(axes, 0.1, y + 0.35, name, color=INK, size=10.5, ha="left")
        for column, word in enumerate(words):
            x = 2.4 + 2.7 * column
            for token in word.split():
                width = 0.52 * len(token)
                color = ORANGE if token == new else PANEL
                box(
                    axes,
                    x,
                    y,
                    width,
                    0.7,
                    token,
                    color=color,
                    alpha=0.5 if color == ORANGE else 1,
                    size=11,
                )
                x += width + 0.06
    for column, text in enumerate(("twice", "once", "once")):
        note(axes, 2.4 + 2.7 * column, 5.15, text, ha="left")
    return made


@figure
def shift() -> Figure:
    """Draw the decoder's input and its targets."""
    inputs = ["<bos>", "the", "cat", "eats", "fish", "."]
    made, axes = canvas(10, 2.9)
    for y, tokens, name, color in (
        (0.3, inputs, "decoder\ninput", GREEN),
        (1.9, [*inputs[1:], "<eos>"], "targets", BLUE),
    ):
        note(axes, 0.75, y + 0.35, name, color=INK, size=10)
        for column, token in enumerate(tokens):
            box(axes, 1.7 + 1.37 * column, y, 1.15, 0.7, token, color=color, alpha=0.35)
    for column in range(len(inputs)):
        x = 2.275 + 1.37 * column
        arrow(axes, (x, 1.03), (x, 1.87))
    note(axes, 0.75, 1.45, "predicts")
    return made


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
