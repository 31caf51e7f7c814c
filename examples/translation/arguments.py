"""Arguments: the command line of ``translate.py`` and its checks."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.options import (
    Number,
    Parser,
    add_device_option,
    add_sampling_options,
    add_training_options,
    run_options,
)

TRAIN = "python examples/translate.py train"
"""The command that trains a run."""
CORPORA = ("toy", "small_parallel_enja", "files")
MODELS = ("transformer", "rnn", "rnn-additive", "rnn-fixed")
PRESETS = ("tiny", "small", "base")
FORMATS = ("onnx", "ctranslate2")
RUN = "folder of the run (default: the latest trained run in runs/)"
BEAM_SIZE, LENGTH_PENALTY = 5, 1.4  # chosen on validation sentences
BEAM = f"beam size; 1 is greedy decoding (default: {BEAM_SIZE})"
ABOVE_0, UP_TO_1000 = Number(int, "above 0"), Number(int, "from 1 to 1000")


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``.

    Raises:
        UserError: If an option is unknown, out of range, or requires another that is missing.
    """
    parser, common, searching = Parser(description=description), run_options(), search_options()
    parser.set_defaults(average_last=None, int8=False, n_best=1, program=None, engine="torch")
    weights = Parser(add_help=False)
    add(
        weights,
        "--average-last",
        "use the mean of the last K checkpoints (default: the best weights)",
        type=UP_TO_1000,
        metavar="K",
    )
    quantising = Parser(add_help=False)
    add(
        quantising,
        "--int8",
        "multiply 8-bit integers in all linear layers, on a CPU; faster, and BLEU may change by "
        "0.4",
        action="store_true",
    )
    decoding = [common, weights, quantising, searching]
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, add_options, parents, text in (
        ("train", add_train, [run_options("runs/CORPUS")], "train a model"),
        ("translate", add_translate, decoding, "translate sentences"),
        ("evaluate", add_evaluate, decoding, "score translations of the test sentences"),
        ("compare", add_compare, [searching], "score several runs on the same test sentences"),
        (
            *("explore", add_explore, [common, searching]),
            "write a page with the attention weights of every layer and head",
        ),
        ("export", add_export, [weights], "write a trained Transformer for another engine"),
        ("compile", add_compile, [weights, quantising], "compile the search of a Transformer"),
    ):
        add_options(commands.add_parser(name, parents=parents, help=text))
    options = parser.parse_args(arguments)
    if options.command == "export":
        if options.int8 and options.to != "ctranslate2":
            raise UserError("--int8 requires --to ctranslate2")
    elif options.command not in ("train", "compile"):
        if options.command == "translate" and options.sentences and options.file:
            raise UserError("give sentences or --file, not both")
        check_search_options(options)
    return options


def add(parser: argparse._ActionsContainer, name: str, text: str, **how: Any) -> None:
    """Add an option with the text of its help."""
    parser.add_argument(name, help=text, **how)


def add_paths(parser: argparse._ActionsContainer, texts: Mapping[str, str]) -> None:
    """Add options that are files or folders, each with the text of its help."""
    for name, text in texts.items():
        add(parser, name, text, type=Path)


def add_flags(parser: argparse._ActionsContainer, texts: Mapping[str, str]) -> None:
    """Add options without a value, each with the text of its help."""
    for name, text in texts.items():
        add(parser, name, text, action="store_true")


def add_train(train: argparse.ArgumentParser) -> None:
    """Add the options of ``train``; those that set a field of the configuration have its name."""
    add(train, "--corpus", "training corpus (default: toy)", choices=CORPORA)
    sides = {
        "--from": ("source_language", "source", "ja; for files the end of their names, train.de"),
        "--to": ("target_language", "target", "en; for files the end of their names"),
    }
    for name, (field, side, default) in sides.items():
        text = f"{side} language (default: {default})"
        add(train, name, text, dest=field, metavar="LANGUAGE")
    held_out = "default: 5 %% of the training sentences, at most 500, which are held out"
    add_paths(
        train,
        {
            "--data-dir": "folder that holds the files of the corpus (default: "
            "data/small_parallel_enja, to which it is downloaded)",
            "--source-file": "training sentences, one per line, with --corpus files (default: "
            "none)",
            "--target-file": "their translations, line by line, with --corpus files (default: "
            "none)",
            "--valid-source": f"validation sentences, with --corpus files ({held_out})",
            "--valid-target": "their translations (default: held out)",
            "--test-source": f"test sentences, with --corpus files ({held_out})",
            "--test-target": "their translations (default: held out)",
        },
    )
    text = "a Transformer, or a recurrent model (default: transformer)"
    add(train, "--model", text, choices=MODELS)
    text = "sizes and training plan (default: by the size of the corpus)"
    add(train, "--preset", text, choices=PRESETS)
    sizes = {
        "vocabulary": "largest vocabulary size of each language, in subwords (default by preset: "
        "tiny 800, small 4000, base 37000)",
        "batch-tokens": "maximum number of tokens on either side of a batch, padding included "
        "(default by preset: tiny 800, small 600, base 12500)",
    }
    add_training_options(
        train,
        sizes.items(),
        dropout="by preset: tiny 0.1, small 0.15, base 0.1; 0.2 for a recurrent model",
        peak_rate="by preset: tiny 0.003, small 0.0012, base the schedule of the paper; 0.0025 "
        "for a recurrent model",
    )
    plan = train.add_mutually_exclusive_group()
    text = "planned length of the training, in minutes (default: see --epochs)"
    add(plan, "--minutes", text, type=Number(float, "above 0"))
    text = "planned number of epochs, instead of --minutes (default by preset: tiny 4, small 16, "
    add(plan, "--epochs", text + "base 100)", type=ABOVE_0)
    text = "gradient accumulation: batches of each process per update (default: 1)"
    add(train, "--accumulate", text, type=UP_TO_1000)
    add(
        train,
        "--shared-vocabulary",
        "one vocabulary and one embedding matrix for both languages (section 3.4 of the paper; "
        "default: only with --preset base)",
        action=argparse.BooleanOptionalAction,
    )
    add(
        train,
        "--no-tied-embeddings",
        "do not share the weights of target embeddings and output layer",
        dest="tie_embeddings",
        action="store_false",
        default=None,
    )
    add_flags(
        train,
        {
            "--compile": "compile the model with torch.compile; faster on a GPU",
            "--shard": "with torchrun: shard the model over the processes (FSDP) instead of "
            "copying it",
        },
    )
    text = "updates between two checkpoints within an epoch (default: 1000)"
    add(train, "--save-steps", text, type=ABOVE_0, default=1000)
    text = "number of checkpoints that are kept, besides the best (default: 2)"
    add(train, "--keep", text, type=UP_TO_1000, default=2)


def add_translate(translate: argparse.ArgumentParser) -> None:
    """Add the options of ``translate``."""
    add(translate, "sentences", "sentences (default: read standard input)", nargs="*")
    add(
        translate,
        "--n-best",
        "number of translations to print for each sentence (default: 1); if above 1, each line "
        "holds the number of the sentence, the log-probability and the text",
        type=UP_TO_1000,
        default=1,
    )
    add_paths(
        translate,
        {
            "--file": "a file of sentences, one per line (default: none)",
            "--program": "a file that compile wrote, which is executed: faster, on a CPU (default: "
            "none)",
        },
    )
    text = "what computes the translations; ctranslate2 is faster, on a CPU (default: torch)"
    add(translate, "--engine", text, choices=("torch", "ctranslate2"), default="torch")


def add_evaluate(evaluate: argparse.ArgumentParser) -> None:
    """Add the options of ``evaluate``."""
    add_paths(
        evaluate,
        {
            "--output": "file to write the translations to (default: none)",
            "--test-source": "sentences to score (default: the run's test sentences)",
            "--test-target": "their translations (default: the run's)",
        },
    )
    text = "end with the score, the address of the explorer page and a command that translates"
    add_flags(evaluate, {"--summary": text})


def add_compare(compare: argparse.ArgumentParser) -> None:
    """Add the options of ``compare``."""
    add(compare, "runs", "folders of runs of one corpus", nargs="+", type=Path)
    folder = Path("runs/compare")
    text = f"folder for figures and results (default: {folder})"
    add(compare, "--output", text, type=Path, default=folder)
    add_device_option(compare)


def add_explore(explore: argparse.ArgumentParser) -> None:
    """Add the options of ``explore``."""
    add(explore, "--sentence", "sentence to translate (default: a test sentence of the run)")
    add_paths(explore, {"--output": "page to write (default: explorer.html in the run)"})
    add_flags(explore, {"--no-model": "leave out the model, which translates any sentence there"})


def add_export(export: argparse.ArgumentParser) -> None:
    """Add the options of ``export``."""
    add(export, "--to", "format to write", choices=FORMATS, required=True)
    add_paths(
        export,
        {
            "--run": RUN,
            "--output": "folder to write (default: in the run, named as --to, with -int8 if so)",
        },
    )
    add_flags(export, {"--int8": "with --to ctranslate2: store the weights as 8-bit integers"})
    text = "number of validation sentences that both translate, to compare them (default: 20)"
    add(export, "--check", text, type=Number(int, "at least 0"), default=20)


def add_compile(compile_: argparse.ArgumentParser) -> None:
    """Add the options of ``compile``."""
    add_paths(
        compile_,
        {
            "--run": RUN,
            "--output": "file to write (default: program.pt2 in the run, or program-int8.pt2)",
        },
    )
    add(compile_, "--beam", BEAM, type=ABOVE_0)


def search_options() -> Parser:
    """Make the options of beam search and sampling."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("decoding")
    add(group, "--beam", BEAM, type=ABOVE_0)
    add(
        group,
        "--length-penalty",
        f"length penalty; larger values favour longer sentences (default: {LENGTH_PENALTY})",
        type=Number(float, "in [0, 10]"),
        metavar="ALPHA",
    )
    add_flags(group, {"--sample": "sample instead of beam search"})
    add_sampling_options(group)
    text = "maximum number of source tokens of a batch (default: 1024)"
    add(group, "--batch-tokens", text, type=ABOVE_0, default=1024)
    return parser


def check_search_options(options: argparse.Namespace) -> None:
    """Raise if options of beam search, of sampling and of an engine are combined.

    Raises:
        UserError: If they are, or if ``--n-best`` is larger than the beam.
    """
    excluded: tuple[str, ...] = ("beam", "length_penalty", "program")
    if not options.sample:
        excluded = ("temperature", "top_k", "top_p", "seed")
    for name in excluded:
        if getattr(options, name) is not None:
            rule = "cannot be combined with" if options.sample else "requires"
            raise UserError(f"--{name.replace('_', '-')} {rule} --sample")
    if options.sample and options.command in ("compare", "explore"):
        raise UserError(
            f"--sample is an option of translate and evaluate, not of {options.command}"
        )
    if options.engine != "torch" and (options.sample or options.program or options.n_best > 1):
        raise UserError(
            f"--engine {options.engine} cannot be combined with --sample, --program or --n-best"
        )
    if options.program and options.int8:
        raise UserError("--program cannot be combined with --int8, as it has its own data type")
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if options.n_best > beam_size and not options.sample:
        raise UserError(
            f"--n-best {options.n_best} requires a beam of at least that size, got --beam "
            f"{beam_size}"
        )
