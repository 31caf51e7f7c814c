"""Published weights in the blocks of this library.

``bert`` (an encoder: similarity of sentences), ``marian`` and ``t5`` (an encoder and a decoder:
translation, and from any text to a text) and ``generate`` (decoders: text generation) are programs,
each to be read on its own with the file of its work, ``bert_sentences``, ``marian_translator``,
``text_to_text`` or ``generator``. ``loading`` and ``weights`` read the files that all models are
published as; ``wordpiece``, ``sentence_tokenizer``, ``sentence_pieces``, ``unigram``,
``byte_pairs`` and ``text_tokenizer`` are their tokenizers.
"""
