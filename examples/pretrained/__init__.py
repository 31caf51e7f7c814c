"""Published weights in the blocks of this library.

``bert`` (an encoder: which sentences mean the same), ``marian`` (an encoder and a decoder: a
translator) and ``gpt2`` (a decoder alone: text that goes on) are programs, each to be read on its
own. ``loading`` reads what all of them are published as; ``wordpiece`` and ``byte_pairs`` cut text
as BERT and GPT-2 do.
"""

import common  # noqa: F401  (names packages that are missing)
