"""Arguments: the command line of ``translate.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.options import Number, Parser, add_device_option, add_sampling_options, run_options

CORPORA = ("toy", "small_parallel_enja", "files")
MODELS = ("transformer", "rnn", "rnn-additive", "rnn-fixed")
PRESETS = ("tiny", "small", "base")
FORMATS = ("onnx", "ctranslate2")
BEAM_SIZE, LENGTH_PENALTY = 5, 1.4  # chosen on validation sentences


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``.

    Raises:
        UserError: If an option is unknown, out of range, or requires another that is missing.
    """
    parser, common, searching = Parser(description=description), run_options(), search_options()
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )

    train = commands.add_parser("train", parents=[run_options("runs/CORPUS")], help="train a model")
    train.add_argument("--corpus", choices=CORPORA, help="training corpus (default: toy)")
    train.add_argument(
        "--from",
        dest="source_language",
        metavar="LANGUAGE",
        help="source language (default: ja; for files the end of their names, as in train.de)",
    )
    train.add_argument(
        "--to",
        dest="target_language",
        metavar="LANGUAGE",
        help="target language (default: en; for files the end of their names)",
    )
    train.add_argument(
        "--data-dir",
        type=Path,
        help="folder that holds the files of the corpus (default: data/small_parallel_enja, "
        "to which it is downloaded)",
    )
    train.add_argument(
        "--source-file",
        type=Path,
        help="training sentences, one per line, with --corpus files (default: none)",
    )
    train.add_argument(
        "--target-file",
        type=Path,
        help="their translations, line by line, with --corpus files (default: none)",
    )
    for split, name in (("valid", "validation"), ("test", "test")):
        train.add_argument(
            f"--{split}-source",
            type=Path,
            help=f"{name} sentences, with --corpus files (default: 5 %% of the training sentences, "
            "at most 500, which are held out)",
        )
        train.add_argument(
            f"--{split}-target", type=Path, help="their translations (default: held out)"
        )
    train.add_argument(
        "--model",
        choices=MODELS,
        help="a Transformer, or a recurrent model (default: transformer)",
    )
    train.add_argument(
        "--preset",
        choices=PRESETS,
        help="sizes and training plan (default: by the size of the corpus)",
    )
    train.add_argument(
        "--seed",
        type=Number(int, "at least 0"),
        help="seed of initial weights, dropout and data order (default: 0)",
    )
    plan = train.add_mutually_exclusive_group()
    plan.add_argument(
        "--minutes",
        type=Number(float, "above 0"),
        help="planned length of the training, in minutes (default: see --epochs)",
    )
    plan.add_argument(
        "--epochs",
        type=Number(int, "above 0"),
        help="planned number of epochs, instead of --minutes (default by preset: tiny 4, small 16, "
        "base 100)",
    )
    train.add_argument(
        "--vocabulary",
        type=Number(int, "above 0"),
        help="largest vocabulary size of each language, in subwords (default by preset: tiny 800, "
        "small 4000, base 37000)",
    )
    train.add_argument(
        "--shared-vocabulary",
        action=argparse.BooleanOptionalAction,
        help="one vocabulary and one embedding matrix for both languages (section 3.4 of the "
        "paper; default: only with --preset base)",
    )
    train.add_argument(
        "--batch-tokens",
        type=Number(int, "above 0"),
        help="maximum number of tokens on either side of a batch, padding included (default by "
        "preset: tiny 800, small 600, base 12500)",
    )
    train.add_argument(
        "--accumulate",
        type=Number(int, "from 1 to 1000"),
        help="gradient accumulation: batches of each process per update (default: 1)",
    )
    train.add_argument(
        "--dropout",
        type=Number(float, "in [0, 1)"),
        help="dropout probability (default by preset: tiny 0.1, small 0.15, base 0.1; 0.2 for a "
        "recurrent model)",
    )
    train.add_argument(
        "--peak-rate",
        type=Number(float, "above 0"),
        help="highest learning rate (default by preset: tiny 0.003, small 0.0012, base the "
        "schedule of the paper; 0.0025 for a recurrent model)",
    )
    train.add_argument(
        "--no-tied-embeddings",
        dest="tie_embeddings",
        action="store_false",
        default=None,
        help="do not share the weights of target embeddings and output layer",
    )
    train.add_argument(
        "--compile",
        action="store_true",
        help="compile the model with torch.compile; faster on a GPU",
    )
    train.add_argument(
        "--shard",
        action="store_true",
        help="with torchrun: shard the model over the processes (FSDP) instead of copying it",
    )
    train.add_argument(
        "--save-steps",
        type=Number(int, "above 0"),
        default=1000,
        help="updates between two checkpoints within an epoch (default: 1000)",
    )
    train.add_argument(
        "--keep",
        type=Number(int, "from 1 to 1000"),
        default=2,
        help="number of checkpoints that are kept, besides the best (default: 2)",
    )
    train.add_argument(
        "--resume", action="store_true", help="resume the run from its last checkpoint, or begin it"
    )

    weights = Parser(add_help=False)
    weights.add_argument(
        "--average-last",
        type=Number(int, "from 1 to 1000"),
        metavar="K",
        help="use the mean of the last K checkpoints (default: the best weights)",
    )
    quantising = Parser(add_help=False)
    quantising.add_argument(
        "--int8",
        action="store_true",
        help="multiply 8-bit integers in all linear layers, on a CPU; faster, and BLEU may change "
        "by 0.4",
    )
    translate = commands.add_parser(
        "translate", parents=[common, weights, quantising, searching], help="translate sentences"
    )
    translate.add_argument("sentences", nargs="*", help="sentences (default: read standard input)")
    translate.add_argument(
        "--file", type=Path, help="a file of sentences, one per line (default: none)"
    )
    translate.add_argument(
        "--n-best",
        type=Number(int, "from 1 to 1000"),
        default=1,
        help="number of translations to print for each sentence (default: 1); if above 1, each "
        "line holds the number of the sentence, the log-probability and the text",
    )
    translate.add_argument(
        "--picture",
        type=Path,
        help="draw the cross-attention of the first sentence, as a PNG file (default: none)",
    )
    translate.add_argument(
        "--compile",
        action="store_true",
        help="compile the decoding steps, on a CPU, which takes some minutes the first time; they "
        "are kept in the run's folder. Afterwards each sentence takes 20 to 65 %% less time",
    )

    evaluate = commands.add_parser(
        "evaluate",
        parents=[common, weights, quantising, searching],
        help="score translations of the test sentences",
    )
    evaluate.add_argument(
        "--output", type=Path, help="file to write the translations to (default: none)"
    )
    evaluate.add_argument(
        "--test-source", type=Path, help="sentences to score (default: the run's test sentences)"
    )
    evaluate.add_argument(
        "--test-target", type=Path, help="their translations (default: the run's)"
    )
    evaluate.add_argument(
        "--summary",
        action="store_true",
        help="end with the score, the address of the explorer page and a command that translates",
    )

    compare = commands.add_parser(
        "compare", parents=[searching], help="score several runs on the same test sentences"
    )
    compare.add_argument("runs", nargs="+", type=Path, help="folders of runs of one corpus")
    compare.add_argument(
        "--sentence",
        type=Number(int, "above 0"),
        help="number of the test sentence whose attention is drawn (default: one of middle length)",
    )
    compare.add_argument(
        "--output",
        type=Path,
        default=Path("runs/compare"),
        help="folder for figures and results (default: runs/compare)",
    )
    add_device_option(compare)

    explore = commands.add_parser(
        "explore",
        parents=[common, searching],
        help="write a page with the attention weights of every layer and head",
    )
    explore.add_argument(
        "--sentence", help="sentence to translate (default: a test sentence of the run)"
    )
    explore.add_argument(
        "--output", type=Path, help="page to write (default: explorer.html in the run)"
    )
    explore.add_argument("--open", action="store_true", help="open the page in the default browser")

    export = commands.add_parser(
        "export", parents=[weights], help="write a trained Transformer for another engine"
    )
    export.add_argument(
        "--run", type=Path, help="folder of the run (default: the latest trained run in runs/)"
    )
    export.add_argument("--to", choices=FORMATS, required=True, help="format to write")
    export.add_argument(
        "--output", type=Path, help="folder to write (default: a folder in the run, named --to)"
    )
    export.add_argument(
        "--int8",
        action="store_true",
        help="with --to ctranslate2: store the weights as 8-bit integers",
    )
    export.add_argument(
        "--check",
        type=Number(int, "at least 0"),
        default=20,
        help="number of validation sentences that the model and the written files translate, to "
        "compare them (default: 20)",
    )
    options = parser.parse_args(arguments)
    if options.command == "export":
        if options.int8 and options.to != "ctranslate2":
            raise UserError("--int8 requires --to ctranslate2")
        return options
    if options.command == "translate" and options.sentences and options.file:
        raise UserError("give sentences or --file, not both")
    if options.command != "train":
        check_search_options(options)
    return options


def search_options() -> Parser:
    """Make the options of beam search and sampling."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--beam",
        type=Number(int, "above 0"),
        help=f"beam size; 1 is greedy decoding (default: {BEAM_SIZE})",
    )
    group.add_argument(
        "--length-penalty",
        type=Number(float, "in [0, 10]"),
        metavar="ALPHA",
        help=f"length penalty; larger values favour longer sentences (default: {LENGTH_PENALTY})",
    )
    group.add_argument("--sample", action="store_true", help="sample instead of beam search")
    add_sampling_options(group)
    group.add_argument(
        "--batch-tokens",
        type=Number(int, "above 0"),
        default=1024,
        help="maximum number of source tokens of a batch (default: 1024)",
    )
    return parser


def check_search_options(options: argparse.Namespace) -> None:
    """Raise if options of beam search and of sampling are combined.

    Raises:
        UserError: If they are, or if ``--n-best`` is larger than the beam.
    """
    of_sampling = {
        "--temperature": options.temperature,
        "--top-k": options.top_k,
        "--top-p": options.top_p,
        "--seed": options.seed,
    }
    of_beams = {"--beam": options.beam, "--length-penalty": options.length_penalty}
    for name, value in (of_beams if options.sample else of_sampling).items():
        if value is not None:
            rule = "cannot be combined with" if options.sample else "requires"
            raise UserError(f"{name} {rule} --sample")
    if options.sample and options.command in ("compare", "explore"):
        raise UserError(
            f"--sample is an option of translate and evaluate, not of {options.command}"
        )
    if options.sample and getattr(options, "picture", None):
        raise UserError("--picture cannot be combined with --sample")
    n_best = getattr(options, "n_best", 1)
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if n_best > beam_size and not options.sample:
        raise UserError(
            f"--n-best {n_best} requires a beam of at least that size, got --beam {beam_size}"
        )
