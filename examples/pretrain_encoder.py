"""Pretrain an encoder as a masked language model, then classify texts with few labels.

    python examples/pretrain_encoder.py

One file to copy and change, on torch and the library alone; the picture needs matplotlib. The idea
is BERT's (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1): 15 % of the tokens of
a text are chosen, most of them are replaced by the token [MASK], and an encoder predicts what they
were. It attends to both sides of a token, while a causal language model attends to the left side
only. This training needs no labels, and a classifier that begins with its weights needs few.

A small grammar makes the texts, each about one of six habitats, which is its label:

    two old whales swam near the reef . they ate shrimp .

Each text has a template, which lists the possible words of each position. All of them are equally
probable, whatever the other words are. A model that knew the template would therefore have the loss
ln(n) at a [MASK] with n possible words, and no model can have a lower mean loss. To pretrain on
other texts, replace ``sample_texts``; the bound is then unknown.
"""

import argparse
import copy
import json
import platform
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    LearnedPositionalEncoding,
    TokenEmbedding,
    build_encoder,
    mean_pool,
    padding_mask,
)
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.explorer.plots import new_figure
from transformer_blocks.explorer.style import LINES, MARKERS, PALETTES
from transformer_blocks.files import write_atomically

HABITATS = {  # animals, verbs, places and foods; some belong to two habitats
    "sea": ("whale seal shark dolphin squid gull crab turtle", "swam dived drifted floated",
            "reef lagoon bay harbour island", "shrimp herring kelp plankton"),
    "river": ("otter beaver frog heron swan crab turtle duck", "swam dived waded paddled",
              "bank waterfall island bridge mill", "trout minnows reeds plankton"),
    "farm": ("cow goat hen pig horse lamb duck dog", "grazed trotted slept waited",
             "barn stable fence mill meadow", "hay oats corn clover"),
    "forest": ("bear badger owl squirrel boar stag frog raven", "climbed crept slept hid",
               "oak trail thicket meadow cave", "nuts berries roots clover"),
    "desert": ("camel lizard scorpion viper vulture jackal lion raven", "crawled crept rested hid",
               "dune oasis cactus rock cave", "dates thorns seeds roots"),
    "city": ("cat rat pigeon sparrow poodle parrot dog gull", "strolled trotted rested waited",
             "market park tower bridge harbour", "bread crumbs seeds corn"),
}  # fmt: skip
DETERMINERS, PRONOUNS = ("one a every", "two three many"), ("it", "they")
ADJECTIVES, PREPOSITIONS = "old young small quiet hungry brown", "near behind beside"
STEPS = 1500
EXAMPLE = "two old [MASK] swam near the reef ."
LABELS = (1, 2, 4, 8, 16, 32)  # numbers of labelled texts of each habitat
CLASSIFIERS = {"pretrained encoder": 3e-3, "encoder without pretraining": 3e-3, "word counts": 0.1}
HELD_OUT, TEST, LABELLED = 1_000_000, 2_000_000, 3_000_000  # seeds of texts


def make_templates() -> list[tuple[int, list[list[str]]]]:
    """List the templates: a habitat, and for each position the words that are possible there."""
    templates = []
    for habitat, (animals, verbs, places, foods) in enumerate(HABITATS.values()):
        for plural, described, place_first, continued in product((0, 1), repeat=4):
            nouns = " ".join(animal + "s" * plural for animal in animals.split())
            subject = [DETERMINERS[plural], *[ADJECTIVES] * described, nouns]
            place = [PREPOSITIONS, "the", places]
            slots = [*place, *subject, verbs] if place_first else [*subject, verbs, *place]
            slots += [".", *[PRONOUNS[plural], "ate", foods, "."] * continued]
            templates.append((habitat, [slot.split() for slot in slots]))
    return templates


TEMPLATES = make_templates()
LENGTH = max(len(slots) for _, slots in TEMPLATES)
WORDS = sorted({word for _, slots in TEMPLATES for slot in slots for word in slot})
VOCABULARY = ["[PAD]", "[MASK]", *WORDS]
PAD, MASK, FIRST_WORD = range(3)


def encode(texts: Sequence[Sequence[str]]) -> Tensor:
    """Turn words into ids, padded to equal length: (B, LENGTH)."""
    rows = [[VOCABULARY.index(word) for word in text] for text in texts]
    return torch.tensor([row + [PAD] * (LENGTH - len(row)) for row in rows])


def sample_texts(count: int, generator: random.Random) -> tuple[Tensor, Tensor, Tensor]:
    """Make texts (B, LENGTH), their habitats (B,), and how many words were possible (B, LENGTH)."""
    templates = generator.choices(TEMPLATES, k=count)
    texts = encode([[generator.choice(slot) for slot in slots] for _, slots in templates])
    possible = [[len(slot) for slot in slots] for _, slots in templates]
    possible = [row + [1] * (LENGTH - len(row)) for row in possible]
    return texts, torch.tensor([habitat for habitat, _ in templates]), torch.tensor(possible)


def corrupt(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Choose 15 % of the tokens; replace 80 % of them by [MASK], and 10 % by random words.

    The other 10 % remain. The encoder cannot know which of the given words are the true ones, so it
    learns to predict every token from its context. It needs this later: the texts of the classifier
    contain no [MASK].

    Args:
        tokens: Token ids, of shape (B, L).

    Returns:
        The corrupted token ids, and a boolean tensor that is True where a token was chosen; both of
        shape (B, L). Padding is never chosen.
    """
    chosen = (torch.rand(tokens.shape) < 0.15) & (tokens != PAD)
    part = torch.rand(tokens.shape)
    words = torch.randint(FIRST_WORD, len(VOCABULARY), tokens.shape)
    corrupted = tokens.masked_fill(chosen & (part < 0.8), MASK)
    return torch.where(chosen & (part >= 0.9), words, corrupted), chosen


class MaskedLanguageModel(nn.Module):
    """A small BERT: embeddings with learned positions, an encoder, and an output layer."""

    def __init__(self, *, d_model: int = 64) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(len(VOCABULARY), d_model)
        self.positions = LearnedPositionalEncoding(d_model, max_length=LENGTH)
        self.encoder = build_encoder(
            num_layers=2,
            d_model=d_model,
            num_heads=4,
            d_ff=4 * d_model,
            dropout=0.0,  # no text is repeated, so that none can be memorised
            activation=F.gelu,
        )
        self.output = nn.Linear(d_model, len(VOCABULARY))

    def encode(self, tokens: Tensor) -> Tensor:
        """Compute a vector for each token in its context: (B, L) to (B, L, d_model)."""
        return self.encoder(self.positions(self.embedding(tokens)), mask=padding_mask(tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the original tokens: (B, L) to (B, L, V)."""
        return self.output(self.encode(tokens))


class Classifier(nn.Module):
    """A linear layer on the mean of an encoder's vectors.

    BERT takes the vector of a first token [CLS] instead, which is trained by BERT's second task,
    next-sentence prediction.
    """

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.output = nn.Linear(model.output.in_features, len(HABITATS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the habitats: (B, L) to (B, habitats)."""
        return self.output(mean_pool(self.model.encode(tokens), mask=padding_mask(tokens)))


def masked_loss(logits: Tensor, tokens: Tensor, chosen: Tensor) -> Tensor:
    """Compute the mean cross-entropy of the original tokens at the chosen positions, in nats."""
    return F.cross_entropy(logits[chosen], tokens[chosen])


def pretrain(
    model: MaskedLanguageModel, held_out: tuple[Tensor, Tensor], *, steps: int, seed: int
) -> dict[int, float]:
    """Train a model on new texts in each update.

    Args:
        model: The model to train.
        held_out: Corrupted texts, and the same texts before.
        steps: Number of updates.
        seed: Seed of the texts.

    Returns:
        The loss at the [MASK] tokens of the held-out texts, by the number of updates.
    """
    generator, losses = random.Random(seed), {}
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    for step in range(1, steps + 1):
        tokens, _, _ = sample_texts(128, generator)
        corrupted, chosen = corrupt(tokens)
        loss = masked_loss(model(corrupted), tokens, chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps:
            corrupted, tokens = held_out
            with torch.no_grad():
                losses[step] = masked_loss(model(corrupted), tokens, corrupted == MASK).item()
            print(f"  update {step:4d}  held-out loss {losses[step]:.3f}", flush=True)
    return losses


def fine_tune(model: nn.Module, tokens: Tensor, labels: Tensor, *, rate: float) -> None:
    """Train all parameters of a classifier, in 100 updates with at most 32 texts each."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(100):
        batch = torch.randperm(len(tokens))[:32]
        loss = F.cross_entropy(model(tokens[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def compare(pretrained: MaskedLanguageModel, *, seed: int) -> dict[str, list[float]]:
    """Compute the test accuracy of each classifier after training with each number of labels."""
    texts, habitats, _ = sample_texts(1000, random.Random(LABELLED + seed))
    test, answers, _ = sample_texts(2000, random.Random(TEST))
    accuracies: dict[str, list[float]] = {name: [] for name in CLASSIFIERS}
    for count in LABELS:
        few = torch.cat([(habitats == each).nonzero()[:count, 0] for each in range(len(HABITATS))])
        counts = nn.EmbeddingBag(len(VOCABULARY), len(HABITATS), mode="sum", padding_idx=PAD)
        nn.init.zeros_(counts.weight)  # a logistic regression: one weight for each word and habitat
        models = Classifier(pretrained), Classifier(MaskedLanguageModel()), counts
        for (name, rate), model in zip(CLASSIFIERS.items(), models, strict=True):
            fine_tune(model, texts[few], habitats[few], rate=rate)
            with torch.no_grad():
                is_right = model(test).argmax(-1) == answers
            accuracies[name].append(is_right.float().mean().item())
    return accuracies


@torch.no_grad()
def predict_in_contexts(model: MaskedLanguageModel) -> list[list[list[float]]]:
    """Predict the [MASK] of EXAMPLE from its left context alone, its right one alone, and both.

    Returns:
        For each context a table of probabilities. Its rows are singular and plural nouns, its
        columns are animals of the sea and others.
    """
    place, length = EXAMPLE.split().index("[MASK]"), len(EXAMPLE.split())
    tokens = encode([EXAMPLE.split()] * 3)
    tokens[0, place:length] = tokens[1, :place] = MASK
    probabilities = model(tokens)[:, place].softmax(-1)
    sea = HABITATS["sea"][0].split()
    others = {word for animals, *_ in HABITATS.values() for word in animals.split()} - {*sea}
    kinds = [[[VOCABULARY.index(animal + end) for animal in kind] for kind in (sea, sorted(others))]
             for end in ("", "s")]  # fmt: skip
    return [[[row[ids].sum().item() for ids in line] for line in kinds] for row in probabilities]


def run(seeds: Sequence[int], *, steps: int) -> dict[str, Any]:
    """Pretrain and compare once for each seed; return what :func:`draw` shows."""
    torch.manual_seed(HELD_OUT)
    tokens, _, possible = sample_texts(2000, random.Random(HELD_OUT))
    corrupted, _ = corrupt(tokens)
    bound = possible[corrupted == MASK].log().mean().item()
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        print(f"seed {seed}  (lowest possible held-out loss: {bound:.3f})", flush=True)
        torch.manual_seed(seed)
        model = MaskedLanguageModel()
        losses = pretrain(model, (corrupted, tokens), steps=steps, seed=seed)
        contexts, accuracies = predict_in_contexts(model), compare(model, seed=seed)
        runs.append({"losses": losses, "contexts": contexts, "accuracies": accuracies})
    print(f"test accuracy, mean of {len(runs)} seed{'s' * (len(runs) > 1)} (lowest to highest)")
    for number, count in enumerate(LABELS):
        print(f"  {count:2d} labelled texts of each habitat", end="")
        for name in CLASSIFIERS:
            found = [each["accuracies"][name][number] for each in runs]
            print(f"  {name} {mean(found):.1%} ({min(found):.1%} to {max(found):.1%})", end="")
        print()
    return {"bound": bound, "runs": runs}


def draw(results: dict[str, Any]) -> Any:
    """Draw predictions in three contexts, the loss and the accuracies: means, lowest to highest."""
    from transformer_blocks.explorer.figure import colour_map, style_axes  # needs matplotlib

    figure, runs, palette = new_figure(10.0, 6.2), results["runs"], PALETTES["light"]
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.0, 1.5))
    top.suptitle("probability of the nouns at [MASK] in three contexts", fontsize=10.5)
    left, right = EXAMPLE.split("[MASK]")
    titles = f"{left}[MASK]", f"[MASK]{right}", EXAMPLE
    for number, (axes, title) in enumerate(zip(top.subplots(1, 3), titles, strict=True)):
        table = torch.tensor([run["contexts"][number] for run in runs]).mean(0)
        style_axes(axes)
        axes.imshow(table.tolist(), cmap=colour_map(palette.weights), vmin=0, vmax=1, aspect="auto")
        for row, column in product((0, 1), repeat=2):
            value = table[row, column].item()
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=13,
                      color="white" if value > 0.4 else palette.text)  # fmt: skip
        axes.set_xticks((0, 1), ("of the sea", "others"))
        axes.set_yticks((0, 1), ("singular", "plural"))
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=10, color=palette.text)
    loss, accuracy = bottom.subplots(1, 2)
    updates = [int(step) for step in runs[0]["losses"]]
    lines = [(loss, updates, "encoder", [[*run["losses"].values()] for run in runs])]
    lines += [(accuracy, [*LABELS], name, [run["accuracies"][name] for run in runs])
              for name in CLASSIFIERS]  # fmt: skip
    for number, (axes, x, name, values) in enumerate(lines):
        look = {"color": LINES[max(number - 1, 0)], "marker": MARKERS[max(number - 1, 0)]}
        columns = [*zip(*values, strict=True)]
        axes.plot(x, [mean(each) for each in columns], label=name, markersize=5, **look)
        axes.fill_between(x, [min(each) for each in columns], [max(each) for each in columns],
                          color=look["color"], alpha=0.2, linewidth=0)  # fmt: skip
    loss.axhline(results["bound"], color=palette.muted, linestyle="--", linewidth=1)
    loss.text(updates[-1], results["bound"] - 0.05, "no model can have a lower mean", ha="right",
              va="top", color=palette.muted)  # fmt: skip
    accuracy.set_xscale("log", base=2)
    accuracy.set_xticks(LABELS, LABELS)
    accuracy.legend(frameon=False, loc="lower right")
    labels = (("updates of the pretraining", "held-out loss at [MASK] (nats)", (0, None)),
              ("labelled texts of each habitat", "test accuracy", (0, 1.03)))  # fmt: skip
    for axes, (xlabel, ylabel, limits) in zip((loss, accuracy), labels, strict=True):
        style_axes(axes)
        axes.set(xlabel=xlabel, ylabel=ylabel, ylim=limits)
        axes.grid(color=palette.muted, alpha=0.2, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program, and write the picture and the numbers that it shows."""
    name = Path(__file__).stem
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N",
                        help=f"updates of each training (default: {STEPS})")  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", default=[0, 1, 2],
                        help="one for each run (default: 0 1 2)")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("runs", name), metavar="FOLDER",
                        help=f"where to write the picture (default: runs/{name})")  # fmt: skip
    options = parser.parse_args(arguments)
    check_packages("the picture", "matplotlib", extra="plot")
    from transformer_blocks.explorer.figure import save_png

    picture = options.output / f"{name}.png"
    options.output.mkdir(parents=True, exist_ok=True)
    results = run(options.seeds, steps=options.steps)
    origin = f"measured on {platform.machine()}, cpu, torch {torch.__version__}"
    content = {"command": f"python examples/{name}.py", "origin": origin, **results}
    write_atomically(picture.with_suffix(".json"), f"{json.dumps(content, indent=1)}\n".encode())
    save_png(draw(results), picture, dpi=160)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main()
