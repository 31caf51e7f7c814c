"""Ablate the parts of trained translators: which BLEU remains without each of them?

    for seed in 0 1 2; do
        python examples/translate.py train --seed $seed --run runs/seed$seed
    done
    python examples/ablate.py runs/seed0 runs/seed1 runs/seed2

Each run translates the same validation sentences several times, each time with another part
ablated: a single head, all cross-attention, the residual connections, the positional encodings, the
scale. The table shows the remaining BLEU of each run, because models of different seeds rely on
different parts. No model is trained again: the table shows what a trained model relies on, not what
a model without the part could reach.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.options import Number, Parser, add
from common.program import run_program


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__)
    add(parser, Path, {"runs": "folders of Transformers of several seeds"}, nargs="+")
    text = "number of validation sentences (default: 200)"
    add(parser, Number(int, "above 0"), {"--sentences": text}, default=200)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments)))


def run(options: argparse.Namespace) -> None:
    """Run the program with the options of the command line."""
    from translation.ablation import compare_ablations  # only now: it imports torch

    compare_ablations(options)


if __name__ == "__main__":
    sys.exit(main())
