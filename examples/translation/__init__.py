"""The translator: corpora, models, training, decoding and scoring.

``examples/translate.py`` is the program; the files here are its parts, to be read in this order:
``translator`` (the interface of a model), ``rnn_attention`` and ``transformer`` (figure 1 of the
paper), ``pairs``, ``corpus`` (``toy_words``, ``toy``, ``download``), ``examples``, ``batches``,
``presets``, ``decoding``, ``scoring``, ``training``, ``arguments``, ``commands``, ``comparison``,
``exploring``, ``exporting``, ``pictures``, ``ablation``. Code that all programs share is in
``common``: ``tokenizer``, ``training``, ``checkpoint`` and others.
"""
