"""Overfitting: a recurrent translator learns its training sentences by heart; then the cures.

    python docs/experiments/overfitting.py --corpus small_parallel_enja
    python docs/experiments/overfitting.py --corpus toy

An LSTM with attention is trained on 2,000 sentence pairs, without dropout or label smoothing, with
a constant learning rate, for many epochs. Its training loss approaches zero while its validation
loss rises: it *overfits*. Then each cure is tried alone, and all together, for the same number of
updates: a smaller model, dropout, label smoothing, weight decay, more data (all pairs of the
corpus). Early stopping needs no training of its own: every run is measured twice, with its last
weights and with those of its lowest validation loss.

Every loss is the plain cross-entropy per token without dropout, also where the training minimises
another, so that all are comparable. The tokenizers are the same in all runs. ``--data-dir`` names
the folder of the corpus; without it, the corpus is downloaded. The toy corpus needs no file.
"""

import copy
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

sys.path.append(str(Path(__file__).parents[2] / "examples"))  # the translator

from common.tokenizer import Tokenizer
from experiment import Experiment, new_parser, positive, run_single_threaded
from transformer_blocks import MultiHeadAttention, greedy_search
from translation.batches import Batch, Example, batches_of, collate, encode_pairs, make_batches
from translation.corpus import load_corpus
from translation.decoding import TrainedTranslator, translate
from translation.pairs import Corpus, Languages, Pair, clean
from translation.presets import TranslatorConfig
from translation.rnn_attention import RecurrentTranslator
from translation.scoring import score
from translation.training import TranslationLoss

COMMAND = "python docs/experiments/overfitting.py --corpus"
SENTENCE = "猫はかわいいね。"
RATE, MAX_LENGTH = 2e-3, 128
SIZES = {"pairs": 2000, "vocabulary": 4000, "updates": 2400, "every": 200}
CURVES = ("updates", "epoch", "train_loss", "validation_loss", "validation_bleu")


class Plan(NamedTuple):
    """The settings in which the runs differ; the defaults are those of the overfitting.

    Attributes:
        d_state: Size of the LSTM's states; the embeddings have half of it.
        dropout: Dropout probability.
        label_smoothing: Share of the target probability that is spread over all tokens.
        weight_decay: Decoupled weight decay of AdamW; the weights shrink by ``RATE`` times this.
        all_pairs: Whether to train on all pairs of the corpus.
        times: Number of times the usual updates.
    """

    d_state: int = 256
    dropout: float = 0.0
    label_smoothing: float = 0.0
    weight_decay: float = 0.0
    all_pairs: bool = False
    times: int = 1


RUNS = {
    "overfitting": Plan(),
    "smaller model": Plan(d_state=64),
    "dropout": Plan(dropout=0.4),
    "label smoothing": Plan(label_smoothing=0.1),
    "weight decay": Plan(weight_decay=0.3),
    "more data": Plan(all_pairs=True),
    "all but more data": Plan(64, 0.4, 0.1, 0.3),
    "all": Plan(64, 0.4, 0.1, 0.3, all_pairs=True),
    "more data and dropout": Plan(dropout=0.2, all_pairs=True),
    "overfitting, four times as long": Plan(times=4),
}


@torch.no_grad()
def mean_loss(model: RecurrentTranslator, examples: list[Example]) -> float:
    """Compute the plain cross-entropy per token in evaluation mode."""
    total, tokens = 0.0, 0
    for batch in batches_of(examples, batch_tokens=4096):
        total += float(TranslationLoss(0.0).loss(model.eval(), *batch))
        tokens += len(batch.real)
    return total / tokens


class Trial:
    """The data of the experiment, and how a run is trained and measured.

    Args:
        corpus: The sentence pairs.
        pairs: Number of training pairs.
        vocabulary: Maximum number of tokens of each language.
        updates: Number of updates of each run.
        every: Number of updates between two measurements.
        seed: Seed of the choice of pairs, of the weights, of dropout and of the batches.
    """

    def __init__(
        self, corpus: Corpus, *, pairs: int, vocabulary: int, updates: int, every: int, seed: int
    ) -> None:
        self.corpus, self.updates, self.every, self.seed = corpus, updates, every, seed
        self.pairs = random.Random(seed).sample([*corpus.train], min(pairs, len(corpus.train)))
        with tempfile.TemporaryDirectory() as folder:
            source, target = (
                Tokenizer.train(
                    [pair[side] for pair in corpus.train],
                    vocab_size=vocabulary,
                    path=Path(folder) / f"{side}.model",
                )
                for side in (0, 1)
            )
        self.tokenizers = source, target
        self.train_set, self.validation_set = map(self.encode, (self.pairs, corpus.validation))

    def encode(self, pairs: Sequence[Pair]) -> list[Example]:
        """Encode sentence pairs."""
        return encode_pairs(pairs, *self.tokenizers, max_length=MAX_LENGTH)

    def unseen(self) -> float:
        """Compute the share of validation target tokens that occur in no training target."""
        seen = {token for example in self.train_set for token in example.target}
        tokens = [token for example in self.validation_set for token in example.target]
        return sum(token not in seen for token in tokens) / len(tokens)

    def translate(self, model: RecurrentTranslator, sentences: Sequence[str]) -> list[str]:
        """Translate sentences by greedy decoding."""
        trained = TrainedTranslator(TranslatorConfig(), model, *self.tokenizers)
        return translate(trained, sentences, search=greedy_search, batch_tokens=4096)

    def bleu(self, model: RecurrentTranslator, pairs: Sequence[Pair]) -> float:
        """Compute BLEU of greedy translations."""
        outputs = self.translate(model, [pair.source for pair in pairs])
        references = [pair.reference for pair in pairs]
        return score(outputs, references, tokenize=self.corpus.bleu_tokenizer).bleu

    def measure(self, model: RecurrentTranslator) -> dict[str, Any]:
        """Measure a model: losses, recitation, BLEU of the test pairs, three translations."""
        known, test = self.pairs[:500], self.corpus.test
        recited = self.translate(model, [pair.source for pair in known])
        outputs = self.translate(model, [pair.source for pair in test])
        targets = {pair.target for pair in self.pairs}
        japanese = clean(SENTENCE, "ja", corpus=self.corpus.languages.corpus)
        samples = [Pair(japanese, "", ""), *test[:2]]
        found = self.translate(model, [pair.source for pair in samples])
        return {
            "train_loss": mean_loss(model, self.train_set[:500]),
            "validation_loss": mean_loss(model, self.validation_set),
            "exact_match_in_training": mean(
                output == pair.target for output, pair in zip(recited, known, strict=True)
            ),
            "training_targets_in_test": mean(output in targets for output in outputs),
            "test_bleu": self.bleu(model, test),
            "samples": [
                {"source": pair.source, "output": output, "reference": pair.reference}
                for pair, output in zip(samples, found, strict=True)
            ],
        }

    def run(self, plan: Plan) -> dict[str, Any]:
        """Train a model; return its curves, and the measures of its last and its best weights."""
        torch.manual_seed(self.seed)
        model = RecurrentTranslator(
            *(each.vocab_size for each in self.tokenizers),
            d_model=plan.d_state // 2,
            d_state=plan.d_state,
            dropout=plan.dropout,
            max_length=MAX_LENGTH,
            attention=MultiHeadAttention(plan.d_state, 1),
            tie_embeddings=False,
        )
        smoothed = TranslationLoss(plan.label_smoothing)
        optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=plan.weight_decay)
        curves: dict[str, list[float]] = {name: [] for name in CURVES}
        best, lowest = model.state_dict(), float("inf")
        batches = self.batches(self.encode(self.corpus.train) if plan.all_pairs else self.train_set)
        for update in range(1, plan.times * self.updates + 1):
            epoch, batch = next(batches)
            loss = smoothed.loss(model.train(), *batch) / len(batch.real)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if update % self.every:
                continue
            train, validation = (
                mean_loss(model, each) for each in (self.train_set[:500], self.validation_set)
            )
            bleu = self.bleu(model, self.corpus.validation[:200])
            row = (update, epoch, train, validation, bleu)
            for name, value in zip(CURVES, row, strict=True):
                curves[name].append(value)
            print(f"  {update} updates: {train:.3f} {validation:.3f} BLEU {bleu:.1f}", flush=True)
            if validation < lowest:
                best, lowest = copy.deepcopy(model.state_dict()), validation
        last = self.measure(model)
        model.load_state_dict(best)
        size = sum(parameter.numel() for parameter in model.parameters())
        measures = {"last": last, "best": self.measure(model)}
        return {"plan": plan._asdict(), "parameters": size, "curves": curves, **measures}

    def batches(self, examples: list[Example]) -> Iterator[tuple[int, Batch]]:
        """Yield batches of about 40 sentences without end, each with the number of its epoch."""
        for epoch in count(1):
            for batch in make_batches(examples, batch_tokens=400, seed=self.seed, epoch=epoch):
                yield epoch, collate(batch)


def main(arguments: Sequence[str] | None = None) -> None:
    """Overfit, cure, and record curves and measures of every run."""
    parser = new_parser(__doc__, seeds=[0])
    parser.add_argument("--corpus", choices=("toy", "small_parallel_enja"), default="toy")
    parser.add_argument("--data-dir", type=Path, help="folder that holds the files of the corpus")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=positive, default=default)
    options = parser.parse_args(arguments)
    experiment = Experiment(f"{COMMAND} {options.corpus}", options)
    corpus = load_corpus(Languages(options.corpus), data_dir=options.data_dir)
    sizes = {name: getattr(options, name) for name in SIZES}
    results: dict[str, Any] = {}
    for seed in options.seeds:
        trial = Trial(corpus, seed=seed, **sizes)
        results["unseen_validation_tokens"] = trial.unseen()
        for name in options.runs:
            print(f"{name}, seed {seed}", flush=True)
            results.setdefault(name, []).append({"seed": seed, **trial.run(RUNS[name])})
            path = experiment.write("overfitting", {"rate": RATE, **sizes}, results)
    print(path)


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
