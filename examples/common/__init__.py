"""Code that two or more of the example programs share.

A program imports this package, its own package and the library; no package imports another
program's. Read ``training`` first: the update, the plan and the loop. ``checkpoint`` saves a
training, ``run`` is the folder that it is saved in, ``distributed`` lets several processes train
together, and ``terminal`` shows progress and tables. Before the training, ``tokenizer`` and
``batching`` turn text into tensors; after it, ``searches`` are the decoding methods, and ``plots``
draw. ``options``, ``program``, ``files`` and ``text_files`` implement the command lines.
"""

import sys
from importlib.util import find_spec

PACKAGES = (
    *("cyclopts", "filelock", "matplotlib", "pooch"),
    *("rich", "sacrebleu", "safetensors", "sentencepiece"),
)
if missing := [name for name in PACKAGES if find_spec(name) is None]:
    message = f"error: this program needs {missing[0]}, which is not installed: pip install"
    print(f'{message} "transformer-blocks[examples]"', file=sys.stderr)
    sys.exit(2)
