"""Published weights in the blocks of this library.

``bert`` (an encoder: similarity of sentences), ``marian`` (an encoder and a decoder: translation)
and ``gpt2`` (a decoder: text generation) are programs, each to be read on its own with the file of
its work, ``bert_sentences``, ``marian_translator`` or ``gpt2_generator``. ``loading`` reads the
files that all of them are published as; ``wordpiece``, ``sentence_pieces`` and ``byte_pairs`` are
their tokenizers.
"""
