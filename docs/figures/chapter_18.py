"""Figures of chapter 18: look inside."""

import re
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN, definitions
from style import BLUE, GREEN, INK, ORANGE, SKY, curves, figure, figure_of, new_figure, weight_table
from transformer_blocks import record_attention

TRANSLATION = ["the", "cat", "eats", "fish", ".", "<eos>"]


@cache
def trained() -> dict[str, Any]:
    """Train the chapter's model once, and record its attention weights for our sentence."""
    chapter = definitions("18_look_inside")
    model = chapter["model"]
    source, target = chapter["to_ids"](chapter["held_out"][:1])
    with record_attention(model) as recorded, torch.no_grad():
        model(source, target[:, :-1])
    weights = {name: calls[0][0] for name, calls in recorded.items()}  # (H, L, S) each
    return {**chapter, "source": source, "target": target, "weights": weights}


def weights_of(name: str) -> dict[str, Any]:
    """Return the attention weights of both heads, and the tokens of the source."""
    chapter = trained()
    return {"tables": chapter["weights"][name].tolist(), "keys": chapter["ours"]}


def draw_heads(tables: list[list[list[float]]], queries: list[str], keys: list[str]) -> Figure:
    """Draw the attention weights of both heads."""
    made = new_figure(6.8, 3.1 if len(queries) == 6 else 3.5)
    for head, (axes, weights) in enumerate(zip(made.subplots(1, 2), tables, strict=True)):
        weight_table(axes, weights, queries=queries, keys=keys, title=f"head {head}")
    return made


@figure_of(partial(weights_of, "blocks.decoder.layers.0.cross_attention"))
def both_heads(tables: list[list[list[float]]], keys: list[str]) -> Figure:
    """Draw the cross-attention of the two heads."""
    return draw_heads(tables, TRANSLATION, keys)


@figure_of(partial(weights_of, "blocks.encoder.layers.0.self_attention"))
def encoder_heads(tables: list[list[list[float]]], keys: list[str]) -> Figure:
    """Draw the encoder's self-attention of the two heads."""
    return draw_heads(tables, keys, keys)


def weights_and_effects() -> dict[str, Any]:
    """Compute the weights of the query that predicts fish, and the effect of each position."""
    chapter = trained()
    model, ours, words = chapter["model"], chapter["ours"], chapter["target_words"]
    other = ["肉" if word == "魚" else word for word in ours]
    ids = torch.tensor([[chapter["source_words"].index(word) for word in other]])
    effects = []
    with torch.no_grad():
        memory, theirs = (
            model.blocks.encoder(model.embed_source(each)) for each in (chapter["source"], ids)
        )
        for place in range(len(ours)):
            patched = memory.clone()
            patched[:, place] = theirs[:, place]
            logits = model.decode(patched, chapter["target"][:, :-1])[0, 3]
            effects.append(logits.softmax(dim=0)[words.index("meat")].item())
    weights = chapter["weights"]["blocks.decoder.layers.0.cross_attention"][:, 3].tolist()
    return {"words": ours, "weights": weights, "effects": effects}


@figure_of(weights_and_effects)
def patching(words: list[str], weights: list[list[float]], effects: list[float]) -> Figure:
    """Draw the weights of the query that predicts fish, beside the effect of each position."""
    made = new_figure(6.4, 2.9)
    axes: Axes = made.subplots()
    bars = (
        ("weight of head 0", weights[0], SKY),
        ("weight of head 1", weights[1], ORANGE),
        ("p(meat) after the replacement", effects, GREEN),
    )
    for number, (label, heights, color) in enumerate(bars):
        places = [place + 0.27 * (number - 1) for place in range(len(words))]
        axes.bar(places, heights, width=0.25, color=color, label=label)
    axes.set_xticks(range(len(words)), words, size=11)
    axes.set_ylim(0, 1.28)
    axes.set_yticks([0, 0.5, 1])
    axes.legend(ncols=3, loc="upper center", columnspacing=1.2, handlelength=1.2)
    return made


NAMES = {
    "nothing": "nothing",
    "a head of the encoder's self-attention, one at a time": "a head, encoder",
    "a head of the decoder's self-attention, one at a time": "a head, decoder",
    "a head of the cross-attention, one at a time": "a head, cross-attention",
    "all of the encoder's self-attention": "all encoder self-attention",
    "all of the decoder's self-attention": "all decoder self-attention",
    "all of the cross-attention": "all cross-attention",
    "a feed-forward network, one at a time": "a feed-forward network",
    "all feed-forward networks": "all feed-forward networks",
    "the positional encoding": "positional encoding",
    "the scale 1 / sqrt(d_k)": "scale 1 / √d_k",
    "a residual connection, one at a time": "a residual connection",
    "all residual connections": "all residual connections",
}


@figure
def ablations() -> Figure:
    """Draw the table of ablations in the results."""
    text = (LEARN.parent / "results.md").read_text(encoding="utf-8")
    section = text.split("## What each part contributes")[1].split("\n## ")[0]
    number = r"([\d.]+)"
    corpus = rf"{number} \| {number} - {number}"
    rows = re.findall(rf"^\| ([^|]+) \| {corpus} \| {corpus} \|$", section, re.M)
    assert [name for name, *_ in rows] == list(NAMES)
    made = new_figure(6.8, 4.6)
    panels = made.subplots(1, 2, sharey=True)
    corpora = (("toy corpus, mean of 3 seeds", BLUE), ("real corpus, mean of 3 seeds", ORANGE))
    for column, (axes, (title, color)) in enumerate(zip(panels, corpora, strict=True)):
        values = [[*map(float, row[1 + 3 * column : 4 + 3 * column])] for row in rows]
        means = [mean for mean, *_ in values]
        axes.barh(range(len(means)), means, color=color, height=0.7)
        for place, (mean, low, high) in enumerate(values):
            axes.plot([low, high], [place] * 2, color=INK, lw=1.2, marker="|", ms=6)
            axes.text(high + 0.02 * means[0], place, f"{mean:.1f}", va="center", size=9)
        axes.set_title(title)
        axes.set_xlim(0, 1.2 * means[0])
        axes.set_xlabel("BLEU (line: lowest and highest seed)", size=9)
    panels[0].set_yticks(range(len(NAMES)), NAMES.values(), size=9)
    panels[0].set_ylim(len(NAMES) - 0.4, -0.6)
    return made


PLACES = ((1, 0), (2, 4), (3, 2))  # the query that predicts a word, and the word in the source


def alignment_course(seed: int) -> list[tuple[int, float, float]]:
    """Train the translator; return updates, losses and best weights on aligned words."""
    chapter = trained()
    torch.manual_seed(seed)
    model = chapter["Translator"]()
    source, target = chapter["to_ids"](chapter["training"])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    course = []

    def compute_loss() -> torch.Tensor:
        logits = model(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

    for update in range(201):
        if update % 10 == 0:
            model.eval()  # measure without dropout
            with record_attention(model) as recorded, torch.no_grad():
                loss = compute_loss()
            weights = recorded["blocks.decoder.layers.0.cross_attention"][0].mean(dim=0)
            best = [weights[:, query, key].max().item() for query, key in PLACES]
            course.append((update, loss.item(), sum(best) / len(best)))
            model.train()
        loss = compute_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return course


def courses() -> dict[str, Any]:
    """Train both models with three seeds."""
    train = definitions("18_look_inside", until="def train_repeated")["train_repeated"]
    return {
        "alignment": [alignment_course(seed) for seed in range(3)],
        "induction": [train(seed, every=25)[2] for seed in range(3)],
    }


@figure_of(courses)
def circuits(alignment: list[list[list[float]]], induction: list[list[list[float]]]) -> Figure:
    """Draw when heads appear during training, with the loss above them."""
    made = new_figure(6.8, 4.4)
    panels = made.subplots(2, 2, sharex="col")
    groups = (
        (alignment, "translator of chapter 0", ("alignment",), (BLUE,)),
        (induction, "repeated blocks", ("previous token", "induction"), (GREEN, ORANGE)),
    )
    for column, (runs, title, names, colors) in enumerate(groups):
        losses: Axes = panels[0, column]
        weights: Axes = panels[1, column]
        for number, run in enumerate(runs):
            updates, loss, *scores = zip(*run, strict=True)
            losses.plot(updates, loss, color=INK, marker="", lw=1.2)
            for name, color, score in zip(names, colors, scores, strict=True):
                label = name if number == 0 else None
                weights.plot(updates, score, color=color, marker="", lw=1.6, label=label)
        curves(losses, x="", y="loss", title=title)
        curves(weights, x="updates", y="weight")
        losses.set_ylim(0)
        weights.set_ylim(0, 1)
        weights.legend()
    return made
