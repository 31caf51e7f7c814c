"""Train a language model on a text, compare it with n-grams, and generate text.

    python examples/generate_text.py train       # toy stories, minutes on a CPU
    python examples/generate_text.py evaluate
    python examples/generate_text.py generate "Mira the baker had lost"
    python examples/generate_text.py generate "Tom the cook" "Mira the baker"
    python examples/generate_text.py explore "Mira the baker had lost"

    python examples/generate_text.py train --text book.txt --run runs/book

The model is a decoder-only Transformer, built from the paper's parts (``--style 2017``) or from
those of today's models (``--style today``, the default). The text is any UTF-8 file, or generated
toy stories.

``explore`` writes a page with the attention weights of every layer and head. It holds the model,
too, and continues any text that is typed there.

All files of a run are in one folder, ``runs/text`` unless ``--run`` names another. Commands that
use a run take the latest one. ``--resume`` resumes a training that was stopped.
"""

import sys
from collections.abc import Sequence

from common.options import parse
from common.program import run_program
from text.arguments import Evaluate, Explore, Generate, Train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Train, Evaluate, Generate, Explore)))


def run(options: object) -> None:
    """Run the command that the command line names."""
    from text.commands import COMMANDS  # only now: it imports torch

    COMMANDS[type(options)](options)


if __name__ == "__main__":
    sys.exit(main())
