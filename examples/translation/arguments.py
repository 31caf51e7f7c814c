"""Arguments: the command line of ``translate.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.options import (
    Number,
    Parser,
    add,
    add_device_option,
    add_sampling_options,
    add_training_options,
    check_greedy,
    flag,
    run_options,
)

TRAIN = "python examples/translate.py train"
"""The command that trains a run."""
CORPORA = ("toy", "small_parallel_enja", "files")
MODELS = ("transformer", "rnn", "rnn-additive", "rnn-fixed")
PRESETS = ("tiny", "small", "base")
FORMATS = ("ctranslate2",)
RUN = {"--run": "folder of the run (default: the latest trained run in runs/)"}
BEAM_SIZE, LENGTH_PENALTY = 5, 1.4  # chosen on validation sentences
BEAM = {"--beam": f"beam size; 1 is greedy decoding (default: {BEAM_SIZE})"}
ABOVE_0, UP_TO_1000 = Number(int, "above 0"), Number(int, "from 1 to 1000")
DEFAULTS = {"int8": False, "n_best": 1, "program": None, "engine": "torch", "sample": False}
"""The values of options that a command may lack."""
EXCLUSIVE = {
    "sample": ("beam", "length_penalty", "program"),
    "engine": ("sample", "program", "n_best"),
    "int8": ("program",),
}
"""The options that each option cannot be combined with."""


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``.

    Raises:
        UserError: If an option is unknown, out of range, or requires another that is missing.
    """
    parser, common = Parser(description=description), run_options()
    parser.set_defaults(average_last=None, **DEFAULTS)
    weights, quantising = Parser(add_help=False), Parser(add_help=False)
    text = "use the mean of the last K checkpoints (default: the best weights)"
    add(weights, UP_TO_1000, {"--average-last": text}, metavar="K")
    text = "multiply 8-bit integers in all linear layers, on a CPU; faster, and BLEU may change by "
    add(quantising, bool, {"--int8": text + "0.4"})
    searching = search_options(sampling=False)
    decoding = [common, weights, quantising, search_options(sampling=True)]
    commands = parser.add_commands()
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
    if options.command == "translate" and options.sentences and options.file:
        raise UserError("give sentences or --file, not both")
    if options.command in ("translate", "evaluate"):
        check_search_options(options)
    return options


def add_train(train: Parser) -> None:
    """Add the options of ``train``; those that set a field of the configuration have its name."""
    add(train, CORPORA, {"--corpus": "training corpus (default: toy)"})
    text = "source language (default: ja; for files the end of their names, train.de)"
    add(train, str, {"--from": text}, dest="source_language", metavar="LANGUAGE")
    text = "target language (default: en; for files the end of their names)"
    add(train, str, {"--to": text}, dest="target_language", metavar="LANGUAGE")
    held_out = "default: 5 %% of the training sentences, at most 500, which are held out"
    files = {
        "--data-dir": "folder that holds the files of the corpus (default: "
        "data/small_parallel_enja, to which it is downloaded)",
        "--source-file": "training sentences, one per line, with --corpus files (default: none)",
        "--target-file": "their translations, line by line, with --corpus files (default: none)",
        "--valid-source": f"validation sentences, with --corpus files ({held_out})",
        "--valid-target": "their translations (default: held out)",
        "--test-source": f"test sentences, with --corpus files ({held_out})",
        "--test-target": "their translations (default: held out)",
    }
    add(train, Path, files)
    add(train, MODELS, {"--model": "a Transformer, or a recurrent model (default: transformer)"})
    text = "sizes and training plan (default: by the size of the corpus)"
    add(train, PRESETS, {"--preset": text})
    sizes = {
        "--vocabulary": "largest vocabulary size of each language, in subwords (default by preset: "
        "tiny 800, small 4000, base 37000)",
        "--batch-tokens": "maximum number of tokens on either side of a batch, padding included "
        "(default by preset: tiny 800, small 600, base 12500)",
    }
    add_training_options(
        train,
        sizes,
        dropout="by preset: tiny 0.1, small 0.15, base 0.1; 0.2 for a recurrent model",
        peak_rate="by preset: tiny 0.003, small 0.0012, base the schedule of the paper; 0.0025 "
        "for a recurrent model",
    )
    plan = train.add_mutually_exclusive_group()
    text = "planned length of the training, in minutes (default: see --epochs)"
    add(plan, Number(float, "above 0"), {"--minutes": text})
    text = "planned number of epochs, instead of --minutes (default by preset: tiny 4, small 16, "
    add(plan, ABOVE_0, {"--epochs": text + "base 100)"})
    text = "gradient accumulation: batches of each process per update (default: 1)"
    add(train, UP_TO_1000, {"--accumulate": text})
    text = (
        "one vocabulary and one embedding matrix for both languages (section 3.4 of the paper; "
        "default: only with --preset base)"
    )
    add(train, bool, {"--shared-vocabulary": text}, action=argparse.BooleanOptionalAction)
    add(train, bool, {"--compile": "compile the model with torch.compile; faster on a GPU"})
    text = "updates between two checkpoints within an epoch (default: 1000)"
    add(train, ABOVE_0, {"--save-steps": text}, default=1000)
    text = "keep the weights of about a dozen earlier updates, for a slider on the explorer page"
    add(train, bool, {"--snapshots": text})
    text = "number of checkpoints that are kept, besides the best (default: 2)"
    add(train, UP_TO_1000, {"--keep": text}, default=2)


def add_translate(translate: Parser) -> None:
    """Add the options of ``translate``."""
    add(translate, str, {"sentences": "sentences (default: read standard input)"}, nargs="*")
    text = (
        "number of translations to print for each sentence (default: 1); if above 1, each line "
        "holds the number of the sentence, the log-probability and the text"
    )
    add(translate, UP_TO_1000, {"--n-best": text}, default=1)
    add(translate, Path, {"--file": "a file of sentences, one per line (default: none)"})
    text = "a file that compile wrote, which is executed: faster, on a CPU (default: none)"
    add(translate, Path, {"--program": text})
    text = "what computes the translations; ctranslate2 is faster, on a CPU (default: torch)"
    add(translate, ("torch", "ctranslate2"), {"--engine": text}, default="torch")


def add_evaluate(evaluate: Parser) -> None:
    """Add the options of ``evaluate``."""
    files = {
        "--output": "file to write the translations to (default: none)",
        "--test-source": "sentences to score (default: the run's test sentences)",
        "--test-target": "their translations (default: the run's)",
    }
    add(evaluate, Path, files)


def add_compare(compare: Parser) -> None:
    """Add the options of ``compare``."""
    add(compare, Path, {"runs": "folders of runs of one corpus"}, nargs="+")
    folder = Path("runs/compare")
    text = f"folder for figures and results (default: {folder})"
    add(compare, Path, {"--output": text}, default=folder)
    add_device_option(compare)


def add_explore(explore: Parser) -> None:
    """Add the options of ``explore``."""
    text = "sentence to translate (default: a test sentence of the run)"
    add(explore, str, {"--sentence": text})
    add(explore, Path, {"--output": "page to write (default: explorer.html in the run)"})
    text = "leave out the model, which translates any sentence there"
    add(explore, bool, {"--no-model": text})


def add_export(export: Parser) -> None:
    """Add the options of ``export``."""
    add(export, FORMATS, {"--to": "format to write"}, required=True)
    text = "folder to write (default: in the run, named as --to, with -int8 if so)"
    add(export, Path, {**RUN, "--output": text})
    text = "store the weights as 8-bit integers"
    add(export, bool, {"--int8": text})
    text = "number of validation sentences that both translate, to compare them (default: 20)"
    add(export, Number(int, "at least 0"), {"--check": text}, default=20)


def add_compile(compile_: Parser) -> None:
    """Add the options of ``compile``."""
    text = "file to write (default: program.pt2 in the run, or program-int8.pt2)"
    add(compile_, Path, {**RUN, "--output": text})
    add(compile_, ABOVE_0, BEAM)


def search_options(*, sampling: bool) -> Parser:
    """Make the options of beam search, and those of sampling if there are any."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("decoding")
    add(group, ABOVE_0, BEAM)
    text = f"length penalty; larger values favour longer sentences (default: {LENGTH_PENALTY})"
    add(group, Number(float, "in [0, 10]"), {"--length-penalty": text}, metavar="ALPHA")
    if sampling:
        add(group, bool, {"--sample": "sample instead of beam search"})
        add_sampling_options(group)
    text = "maximum number of source tokens of a batch (default: 1024)"
    add(group, ABOVE_0, {"--batch-tokens": text}, default=1024)
    return parser


def check_search_options(options: argparse.Namespace) -> None:
    """Raise if options of beam search, of sampling and of an engine are combined.

    Raises:
        UserError: If they are, or if ``--n-best`` is larger than the beam.
    """
    given = [name for name, value in vars(options).items() if value != DEFAULTS.get(name)]
    for name, others in EXCLUSIVE.items():
        for other in others:
            if name in given and other in given:
                raise UserError(f"{flag(other)} cannot be combined with {flag(name)}")
    if options.sample:
        return
    check_greedy(options, "requires --sample")
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if options.n_best > beam_size:
        raise UserError(
            f"--n-best {options.n_best} requires a beam of at least that size, got --beam "
            f"{beam_size}"
        )
