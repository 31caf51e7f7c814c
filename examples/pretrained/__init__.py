"""Published weights in the blocks of this library.

``bert`` (an encoder: similarity of sentences), ``marian`` (an encoder and a decoder: translation)
and ``gpt2`` (a decoder: text generation) are programs, each to be read on its own. ``loading``
reads the files that all of them are published as; ``wordpiece``, ``sentence_pieces`` and
``byte_pairs`` are their tokenizers.
"""

import common.packages  # noqa: F401  (names missing packages)
from transformer_blocks.explorer.packages import check_packages

check_packages("this program", "tokenizers", extra="pretrained")
