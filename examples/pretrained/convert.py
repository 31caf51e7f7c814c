r"""Convert: save the weights of a ``pytorch_model.bin`` as ``model.safetensors``.

    python examples/pretrained/convert.py FOLDER
    python examples/pretrained/convert.py Helsinki-NLP/opus-mt-en-fr

Older models are published only as a pickle: a list of instructions that may call any function.
Here torch reads it with ``weights_only=True``, which carries out only calls that make tensors,
dictionaries and numbers, and refuses a file with any other.

The new file is saved beside the pickle, in the folder or in the hub's cache, where the other
programs find it. An existing file is not replaced.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.options import parse
from common.program import run_program
from pretrained.arguments import ModelOptions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, ModelOptions)))


def run(options: ModelOptions) -> None:
    """Run the program with the options of the command line."""
    from pretrained.pickles import convert_folder  # only now: it imports torch

    convert_folder(options)


if __name__ == "__main__":
    sys.exit(main())
