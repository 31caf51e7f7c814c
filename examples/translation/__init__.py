"""The translator: corpora, models, training, decoding and scoring.

``examples/translate.py`` is the program; the files here are its parts, to be read in this order:
``translator`` (the interface of a model), ``rnn_attention`` and ``transformer`` (figure 1 of the
paper), ``pairs``, ``corpus`` (``toy_words``, ``toy``, ``download``), ``examples``, ``batches``,
``presets``, ``run``, ``training``, ``decoding``, ``scoring``, ``comparison``, ``exploring``,
``pictures``, ``arguments``, ``commands``, ``ablation``. Code that all programs share
is in ``common``: ``tokenizer``, ``training``, ``learner``, ``checkpoint`` and others.
"""
