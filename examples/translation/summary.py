"""Summary: the last lines of ``make demo``: a score, the address of a page, and a command.

The reader continues from there: a terminal opens the address in a browser, and the command
translates when it is pasted into a shell in the folder where the program was started.
"""

import os
import shlex
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from translation.corpus import Corpus
from translation.pairs import Pair

PROGRAM = Path(__file__).resolve().parents[1] / "translate.py"


def shown_pairs(corpus: Corpus) -> list[Pair]:
    """Return the test pairs that are shown after a training: five, spread over the test split."""
    return corpus.test[:: max(1, len(corpus.test) // 5)][:5]


def example_sentence(corpus: Corpus) -> str:
    """Return the test sentence that pages and commands use as an example."""
    return shown_pairs(corpus)[-1].source


def file_address(path: Path) -> str:
    """Return the address under which a browser opens a file.

    Example:
        >>> file_address(Path("/tmp/my 練習/a.html"))
        'file:///tmp/my%20%E7%B7%B4%E7%BF%92/a.html'
    """
    return path.resolve().as_uri()


def open_in_browser(address: str) -> bool:
    """Open an address in the default browser; return whether there is one."""
    try:
        return webbrowser.open(address)
    except (OSError, webbrowser.Error):
        return False


def translating_command(run: Path, sentence: str) -> str:
    """Return the command that translates a sentence, quoted for a shell in the current folder."""
    options = ["translate", "--run", str(run)]
    if sentence.startswith("-"):
        options.append("--")  # the end of the options
    return quoted([python(), from_here(PROGRAM), *options, sentence])


def python() -> str:
    """Return the shortest name of the running Python in the current folder."""
    found = shutil.which("python")
    if found is not None and Path(found).absolute() == Path(sys.executable):
        return "python"  # its environment is active
    name = from_here(Path(sys.executable))
    return name if os.sep in name else f"{os.curdir}{os.sep}{name}"  # else from PATH


def from_here(path: Path) -> str:
    """Return a path as it is named in the current folder, if it lies there."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def quoted(arguments: Sequence[str]) -> str:
    """Join the arguments of a command, quoted for the shell of this system.

    Example:
        >>> quoted(["python", "my program.py", "犬が走る。"])
        "python 'my program.py' '犬が走る。'"
    """
    return subprocess.list2cmdline(arguments) if os.name == "nt" else shlex.join(arguments)
