"""The language model: text, tokens, models, training and decoding.

``examples/generate_text.py`` is the program; the files here are its parts, to be read in this
order: ``stories`` (a generated text), ``source``, ``ngrams`` (the baseline), ``models``,
``learning``, ``writing``, ``exploring``, ``arguments``, ``commands``.
"""
