r"""Generate text with a published decoder-only model: GPT-2, Llama, Qwen3 or Gemma 3.

    python examples/pretrained/generate.py openai-community/gpt2 "The cat sat"
    python examples/pretrained/generate.py Qwen/Qwen3-0.6B-Base "The cat sat" \
        --length 80 --sample --top-p 0.9 --seed 1
    python examples/pretrained/generate.py FOLDER "The cat" "Once upon a time"

Decoding is greedy; with ``--sample``, tokens are drawn at random by their probabilities. The model
processes the prompts in one pass (prefill). Each decoding step then processes only the newest token
of each text, which attends to the cached keys and values of all earlier ones. Prompts of different
lengths share a batch, which takes a fraction of the time, and each is continued as if it were
alone. The models are in
``gpt2_model.py``, ``llama_model.py``, ``qwen3_model.py`` and ``gemma3_model.py``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.errors import UserError
from common.options import PROGRAM_HELP, Number, add_sampling_options, check_greedy
from common.program import run_program
from pretrained.arguments import model_parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = model_parser(__doc__)
    parser.add_argument("prompts", nargs="*", help="the prompts (default: a new text begins)")
    parser.add_argument(
        "--length",
        type=Number(int, "above 0"),
        default=40,
        help="maximum number of tokens to generate (default: 40)",
    )
    parser.add_argument(
        "--sample", action="store_true", help="sample tokens by their probabilities"
    )
    parser.add_argument("--program", type=Path, help=PROGRAM_HELP)
    add_sampling_options(parser)
    options = parser.parse_args(arguments)
    if not options.sample:
        check_greedy(options, "requires --sample")
    elif options.program:
        raise UserError("--program decodes greedily, and cannot be combined with --sample")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments)))


def run(options: argparse.Namespace) -> None:
    """Run the program with the options of the command line."""
    from pretrained.generator import print_continuations  # only now: it imports torch

    print_continuations(options)


if __name__ == "__main__":
    sys.exit(main())
