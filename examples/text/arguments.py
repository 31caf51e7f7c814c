"""Arguments: the command line of ``generate_text.py`` and its checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.options import (
    PROGRAM_HELP,
    Number,
    Parser,
    add,
    add_sampling_options,
    add_training_options,
    check_greedy,
    run_options,
)

STYLES = ("2017", "today")


def parse(arguments: Sequence[str] | None, *, description: str | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``."""
    parser, shared = Parser(description=description), run_options()
    commands = parser.add_commands()
    train = commands.add_parser("train", parents=[run_options("runs/text")], help="train a model")
    add(train, Path, {"--text": "training text (default: toy stories)"})
    add(train, STYLES, {"--style": "style of the model's parts (default: today)"})
    sizes = {
        "--steps": "planned number of updates (default: 1000)",
        "--batch-size": "number of sequences of a batch (default: 16)",
        "--context": "number of tokens of a sequence, and the most that the model processes at "
        "once (default: 128)",
        "--vocabulary": "maximum vocabulary size (default: 400 for the toy stories, else 2000)",
        "--num-layers": "number of layers (default: 2)",
        "--d-model": "hidden size (default: 128)",
        "--num-heads": "number of heads of each attention (default: 4)",
        "--d-ff": "inner size of the feed-forward networks (default: 384)",
    }
    add_training_options(train, sizes, dropout="0 for the toy stories, else 0.1", peak_rate=0.002)
    text = "compare the perplexity with that of n-grams"
    commands.add_parser("evaluate", parents=[shared], help=text)
    sample = commands.add_parser("generate", parents=[shared], help="continue prompts")
    add(sample, str, {"prompts": "the prompts (default: a new line)"}, nargs="*")
    length = Number(int, "from 1 to 1000000")
    add(sample, length, {"--length": "number of tokens to generate (default: 120)"}, default=120)
    add(sample, bool, {"--greedy": "decode greedily instead of sampling"})
    add(sample, Path, {"--program": f"with --greedy: {PROGRAM_HELP}"})
    add_sampling_options(sample)
    text = "write a page with all attention weights, and the model"
    explore = commands.add_parser("explore", parents=[shared], help=text)
    text = "the beginning of a text (default: a new line)"
    add(explore, str, {"prompt": text}, nargs="?", default="")
    add(explore, length, {"--length": "number of tokens to generate (default: 24)"}, default=24)
    add(explore, Path, {"--output": "page to write (default: explorer.html in the run)"})
    add(explore, bool, {"--no-model": "leave out the model, which continues any text there"})
    options = parser.parse_args(arguments)
    if options.command == "generate" and options.greedy:
        check_greedy(options, "cannot be combined with --greedy")
    elif options.command == "generate" and options.program:
        raise UserError("--program requires --greedy")
    return options
