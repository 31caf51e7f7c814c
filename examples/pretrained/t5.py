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

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.options import Count, parse
from common.program import run_program
from pretrained.arguments import TextOptions


@dataclass(frozen=True, kw_only=True)
class T5(TextOptions):
    """The options of the command line.

    Attributes:
        prefix: Text before each text (default: none).
        length: Maximum number of tokens to generate.
        beam: Beam size.
    """

    prefix: str = ""
    length: Count = 100
    beam: Count = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, T5)))


def run(options: Any) -> None:
    """Run the program with the options of the command line."""
    from pretrained.text_to_text import print_outputs  # only now: it imports torch

    print_outputs(options)


if __name__ == "__main__":
    sys.exit(main())
