"""Extrapolation: language models trained on short sequences, and tested on longer ones.

    python docs/experiments/extrapolation.py

A decoder-only model is trained on sequences of 64 tokens, once with each kind of positions, and
tested on sequences of 64, 128, 256 and 512 tokens.

The *text* is generated, and its words depend on the whole document before them. A sentence has one
of three forms, with names, a place, or a thing and its colour. A name that occurred before occurs
again with a probability that grows with the number of its occurrences: after n names, the next one
is drawn from these n with the probability n / (n + 5), and otherwise from a list of 60 names. So
each document has frequent names of its own. The more of it a model reads, the better it can predict
the names, up to the 512 tokens and beyond. A training sequence is a piece of such a document.

The *measurement* compares the lengths on the same tokens: the last 32 of each test document. The
model reads the 64, 128, 256 or 512 tokens that end there. Each of the measured tokens has at least
32 others before it, so the first tokens of a sequence, which have hardly any context, are not
counted.

``ideal`` is the perplexity of a reader who knows how the text is made and reads the same tokens. As
the order of the names does not matter (they form a Pólya urn), the probability of a name for that
reader is (c + 5 / 60) / (n + 5), if c of the n names that it has read are this one.

A learned positional encoding has no trained rows for later positions. Here, its table has 512 rows,
of which those from 64 on keep their random initial values. The relative position bias has 16
buckets and a maximum distance of a quarter of the training length, as in T5 (128 of 512). Its last
bucket begins at the distance 15.

Sizes and rate were chosen with other documents and seeds than those of the results, for rotary
positions alone.
"""

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from experiment import Experiment, new_parser, positive, run_single_threaded
from text.stories import COLOURS, THINGS
from transformer_blocks import (
    ALiBi,
    LanguageModel,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    RelativeBias,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)

COMMAND = "python docs/experiments/extrapolation.py"
SIZES = {"updates": 1000, "documents": 256, "d_model": 64, "layers": 2}
LENGTH, LENGTHS, MEASURED = 64, (64, 128, 256, 512), 32  # in tokens
HEADS, BATCH, RATE, WARMUP = 4, 32, 3e-3, 100
TEST_SEED = 1_000_000

NEW = 5.0  # the probability of a name that does not depend on the earlier ones: NEW / (n + NEW)
STARTS, ENDS = "Ba Fi Ha Lo Mi Na", "bo da gu la mo ni ra sa ti wen"
NAMES = [start + end for start in STARTS.split() for end in ENDS.split()]
PLACES = "bridge church forest garden harbour kitchen market mill river tower"
SLOTS = {"PLACE": PLACES.split(), "COLOUR": COLOURS.split(), "THING": THINGS.split()}
SENTENCES = (
    "NAME met NAME and NAME in the PLACE .",
    "NAME asked NAME about a COLOUR THING .",
    "NAME and NAME went to the PLACE .",
)
VOCABULARY = sorted(
    {*NAMES, *chain(*SLOTS.values()), *" ".join(SENTENCES).split()} - {"NAME", *SLOTS}
)
IDS = {word: number for number, word in enumerate(VOCABULARY)}


class Word(NamedTuple):
    """A word of a document.

    Attributes:
        text: The word.
        choices: Number of words that are equally probable there; None for a name.
    """

    text: str
    choices: int | None


def new_document(length: int, rng: Random) -> list[Word]:
    """Generate a document of ``length`` words."""
    document: list[Word] = []
    names: list[str] = []
    while len(document) < length:
        for place, part in enumerate(rng.choice(SENTENCES).split()):
            if part == "NAME":
                is_known = rng.random() * (len(names) + NEW) < len(names)
                names.append(rng.choice(names if is_known else NAMES))
                document.append(Word(names[-1], None))
            else:
                choices = SLOTS.get(part, [part])
                count = len(SENTENCES) if place == 1 else len(choices)  # which shows the form
                document.append(Word(rng.choice(choices), count))
    return document[:length]


def ideal_perplexity(documents: Sequence[Sequence[Word]], length: int) -> float:
    """Compute the perplexity of a reader who knows the rules and reads ``length`` words."""
    losses = []
    for document in documents:
        end = len(document) - 1
        for place in range(len(document) - MEASURED, len(document)):
            text, choices = document[place]
            if choices is None:
                read = [each.text for each in document[end - length : place] if not each.choices]
                probability = (read.count(text) + NEW / len(NAMES)) / (len(read) + NEW)
            else:
                probability = 1 / choices
            losses.append(-math.log(probability))
    return math.exp(mean(losses))


Kind = tuple[nn.Module | None, Callable[[], MultiHeadAttention]]
"""What is added to the embeddings, and what makes the attention of one layer."""


def build_model(kind: Kind, *, num_layers: int, d_model: int) -> LanguageModel:
    """Build a decoder-only Transformer with one kind of positions."""
    positions, attention = kind
    embedding = TokenEmbedding(len(VOCABULARY), d_model)
    decoder = build_encoder(
        num_layers=num_layers,
        d_model=d_model,
        d_ff=4 * d_model,
        dropout=0.0,
        residual=PreNorm,
        attention=attention,
    )
    return LanguageModel(embedding, decoder, positions=positions)


def sinusoidal(d_model: int) -> Kind:
    """Add the paper's sinusoids."""
    positions = SinusoidalPositionalEncoding(d_model, max_length=max(LENGTHS))
    return positions, partial(MultiHeadAttention, d_model, HEADS)


def learned(d_model: int) -> Kind:
    """Add learned vectors; those of later positions stay as they were initialised."""
    positions = LearnedPositionalEncoding(d_model, max_length=max(LENGTHS))
    return positions, partial(MultiHeadAttention, d_model, HEADS)


def rotary(d_model: int) -> Kind:
    """Rotate queries and keys."""
    transforms = [RotaryPositionalEncoding(d_model // HEADS)]
    return None, partial(MultiHeadAttention, d_model, HEADS, transforms=transforms)


def alibi(d_model: int) -> Kind:
    """Subtract the distance from the scores."""
    return None, partial(MultiHeadAttention, d_model, HEADS, attention_function=ALiBi(HEADS))


def relative_bias(d_model: int) -> Kind:
    """Add a learned bias, whose maximum distance is a quarter of the length, as in T5."""

    def attention() -> MultiHeadAttention:
        bias = RelativeBias(HEADS, num_buckets=16, max_distance=LENGTH // 4, bidirectional=False)
        return MultiHeadAttention(d_model, HEADS, attention_function=bias)

    return None, attention


def no_positions(d_model: int) -> Kind:
    """Leave the order of the tokens to the causal mask."""
    return None, partial(MultiHeadAttention, d_model, HEADS)


KINDS = {
    "sinusoidal": sinusoidal,
    "learned": learned,
    "rotary": rotary,
    "ALiBi": alibi,
    "relative bias": relative_bias,
    "none": no_positions,
}


def to_ids(documents: Sequence[Sequence[Word]]) -> Tensor:
    """Convert documents of one length to token ids, of shape (documents, length)."""
    return torch.tensor([[IDS[word.text] for word in each] for each in documents])


def make_batch(rng: Random) -> Tensor:
    """Cut new documents into the sequences of one update, of shape (BATCH, LENGTH + 1)."""
    pieces = max(LENGTHS) // LENGTH
    documents = [new_document(max(LENGTHS) + 1, rng) for _ in range(BATCH // pieces)]
    return to_ids(documents).unfold(1, LENGTH + 1, LENGTH).flatten(0, 1)


def train(model: LanguageModel, *, updates: int, seed: int) -> float:
    """Train with new text for each update; return the mean loss of the last tenth."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    rng, losses = Random(seed), []
    for update in range(updates):
        rate = RATE * min((update + 1) / WARMUP, 1.0, 2.0 * (1.0 - update / updates))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens = make_batch(rng)
        loss = model.loss(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return mean(losses[-max(1, updates // 10) :])


@torch.no_grad()
def perplexity(model: LanguageModel, tokens: Tensor, length: int) -> float:
    """Compute the perplexity of the last tokens of documents, given sequences of ``length``."""
    losses = []
    for part in tokens[:, -length - 1 :].split(32):
        logits = model(part[:, :-1])[:, -MEASURED:]
        targets = part[:, -MEASURED:]
        losses.append(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none"))
    return torch.cat(losses).mean().exp().item()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train each kind of model with each seed, and record its perplexity at each length."""
    parser = new_parser(__doc__, seeds=range(3))
    for name, default in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=positive, default=default)
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    rng = Random(TEST_SEED)
    documents = [new_document(max(LENGTHS) + 1, rng) for _ in range(options.documents)]
    tokens = to_ids(documents)
    ideal = [ideal_perplexity(documents, length) for length in LENGTHS]
    results: dict[str, Any] = {"ideal": ideal}
    print("ideal", [round(each, 3) for each in ideal], flush=True)
    for name in KINDS:
        runs = []
        for seed in options.seeds:
            torch.manual_seed(seed)
            sizes = {"num_layers": options.layers, "d_model": options.d_model}
            model = build_model(KINDS[name](options.d_model), **sizes)
            loss = train(model, updates=options.updates, seed=seed)
            found = [perplexity(model, tokens, length) for length in LENGTHS]
            runs.append({"seed": seed, "training_perplexity": math.exp(loss), "perplexity": found})
            print(
                name, seed, round(math.exp(loss), 3), [round(each, 3) for each in found], flush=True
            )
        columns = [*zip(*(run["perplexity"] for run in runs), strict=True)]
        results[name] = {
            "mean": [mean(each) for each in columns],
            "spread": [stdev(each) if len(each) > 1 else 0.0 for each in columns],
            "runs": runs,
        }
    settings = {name: getattr(options, name) for name in SIZES}
    settings |= {"lengths": LENGTHS, "measured": MEASURED, "batch": BATCH, "rate": RATE}
    print(experiment.write("extrapolation", settings, results))


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
