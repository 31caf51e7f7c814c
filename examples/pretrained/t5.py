r"""T5: from a text to a text, such as its translation or summary.

    python examples/pretrained/t5.py google-t5/t5-small \
        "The cat sleeps." --prefix "translate English to German: "
    python examples/pretrained/t5.py google/flan-t5-small \
        --file questions.txt --beam 4

T5 (Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.4) was trained on many tasks at
once. The input and the output of each task are texts; a prefix of the input names the task. The
model is an encoder and a decoder with learned biases for the distance between two tokens; it is in
``t5_model.py``.

Decoding is greedy, or a beam search with ``--beam``.

Next: ``generate.py``, decoder-only models.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.options import Number
from common.program import run_program
from pretrained.arguments import add_texts, check_texts, model_parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = model_parser(__doc__)
    add_texts(parser, "texts")
    parser.add_argument("--prefix", default="", help="text before each text (default: none)")
    parser.add_argument(
        "--length",
        type=Number(int, "above 0"),
        default=100,
        help="maximum number of tokens to generate (default: 100)",
    )
    parser.add_argument(
        "--beam", type=Number(int, "above 0"), default=1, help="beam size (default: 1)"
    )
    options = parser.parse_args(arguments)
    check_texts(options, "texts")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments)))


def run(options: argparse.Namespace) -> None:
    """Run the program with the options of the command line."""
    from pretrained.text_to_text import print_outputs  # only now: it imports torch

    print_outputs(options)


if __name__ == "__main__":
    sys.exit(main())
