"""Published weights in the blocks of this library.

``bert`` (an encoder: similarity of sentences), ``marian`` (an encoder and a decoder: translation)
and ``generate`` (decoders: text generation) are programs, each to be read on its own with the file
of its work, ``bert_sentences``, ``marian_translator`` or ``generator``. ``loading`` and ``weights``
read the files that all models are published as; ``wordpiece``, ``sentence_pieces``, ``byte_pairs``
and ``text_tokenizer`` are their tokenizers.
"""
