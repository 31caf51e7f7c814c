r"""Train a classifier of texts, and classify texts.

    python examples/classify.py train        # toy reviews, a minute on a CPU
    python examples/classify.py evaluate
    python examples/classify.py classify "she found it dull , but I liked it ."

    python examples/classify.py train --run runs/mine \
        --train-file a.tsv --test-file b.tsv

In the toy reviews several people give their opinion, and the label is the opinion of "I". The same
words in another order have another label, so a model of word counts cannot distinguish them; an
encoder, in which every position attends to all others, can. Files of your own hold
``label<TAB>text``, one text per line.

All files of a run are in one folder, ``runs/classify`` unless ``--run`` names another. Commands
that use a run take the latest one. ``--resume`` resumes a training that was stopped.
"""

import sys
from collections.abc import Sequence

from classification.arguments import Classify, Evaluate, Train
from common.options import parse
from common.program import run_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Train, Evaluate, Classify)))


def run(options: object) -> None:
    """Run the command that the command line names."""
    from classification.commands import COMMANDS  # only now: it imports torch

    COMMANDS[type(options)](options)


if __name__ == "__main__":
    sys.exit(main())
