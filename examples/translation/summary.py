"""Summary: the last lines of a training: an address, and a command.

The reader continues from there: a terminal opens the address in a browser, and the command
translates when it is pasted into a shell in the folder where the program was started.
"""

import shlex
import sys
from pathlib import Path

from translation.corpus import Corpus
from translation.pairs import Pair

PROGRAM = Path(__file__).resolve().parents[1] / "translate.py"


def shown_pairs(corpus: Corpus) -> list[Pair]:
    """Return the test pairs that are shown after a training: five, spread over the test split."""
    return corpus.test[:: max(1, len(corpus.test) // 5)][:5]


def example_sentences(corpus: Corpus) -> list[str]:
    """Return the test sentences that a page offers; the first is also the example of commands."""
    return [pair.source for pair in reversed(shown_pairs(corpus)[-4:])]


def translating_command(run: Path, sentence: str) -> str:
    """Return the command that translates a sentence, quoted for a POSIX shell."""
    options = ["translate", "--run", str(run)]
    if sentence.startswith("-"):
        options.append("--")  # the end of the options
    return shlex.join([sys.executable, str(PROGRAM), *options, sentence])
