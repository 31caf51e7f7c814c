"""Arguments: the command line of ``classify.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.options import Parser, add, add_training_options, run_options


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``."""
    parser, shared = Parser(description=description), run_options()
    commands = parser.add_commands()
    folder = run_options("runs/classify")
    train = commands.add_parser("train", parents=[folder], help="train both models")
    add(train, Path, {"--train-file": "labelled training texts (default: toy reviews)"})
    add(train, Path, {"--test-file": "labelled test texts (default: toy reviews)"})
    sizes = {
        "--steps": "planned number of updates of each model (default: 2000)",
        "--batch-size": "number of texts of a batch (default: 64)",
        "--vocabulary": "maximum vocabulary size (default: 1000 for the toy reviews, else 4000)",
        "--num-layers": "number of layers of the encoder (default: 2)",
        "--d-model": "hidden size (default: 64)",
        "--num-heads": "number of heads of each attention (default: 4)",
        "--d-ff": "inner size of the feed-forward networks (default: 256)",
        "--max-length": "maximum number of tokens of a text (default: 256)",
    }
    add_training_options(train, sizes, dropout="0 for the toy reviews, else 0.1", peak_rate=0.0015)
    commands.add_parser("evaluate", parents=[shared], help="compute the accuracy on the test texts")
    text = "print the label and its probability for texts"
    classify = commands.add_parser("classify", parents=[shared], help=text)
    add(classify, str, {"sentences": "texts (default: read standard input)"}, nargs="*")
    add(classify, Path, {"--file": "a file of texts, one per line (default: none)"})
    options = parser.parse_args(arguments)
    if options.command == "classify" and options.sentences and options.file:
        raise UserError("give texts or --file, not both")
    return options
