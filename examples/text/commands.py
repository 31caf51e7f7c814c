"""Commands: what each command of ``generate_text.py`` does."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from common.distributed import choose_device
from common.files import check_output
from common.options import RunOptions, SamplingOptions
from common.run import RUNS, Run, choose_run
from common.searches import sampling
from common.terminal import say, table
from common.text_files import read_prompts
from common.tokenizer import Tokenizer
from common.training import run_training
from text.arguments import Evaluate, Explore, Generate, Train
from text.exploring import explore
from text.learning import NextToken, TextConfig, text_loss
from text.models import TextModel
from text.ngrams import NgramModel
from text.source import Text, characters, encode_lines, load_text
from text.writing import generate
from transformer_blocks import greedy_search

TRAIN = "python examples/generate_text.py train"
ORDER = 5
"""Order of the n-gram model."""
REPORT_STEPS = 50  # updates between two validations


def new_config(chosen: Mapping[str, Any]) -> TextConfig:
    """Make the configuration of a new run from the fields that the command line sets."""
    size, dropout = (400, 0.0) if "text" not in chosen else (2000, 0.1)
    defaults = {"report_steps": REPORT_STEPS, "vocabulary": size, "dropout": dropout}
    return TextConfig(**{**defaults, **chosen})


def text_of(config: TextConfig) -> Text:
    """Load the text of a run, and check that it is unchanged."""
    text = load_text(None if config.text is None else Path(config.text))
    config.check_data(text.fingerprint)
    return text


def train_command(options: Train) -> None:
    """Train a model, then generate two texts, one greedily and one by sampling."""
    run_training(
        options,
        Run(options.run or RUNS / "text", TextConfig),
        new_config(options.chosen(TextConfig)),
        load=text_of,
        prepare=lambda config, text: (config, {"tokenizer": text.train}),
        make_task=NextToken,
        show=show_results,
    )


def show_results(run: Run[TextConfig], text: Text, device: torch.device) -> None:
    """Generate a text greedily, and one by sampling."""
    config, model, (tokenizer,) = run.load(device)
    sampled = sampling(SamplingOptions(temperature=0.8, seed=config.seed))
    for title, search in (("greedy", greedy_search), ("sampled, temperature 0.8", sampled)):
        (generated,) = generate(model, tokenizer, [""], search, length=100)
        print(f"\n{title}:\n{generated}")
    print(f"\nWritten: {run.picture}")


def load(options: RunOptions) -> tuple[TextConfig, TextModel, list[Tokenizer]]:
    """Load the run that ``--run`` names, or the latest."""
    run = choose_run(options.run, TextConfig, train=TRAIN)
    return run.load(choose_device(options.device))


def evaluate_command(options: Evaluate) -> None:
    """Print perplexity and bits per character of the test text, the end of the text."""
    config, model, (tokenizer,) = load(options)
    text = text_of(config)
    tokens = encode_lines(text.test, tokenizer)
    losses = {f"Transformer, {config.style}": text_loss(model, tokens)}
    train_ids = encode_lines(text.train, tokenizer).tolist()
    for order in range(ORDER, 0, -1):
        ngrams = NgramModel(train_ids, order=order, vocabulary=tokenizer.vocab_size)
        losses[f"{order}-grams"] = ngrams.loss(tokens.tolist())
    letters = characters(text.test)
    print(f"test text: lines {len(text.test)}, tokens {len(tokens) - 1}, characters {letters}")
    rows = [
        (name, f"{math.exp(loss / (len(tokens) - 1)):.3f}", f"{loss / math.log(2) / letters:.3f}")
        for name, loss in losses.items()
    ]
    header = ("", "perplexity per token", "bits per character")
    say(table(header, rows, words=1))


def generate_command(options: Generate) -> None:
    """Continue the prompts."""
    prompts = read_prompts(options.prompts)
    _, model, (tokenizer,) = load(options)
    search = greedy_search if options.greedy else sampling(options)
    print("\n\n".join(generate(model, tokenizer, prompts, search, length=options.length)))


def explore_command(options: Explore) -> None:
    """Write a page with the attention weights of a prompt and its continuation."""
    (prompt,) = read_prompts([options.prompt])
    if options.output:
        check_output(options.output)
    run = choose_run(options.run, TextConfig, train=TRAIN)
    _, model, (tokenizer,) = run.load(choose_device(options.device))
    page = options.output or run.folder / "explorer.html"
    title = explore(model, tokenizer, prompt, page, length=options.length)
    print(f"{title}\nWritten: {page}\n{page.resolve().as_uri()}")


COMMANDS: dict[type, Callable[[Any], None]] = {
    Train: train_command,
    Evaluate: evaluate_command,
    Generate: generate_command,
    Explore: explore_command,
}
