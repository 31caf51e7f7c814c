"""Arguments: the command line of ``translate.py``, and how a wrong one is refused."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from common.errors import UserError
from common.options import Parser, number
from common.searches import Beam, Sample, Search
from translation.corpus import SMALL_PARALLEL_ENJA
from translation.presets import MODELS, PRESETS

CORPORA = ("toy", SMALL_PARALLEL_ENJA, "files")
BEAM_SIZE, LENGTH_PENALTY = 5, 1.4  # the best of a few on validation sentences


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; what to do stands in ``command``.

    Raises:
        UserError: If an option is unknown, out of range, or goes with another that is missing.
    """
    parser = Parser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    common = Parser(add_help=False)
    common.add_argument("--run", type=Path, help="folder of the run (default: runs/CORPUS)")
    common.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    searching = search_options()

    train = commands.add_parser("train", parents=[common], help="train a model")
    train.add_argument("--corpus", choices=CORPORA, help="what to learn from (default: toy)")
    train.add_argument("--from", dest="source_language", metavar="LANGUAGE", help="default: ja")
    train.add_argument("--to", dest="target_language", metavar="LANGUAGE", help="default: en")
    train.add_argument("--data-dir", type=Path, help="where the corpus's files lie")
    train.add_argument("--source-file", type=Path, help="with --corpus files: training sentences")
    train.add_argument("--target-file", type=Path, help="with --corpus files: their translations")
    for split, name in (("valid", "validation"), ("test", "test")):
        train.add_argument(
            f"--{split}-source",
            type=Path,
            help=f"with --corpus files: {name} sentences (default: 5 %%, at most 500, of the "
            "training sentences are held out)",
        )
        train.add_argument(f"--{split}-target", type=Path, help="their translations")
    train.add_argument(
        "--model",
        choices=MODELS,
        help="a Transformer or what came before it (default: transformer)",
    )
    train.add_argument("--preset", choices=PRESETS, help="sizes and plan (default: tiny)")
    train.add_argument(
        "--seed",
        type=number(int, "at least 0"),
        help="of weights, dropout and data order (default: 0)",
    )
    plan = train.add_mutually_exclusive_group()
    plan.add_argument(
        "--minutes", type=number(float, "above 0"), help="plan the training for this long"
    )
    plan.add_argument(
        "--epochs", type=number(int, "above 0"), help="plan for so many passes instead"
    )
    train.add_argument(
        "--vocabulary", type=number(int, "above 0"), help="most tokens of each language"
    )
    train.add_argument("--batch-tokens", type=number(int, "above 0"), help="most tokens of a batch")
    train.add_argument(
        "--accumulate",
        type=number(int, "from 1 to 1000"),
        help="batches that each process reads for one update (default: 1)",
    )
    train.add_argument("--dropout", type=number(float, "in [0, 1)"))
    train.add_argument("--peak-rate", type=number(float, "above 0"), help="highest learning rate")
    train.add_argument(
        "--no-tied-embeddings",
        dest="tie_embeddings",
        action="store_false",
        default=None,
        help="let target embeddings and output differ",
    )
    train.add_argument(
        "--compile", action="store_true", help="let torch.compile make the code; pays on a GPU"
    )
    train.add_argument(
        "--shard",
        action="store_true",
        help="with torchrun: a part of the model in each process, not a copy",
    )
    train.add_argument(
        "--save-steps",
        type=number(int, "above 0"),
        default=1000,
        help="also save after so many updates within an epoch (default: 1000)",
    )
    train.add_argument(
        "--keep",
        type=number(int, "from 1 to 1000"),
        default=2,
        help="how many checkpoints stay, besides the best (default: 2)",
    )
    train.add_argument(
        "--resume", action="store_true", help="go on where the run stopped, or begin it"
    )

    weights = Parser(add_help=False)
    weights.add_argument(
        "--average-last",
        type=number(int, "from 1 to 1000"),
        metavar="K",
        help="use the mean of the last K checkpoints, instead of the best weights",
    )
    speak = commands.add_parser(
        "translate", parents=[common, weights, searching], help="translate sentences"
    )
    speak.add_argument("sentences", nargs="*", help="sentences (default: read standard input)")
    speak.add_argument("--file", type=Path, help="a file of sentences, one a line")
    speak.add_argument(
        "--n-best",
        type=number(int, "from 1 to 1000"),
        default=1,
        help="give so many translations of each: number of the line, log-probability, text",
    )
    speak.add_argument("--picture", type=Path, help="draw the first sentence's cross-attention")
    speak.add_argument(
        "--compile",
        action="store_true",
        help="on a CPU, spend minutes on compiling to save a fifth to two thirds of each sentence",
    )

    evaluate = commands.add_parser(
        "evaluate",
        parents=[common, weights, searching],
        help="score translations of the test sentences",
    )
    evaluate.add_argument("--output", type=Path, help="write the translations to this file")
    evaluate.add_argument(
        "--test-source", type=Path, help="score these sentences (default: the run's test sentences)"
    )
    evaluate.add_argument("--test-target", type=Path, help="their translations")

    compare = commands.add_parser(
        "compare", parents=[searching], help="score several runs on the same test sentences"
    )
    compare.add_argument("runs", nargs="+", type=Path, help="folders of runs of one corpus")
    compare.add_argument(
        "--sentence",
        type=number(int, "above 0"),
        help="number of the test sentence whose attention is drawn (default: one of middle length)",
    )
    compare.add_argument(
        "--output",
        type=Path,
        default=Path("runs/compare"),
        help="folder for the pictures and the figures (default: runs/compare)",
    )
    compare.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")

    explore = commands.add_parser(
        "explore",
        parents=[common, searching],
        help="write a page that shows where the model looks, layer by layer and head by head",
    )
    explore.add_argument("--sentence", required=True, help="what to translate")
    explore.add_argument("--output", type=Path, help="the page (default: explorer.html in the run)")
    options = parser.parse_args(arguments)
    if options.command == "translate" and options.sentences and options.file:
        raise UserError("give sentences or --file, not both")
    if options.command != "train":
        check_search_options(options)
    return options


def search_options() -> Parser:
    """Make the options that choose how words are chosen."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("how words are chosen")
    group.add_argument(
        "--beam",
        type=number(int, "above 0"),
        help=f"follow so many beginnings; 1 is greedy (default: {BEAM_SIZE})",
    )
    group.add_argument(
        "--length-penalty",
        type=number(float, "in [0, 10]"),
        metavar="ALPHA",
        help=f"larger favours longer sentences (default: {LENGTH_PENALTY})",
    )
    group.add_argument("--sample", action="store_true", help="draw words at random instead")
    group.add_argument("--temperature", type=number(float, "above 0"), help="default: 1")
    group.add_argument(
        "--top-k", type=number(int, "above 0"), help="draw from so many words only, the likeliest"
    )
    group.add_argument(
        "--top-p",
        type=number(float, "in (0, 1]"),
        help="draw from the fewest words that have this probability together; with --top-k, among "
        "those words",
    )
    group.add_argument(
        "--seed", type=number(int, "at least 0"), help="of the draws; every run differs without"
    )
    group.add_argument(
        "--batch-tokens",
        type=number(int, "above 0"),
        default=1024,
        help="most source tokens of a batch (default: 1024)",
    )
    return parser


def check_search_options(options: argparse.Namespace) -> None:
    """Raise if an option of one way to search meets another way.

    Raises:
        UserError: If one does, or if more sentences are asked for than there are beams.
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
            raise UserError(f"{name} goes {'without' if options.sample else 'with'} --sample")
    if options.sample and options.command in ("compare", "explore"):
        raise UserError(f"--sample goes with translate and evaluate, not with {options.command}")
    if options.sample and getattr(options, "picture", None):
        raise UserError("--picture goes without --sample")
    n_best = getattr(options, "n_best", 1)
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if n_best > beam_size and not options.sample:
        raise UserError(f"--n-best {n_best} needs as many beams, got --beam {beam_size}")


def make_search(options: argparse.Namespace, vocabulary: int) -> Search:
    """Make the search that the command line asks for.

    Raises:
        UserError: If the beam is larger than the vocabulary.
    """
    n_best = getattr(options, "n_best", 1)
    if options.sample:
        generator = torch.Generator()
        generator.seed() if options.seed is None else generator.manual_seed(options.seed)
        temperature = 1.0 if options.temperature is None else options.temperature
        return Sample(temperature, options.top_k, options.top_p, generator, n_best)
    beam_size = BEAM_SIZE if options.beam is None else options.beam
    if beam_size > vocabulary:
        raise UserError(
            f"--beam must not exceed the {vocabulary} tokens there are, got {beam_size}"
        )
    penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    return Beam(beam_size, penalty, n_best)
