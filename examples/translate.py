r"""Train a Japanese-English translator, translate with it, score it, and compare it.

    python examples/translate.py train       # toy corpus, minutes on a CPU
    python examples/translate.py translate "毎晩、あの犬は水を飲みます。"
    python examples/translate.py evaluate

    python examples/translate.py train --corpus small_parallel_enja \
        --preset small --minutes 40
    python examples/translate.py evaluate --run runs/small_parallel_enja

    python examples/translate.py train --model rnn --run runs/rnn      # an LSTM
    python examples/translate.py compare runs/toy runs/rnn
    python examples/translate.py explore --sentence "毎晩、あの犬は水を飲みます。"
    python examples/translate.py align --sentence "毎晩、あの犬は水を飲みます。"
    python examples/translate.py export --to ctranslate2

All files of a run are in one folder, ``runs/CORPUS`` unless ``--run`` names another. Commands that
use a run take the latest one. ``--resume`` resumes a training that was stopped. ``python
examples/translate.py train --help`` lists the options of a command. ``explore`` writes a page with
all attention weights, which holds the model and translates what is typed there; ``align`` prints
which subwords of a translation translate which ones of the sentence; ``export`` writes the model
for CTranslate2, which translates faster on a CPU.
"""

import sys
from collections.abc import Sequence

from common.options import parse
from common.program import run_program
from translation.arguments import COMMANDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, *COMMANDS)))


def run(options: object) -> None:
    """Run the command that the command line names."""
    from translation.commands import RUN  # only now: it imports torch

    RUN[type(options)](options)


if __name__ == "__main__":
    sys.exit(main())
