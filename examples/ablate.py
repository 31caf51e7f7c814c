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

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from common.options import Count, Paths, parse
from common.program import run_program


@dataclass(frozen=True)
class Ablate:
    """The options of the command line.

    Attributes:
        runs: Folders of Transformers of several seeds.
        sentences: Number of validation sentences.
    """

    runs: Paths
    sentences: Count = field(default=200, kw_only=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Ablate)))


def run(options: Ablate) -> None:
    """Run the program with the options of the command line."""
    from translation.ablation import compare_ablations  # only now: it imports torch

    compare_ablations(options.runs, options.sentences)


if __name__ == "__main__":
    sys.exit(main())
