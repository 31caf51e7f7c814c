"""The translator: corpora, models, training, decoding and scoring.

``examples/translate.py`` is the program; the files here are its parts, to be read in this order:
``pairs``, ``toy``, ``corpus``, ``batches``, ``translator`` (the interface of a model),
``transformer`` (figure 1 of the paper), ``rnn_attention``, ``presets``, ``training``, ``decoding``,
``scoring``, ``arguments``, ``commands``, ``comparison``, ``recording``, ``exploring``,
``exporting``, ``pictures``, ``ablation``. Code that all programs share is in
``common``: ``tokenizer``, ``training``, ``checkpoint`` and others.
"""
