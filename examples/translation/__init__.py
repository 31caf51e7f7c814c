"""The translator: data, tokenizer, model, training and decoding.

``examples/translate.py`` is the program; the files here are its parts, to be read in this order:
``transformer`` (figure 1 of the paper), ``corpus`` (``toy_words``, ``toy``, ``download``),
``batches``, ``presets``, ``training``, ``decoding``, ``scoring``, ``pictures``. What all programs
share is in ``common``: ``tokenizer``, ``training``, ``learner``, ``checkpoint`` and others.
"""
