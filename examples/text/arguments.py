"""Arguments: the command line of ``generate_text.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.commands import add_prompts, check_prompts
from common.errors import UserError
from common.options import (
    Number,
    Parser,
    add_sampling_options,
    add_training_options,
    run_options,
)

STYLES = ("2017", "today")


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``."""
    parser, shared = Parser(description=description), run_options()
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    train = commands.add_parser("train", parents=[run_options("runs/text")], help="train a model")
    train.add_argument("--text", type=Path, help="training text (default: toy stories)")
    train.add_argument(
        "--style", choices=STYLES, help="style of the model's parts (default: today)"
    )
    sizes = (
        ("steps", "planned number of updates (default: 1000)"),
        ("batch-size", "number of sequences of a batch (default: 16)"),
        (
            "context",
            "number of tokens of a sequence, and the most that the model processes at once "
            "(default: 128)",
        ),
        ("vocabulary", "maximum vocabulary size (default: 400 for the toy stories, else 2000)"),
        ("num-layers", "number of layers (default: 2)"),
        ("d-model", "hidden size (default: 128)"),
        ("num-heads", "number of heads of each attention (default: 4)"),
        ("d-ff", "inner size of the feed-forward networks (default: 384)"),
    )
    add_training_options(train, sizes, dropout="0 for the toy stories, else 0.1", peak_rate=0.002)
    commands.add_parser(
        "evaluate", parents=[shared], help="compare the perplexity with that of n-grams"
    )
    sample = commands.add_parser("generate", parents=[shared], help="continue prompts")
    add_prompts(sample, "a new line")
    length = Number(int, "from 1 to 1000000")
    sample.add_argument(
        "--length", type=length, default=120, help="number of tokens to generate (default: 120)"
    )
    sample.add_argument(
        "--count",
        type=Number(int, "from 1 to 1000"),
        default=1,
        help="number of texts for each prompt (default: 1)",
    )
    sample.add_argument("--greedy", action="store_true", help="decode greedily instead of sampling")
    add_sampling_options(sample)
    sample.add_argument(
        "--side-by-side", action="store_true", help="one text of each decoding method, in columns"
    )
    options = parser.parse_args(arguments)
    if options.command == "generate":
        check_prompts(options)
        check_decoding_options(options)
    return options


def check_decoding_options(options: argparse.Namespace) -> None:
    """Raise if options of different decoding methods are combined.

    Raises:
        UserError: If they are.
    """
    of_sampling = {
        "--temperature": options.temperature,
        "--top-k": options.top_k,
        "--top-p": options.top_p,
        "--seed": options.seed,
    }
    for name, value in of_sampling.items():
        if options.greedy and value is not None:
            raise UserError(f"{name} cannot be combined with --greedy")
    if options.greedy and options.count > 1:
        raise UserError("--greedy generates the same text each time; leave --count out")
    if options.side_by_side and (options.greedy or options.count > 1):
        raise UserError("--side-by-side cannot be combined with --greedy or --count")
    if options.side_by_side and (options.file or len(options.prompts) > 1):
        raise UserError("--side-by-side requires a single prompt")
    if options.file and options.count > 1:
        raise UserError("--count cannot be combined with --file")
