"""Commands: what each command of ``classify.py`` does."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from classification.arguments import Classify, Evaluate, Train
from classification.data import Data, best_of_counts, load_data
from classification.learning import (
    Classification,
    ClassifierConfig,
    encode,
    label_numbers,
    predict,
)
from classification.models import EncoderClassifier
from classification.pictures import plot_accuracy, plot_encoder_attention
from common.distributed import choose_device
from common.options import RunOptions, check_together
from common.run import RUNS, Run, choose_run
from common.terminal import counted, say, table
from common.text_files import clean_text, input_lines
from common.tokenizer import Tokenizer
from common.training import Training, begin_run

ENCODER, BAG = "encoder", "bag of words"
REPORT_STEPS = 100  # updates between two validations


def new_config(chosen: Mapping[str, Any]) -> ClassifierConfig:
    """Make the configuration of a new run from the fields that the command line sets."""
    check_together(chosen, "train_file", "test_file")
    # There are too many toy reviews to overfit.
    size, dropout = (1000, 0.0) if "train_file" not in chosen else (4000, 0.1)
    defaults = {"report_steps": REPORT_STEPS, "vocabulary": size, "dropout": dropout}
    return ClassifierConfig(**{**defaults, **chosen})


def data_of(config: ClassifierConfig) -> Data:
    """Load the data of a run, and check that they are unchanged."""
    files = (None if file is None else Path(file) for file in (config.train_file, config.test_file))
    data = load_data(*files)
    config.check_data(data.fingerprint)
    return data


def prepare(config: ClassifierConfig, data: Data) -> tuple[ClassifierConfig, dict[str, list[str]]]:
    """Check the sizes of a new run's model; return the configuration and the tokenizer's texts."""
    config = replace(config, labels=data.labels, data_hash=data.fingerprint)
    config.build_encoder(config.vocabulary)
    return config, {"tokenizer": [review.text for review in data.train]}


def train_command(options: Train) -> None:
    """Train the bag of words, then the encoder, and show the results."""
    run = Run(options.run or RUNS / "classify", ClassifierConfig)
    new = new_config(options.chosen(ClassifierConfig))
    with begin_run(options, run, new, load=data_of, prepare=prepare) as begun:
        config, data = begun.config, begun.data
        (tokenizer,) = run.load_tokenizers(config)
        task, limit = Classification(data, tokenizer, config), best_of_counts(data.validation)
        vocabulary = tokenizer.vocab_size

        def draw() -> None:
            metrics = {ENCODER: encoder.metrics, BAG: bag.metrics}
            plot_accuracy(metrics, run.folder / "accuracy.png", limit=limit)

        shared: dict[str, Any] = {
            "device": begun.device,
            "processes": begun.processes,
            "on_report": draw,
        }
        part = bag_of(run)
        bag = Training(
            part, config, lambda: config.build_bag(vocabulary), task, title=BAG, **shared
        )
        encoder = Training(
            run, config, lambda: config.build_encoder(vocabulary), task, title=ENCODER, **shared
        )
        begun.train(
            *(bag, encoder),
            summary=f"{counted(len(data.train), 'training text')}, "
            f"{counted(len(data.validation), 'validation text')}"
            f"{' (held out from the training file)' if config.train_file else ''}, "
            f"{counted(len(data.test), 'test text')}, {len(config.labels)} labels, "
            f"a vocabulary of {vocabulary}",
        )
        if begun.processes.is_first:
            trained = load(run, config, begun.device)
            print()
            show_results(trained, data)
            show_attention(trained, data)
            print(f"Written: {run.folder / 'accuracy.png'}")


def bag_of(run: Run[ClassifierConfig]) -> Run[ClassifierConfig]:
    """Return the part of a run that holds the training of the bag of words."""
    return Run(run.folder / "bag", ClassifierConfig)


class Trained(NamedTuple):
    """A run whose models were trained."""

    run: Run[ClassifierConfig]
    config: ClassifierConfig
    tokenizer: Tokenizer
    encoder: EncoderClassifier
    bag: nn.Module


def load(run: Run[ClassifierConfig], config: ClassifierConfig, device: torch.device) -> Trained:
    """Load the best weights of both models."""
    (tokenizer,) = run.load_tokenizers(config)
    encoder = run.load_best(config.build_encoder(tokenizer.vocab_size), config)
    bag = bag_of(run).load_best(config.build_bag(tokenizer.vocab_size), config)
    return Trained(run, config, tokenizer, encoder.to(device), bag.to(device))


def show_results(trained: Trained, data: Data) -> None:
    """Print the accuracy of both models on the test texts, beside what needs no model."""
    labels = trained.config.labels
    texts = encode([each.text for each in data.test], trained.tokenizer, trained.config.max_length)
    correct = label_numbers(data.test, labels)
    rows = {
        name: float((predict(model, texts).argmax(1) == correct).float().mean())
        for name, model in ((ENCODER, trained.encoder), (BAG, trained.bag))
    }
    rows["best of word counts"] = best_of_counts(data.test)
    rows["always the most common label"] = int(correct.bincount().max()) / len(texts)
    print(counted(len(texts), "test text"))
    say(table(("", "accuracy"), [(name, f"{share:.1%}") for name, share in rows.items()], words=1))


def show_attention(trained: Trained, data: Data) -> None:
    """Draw the attention weights of the encoder for a rather short test text."""
    review = sorted(data.test, key=lambda review: len(review.text))[len(data.test) // 4]
    (text,) = encode([review.text], trained.tokenizer, min(trained.config.max_length, 40))
    label = trained.config.labels[int(predict(trained.encoder, [text]).argmax())]
    picture = trained.run.folder / "attention.png"
    title = f"{review.text} → {label}"
    plot_encoder_attention(trained.encoder, trained.tokenizer, text, picture, title=title)
    print(f"\nWritten: {picture}")


def load_chosen(options: RunOptions) -> Trained:
    """Load the run that ``--run`` names, or the latest."""
    run = choose_run(options.run, ClassifierConfig, train="python examples/classify.py train")
    return load(run, run.read_config(), choose_device(options.device))


def evaluate_command(options: Evaluate) -> None:
    """Evaluate both models on the test texts."""
    trained = load_chosen(options)
    show_results(trained, data_of(trained.config))


def classify_command(options: Classify) -> None:
    """Print the most probable label of each text and its probability, one per line."""
    trained = load_chosen(options)
    config = trained.config
    for lines in input_lines(options.sentences, options.file):
        texts = [clean_text(line, "en") for line in lines]
        known = encode([text for text in texts if text], trained.tokenizer, config.max_length)
        probabilities = iter(predict(trained.encoder, known).tolist() if known else [])
        for text in texts:
            line = ""
            if text:
                probability, label = max(zip(next(probabilities), config.labels, strict=True))
                line = f"{label}\t{probability:.4f}"
            print(line, flush=sys.stdin.isatty())


COMMANDS: dict[type, Callable[[Any], None]] = {
    Train: train_command,
    Evaluate: evaluate_command,
    Classify: classify_command,
}
