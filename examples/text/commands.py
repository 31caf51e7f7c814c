"""Commands: what each command of ``generate_text.py`` does."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.distributed import choose_device
from common.files import check_output
from common.options import RunOptions, SamplingOptions
from common.run import RUNS, Run, choose_run
from common.searches import sampling, sampling_or_greedy
from common.terminal import OUTPUT, SampleLines, counted, say, table
from common.text_files import read_prompts
from common.tokenizer import Tokenizer
from common.training import Training, begin_run
from text.arguments import Evaluate, Explore, Generate, Train
from text.exploring import explore
from text.learning import NextToken, TextConfig, text_loss
from text.models import TextModel
from text.ngrams import NgramModel
from text.pictures import plot_text_loss
from text.source import Text, characters, encode_lines, load_text
from text.writing import generate
from transformer_blocks import greedy_search

TRAIN = "python examples/generate_text.py train"
ORDER = 5
"""Order of the n-gram model."""
REPORT_STEPS = 50  # updates between two validations
SHOWN = 24  # tokens that are generated after each validation


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


def prepare(config: TextConfig, text: Text) -> tuple[TextConfig, dict[str, list[str]]]:
    """Check the sizes of a new run's model; return the configuration and the tokenizer's texts."""
    config.build(config.vocabulary)
    return replace(config, data_hash=text.fingerprint), {"tokenizer": text.train}


def train_command(options: Train) -> None:
    """Train a model, then generate two texts, one greedily and one by sampling."""
    run, new = Run(options.run or RUNS / "text", TextConfig), new_config(options.chosen(TextConfig))
    with begin_run(options, run, new, load=text_of, prepare=prepare) as begun:
        config, text, device = begun.config, begun.data, begun.device
        (tokenizer,) = run.load_tokenizers(config)
        train_ids, validation_ids = (
            encode_lines(lines, tokenizer) for lines in (text.train, text.validation)
        )
        ngrams = NgramModel(train_ids.tolist(), order=ORDER, vocabulary=tokenizer.vocab_size)
        ngram_loss = ngrams.loss(validation_ids.tolist()) / (len(validation_ids) - 1)
        picture = run.folder / "loss.png"

        def draw() -> None:
            plot_text_loss(training.metrics, picture, ngrams=ngram_loss, order=ORDER)

        training = Training(
            run,
            config,
            lambda: config.build(tokenizer.vocab_size),
            NextToken(train_ids, validation_ids, config),
            device=device,
            processes=begun.processes,
            on_report=draw,
            title=f"style {config.style}",
            sample=lambda model: continue_line(model, tokenizer, text.validation),
        )
        begun.train(
            training,
            summary=f"{counted(len(text.train), 'training line')} of {len(train_ids):,} tokens, "
            f"{counted(len(text.validation), 'validation line')}, "
            f"{counted(len(text.test), 'test line')} (cut from the end of the text), a vocabulary "
            f"of {tokenizer.vocab_size}, validation perplexity of {ORDER}-grams: "
            f"{math.exp(ngram_loss):.3f}",
        )
        if begun.processes.is_first:
            model = run.load_best(config.build(tokenizer.vocab_size), config).to(device)
            sampled = sampling(SamplingOptions(temperature=0.8, seed=config.seed))
            for title, search in (("greedy", greedy_search), ("sampled, temperature 0.8", sampled)):
                (generated,) = generate(model, tokenizer, [""], search, length=100)
                print(f"\n{title}:\n{generated}")
            print(f"\nWritten: {picture}")


def continue_line(model: TextModel, tokenizer: Tokenizer, lines: Sequence[str]) -> SampleLines:
    """Continue the beginning of a validation line, always the same one."""
    prompt = " ".join(lines[len(lines) // 2].split()[:4])[:30]
    (text,) = generate(model, tokenizer, [prompt], greedy_search, length=SHOWN)
    return [("prompt", prompt), (OUTPUT, text)]


def load(options: RunOptions) -> tuple[TextConfig, Tokenizer, TextModel]:
    """Load the best weights of the run that ``--run`` names, or of the latest."""
    run = choose_run(options.run, TextConfig, train=TRAIN)
    config, device = run.read_config(), choose_device(options.device)
    (tokenizer,) = run.load_tokenizers(config)
    return config, tokenizer, run.load_best(config.build(tokenizer.vocab_size), config).to(device)


def evaluate_command(options: Evaluate) -> None:
    """Print perplexity and bits per character of the test text, the end of the text."""
    config, tokenizer, model = load(options)
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
    _, tokenizer, model = load(options)
    search = sampling_or_greedy(options, greedy=options.greedy)
    print("\n\n".join(generate(model, tokenizer, prompts, search, length=options.length)))


def explore_command(options: Explore) -> None:
    """Write a page with the attention weights of a prompt and its continuation."""
    (prompt,) = read_prompts([options.prompt])
    if options.output:
        check_output(options.output)
    page = (
        options.output or choose_run(options.run, TextConfig, train=TRAIN).folder / "explorer.html"
    )
    _, tokenizer, model = load(options)
    title = explore(model, tokenizer, prompt, page, length=options.length)
    print(f"{title}\nWritten: {page}\n{page.resolve().as_uri()}")


COMMANDS: dict[type, Callable[[Any], None]] = {
    Train: train_command,
    Evaluate: evaluate_command,
    Generate: generate_command,
    Explore: explore_command,
}
