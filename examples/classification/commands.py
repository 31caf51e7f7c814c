"""Commands: what each command of ``classify.py`` does."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

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
from common.distributed import choose_device
from common.options import RunOptions, check_together
from common.plots import save
from common.run import RUNS, Run, choose_run
from common.terminal import counted, say, table
from common.text_files import clean_text, input_lines
from common.tokenizer import Tokenizer
from common.training import run_training
from transformer_blocks import record_attention
from transformer_blocks.explorer import plot_heads

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
    """Complete the configuration of a new run; return it with the texts of the tokenizer."""
    return replace(config, labels=data.labels), {
        "tokenizer": [review.text for review in data.train]
    }


def train_command(options: Train) -> None:
    """Train the encoder, and show the results."""
    run_training(
        options,
        Run(options.run or RUNS / "classify", ClassifierConfig),
        new_config(options.chosen(ClassifierConfig)),
        load=data_of,
        prepare=prepare,
        make_task=Classification,
        show=show_results,
    )


def show_results(run: Run[ClassifierConfig], data: Data, device: torch.device) -> None:
    """Print the accuracy, and draw the attention weights for a rather short test text."""
    config, model, (tokenizer,) = run.load(device)
    print_accuracy(config, tokenizer, model, data)
    review = sorted(data.test, key=lambda review: len(review.text))[len(data.test) // 4]
    (text,) = encode([review.text], tokenizer, min(config.max_length, 40))
    with record_attention(model, device="cpu") as maps:
        label = config.labels[int(predict(model, [text]).argmax())]
    tokens, *_, (weights,) = tokenizer.subwords(text), *maps.values()  # of the last layer
    picture = run.folder / "attention.png"
    save(plot_heads(weights[0], tokens, tokens, title=f"{review.text} → {label}"), picture)
    print(f"Written: {picture}, {run.picture}")


def print_accuracy(
    config: ClassifierConfig, tokenizer: Tokenizer, model: EncoderClassifier, data: Data
) -> None:
    """Print the accuracy on the test texts, beside what needs no model."""
    texts = encode([each.text for each in data.test], tokenizer, config.max_length)
    correct = label_numbers(data.test, config.labels)
    rows = {
        "encoder": float((predict(model, texts).argmax(1) == correct).float().mean()),
        "best of word counts": best_of_counts(data.test),
        "always the most common label": int(correct.bincount().max()) / len(texts),
    }
    print(f"\n{counted(len(texts), 'test text')}")
    say(table(("", "accuracy"), [(name, f"{share:.1%}") for name, share in rows.items()], words=1))


def load(options: RunOptions) -> tuple[ClassifierConfig, EncoderClassifier, list[Tokenizer]]:
    """Load the run that ``--run`` names, or the latest."""
    run = choose_run(options.run, ClassifierConfig, train="python examples/classify.py train")
    return run.load(choose_device(options.device))


def evaluate_command(options: Evaluate) -> None:
    """Evaluate the model on the test texts."""
    config, model, (tokenizer,) = load(options)
    print_accuracy(config, tokenizer, model, data_of(config))


def classify_command(options: Classify) -> None:
    """Print the most probable label of each text and its probability, one per line."""
    config, model, (tokenizer,) = load(options)
    for lines in input_lines(options.sentences, options.file):
        texts = [clean_text(line, "en") for line in lines]
        known = encode([text for text in texts if text], tokenizer, config.max_length)
        probabilities = iter(predict(model, known).tolist() if known else [])
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
