"""The ground floor of the example programs: what two or more of them need.

A program imports this package, its own package and the library; no package imports another
program's. ``errors`` and ``ranges`` are the lowest files. ``options``, ``text_files`` and
``program`` make a command line. ``tokenizer`` and ``batching`` turn text into tensors. ``files``,
``configuration``, ``checkpoint`` and ``run`` save a training; ``optimiser``, ``distributed``,
``sharding`` and ``training`` run it. ``searches`` decode; ``plots`` and ``tables`` report.
"""

from transformer_blocks.explorer.packages import check_packages

check_packages(
    "this program",
    "matplotlib",
    "sacrebleu",
    "safetensors",
    "sentencepiece",
    "tqdm",
    extra="examples",
)
