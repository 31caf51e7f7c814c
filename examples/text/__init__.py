"""The language model: text, tokens, models of it, and how they write.

``examples/generate_text.py`` is the program; the files here are its parts, to be read in this
order: ``stories`` (a text made on the spot), ``source``, ``ngrams`` (the baseline), ``models``,
``learning``, ``writing``, ``pictures``.
"""
