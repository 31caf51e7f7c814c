r"""Marian: translate with the encoder-decoder models of the University of Helsinki.

    python examples/pretrained/marian.py Helsinki-NLP/opus-mt-ja-en \
        "猫が好きです。"
    python examples/pretrained/marian.py FOLDER --file sentences.txt

"OPUS-MT: Building open translation services for the World" (Tiedemann and Thottingal 2020,
https://aclanthology.org/2020.eamt-1.61) publishes models for a thousand pairs of languages. Each is
the Transformer of the paper's figure 1, trained with the program Marian (Junczys-Dowmunt et al.
2018, https://aclanthology.org/P18-4020). The model is in ``marian_model.py``.

Next: ``t5.py``, an encoder and a decoder for many tasks.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.options import Count, Exponent, parse
from common.program import run_program
from pretrained.arguments import TextOptions


@dataclass(frozen=True, kw_only=True)
class Marian(TextOptions):
    """The options of the command line.

    Attributes:
        beam: Beam size (default: the published one).
        length_penalty: Exponent of the length by which log-probabilities are divided (default: the
            published one).
    """

    beam: Count | None = None
    length_penalty: Exponent | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Marian)))


def run(options: Any) -> None:
    """Run the program with the options of the command line."""
    from pretrained.marian_translator import translate_lines  # only now: it imports torch

    translate_lines(options)


if __name__ == "__main__":
    sys.exit(main())
