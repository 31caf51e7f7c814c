"""The translator: data, tokenizer, model, training and decoding.

``examples/translate.py`` is the program; the files here are its parts, to be read in this order:
``transformer`` (figure 1 of the paper), ``corpus`` (``toy_words``, ``toy``, ``download``),
``tokenizer``, ``batches``, ``training`` (``presets``, ``checkpoint``), ``decoding``, ``scoring``,
``pictures``.
"""
