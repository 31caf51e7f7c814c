"""Arguments: the command line of ``classify.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.options import Parser, add_training_options, run_options


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``."""
    parser, shared = Parser(description=description), run_options()
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    train = commands.add_parser(
        "train", parents=[run_options("runs/classify")], help="train both models"
    )
    train.add_argument(
        "--train-file", type=Path, help="labelled training texts (default: toy reviews)"
    )
    train.add_argument("--test-file", type=Path, help="labelled test texts (default: toy reviews)")
    sizes = (
        ("steps", "planned number of updates of each model (default: 2000)"),
        ("batch-size", "number of texts of a batch (default: 64)"),
        ("vocabulary", "maximum vocabulary size (default: 1000 for the toy reviews, else 4000)"),
        ("num-layers", "number of layers of the encoder (default: 2)"),
        ("d-model", "hidden size (default: 64)"),
        ("num-heads", "number of heads of each attention (default: 4)"),
        ("d-ff", "inner size of the feed-forward networks (default: 256)"),
        ("max-length", "maximum number of tokens of a text (default: 256)"),
    )
    add_training_options(train, sizes, dropout="0 for the toy reviews, else 0.1", peak_rate=0.0015)
    commands.add_parser("evaluate", parents=[shared], help="compute the accuracy on the test texts")
    predict_parser = commands.add_parser(
        "classify", parents=[shared], help="print the label and its probability for texts"
    )
    predict_parser.add_argument("sentences", nargs="*", help="texts (default: read standard input)")
    predict_parser.add_argument(
        "--file", type=Path, help="a file of texts, one per line (default: none)"
    )
    options = parser.parse_args(arguments)
    if options.command == "classify" and options.sentences and options.file:
        raise UserError("give texts or --file, not both")
    return options
