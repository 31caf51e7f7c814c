"""Code that two or more of the example programs share.

A program imports this package, its own package and the library; no package imports another
program's. Read ``training`` first: the update, the plan and the loop. ``checkpoint`` saves a
training, ``run`` is the folder that it is saved in, ``distributed`` lets several processes train
together, and ``terminal`` shows progress and tables. Before the training, ``tokenizer`` and
``batching`` turn text into tensors; after it, ``searches`` are the decoding methods, and ``plots``
draw. ``options``, ``program``, ``files``, ``text_files`` and ``packages`` implement the command
lines.
"""

import sys
from importlib.util import find_spec

for _name in ("cyclopts", "rich"):  # without torch, which common.packages imports
    if find_spec(_name) is None:
        sys.exit(
            f"error: this program needs {_name}, which is not installed: "
            'pip install "transformer-blocks[examples]"'
        )
