"""Published weights in the blocks of this library.

``bert`` (an encoder: similarity of sentences), ``marian`` and ``t5`` (an encoder and a decoder:
translation, and other tasks from text to text) and ``generate`` (decoders: text generation) are
programs, each of which can be read on its own with the file that does its work: ``bert_sentences``,
``marian_translator``, ``text_to_text`` or ``generator``. ``loading`` and ``weights`` read the files
in which all models are published; ``convert`` converts older files, which ``pickles`` reads.
``arguments`` and ``batches`` hold what the programs have in common.
``tokenizer`` is the tokenizer of all families but Marian, whose is ``sentence_pieces``.
"""
