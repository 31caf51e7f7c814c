"""The classifier: reviews, data, models and their training.

``examples/classify.py`` is the program; the files here are its parts, to be read in this order:
``reviews`` (a task that needs attention), ``data``, ``models``, ``learning``, ``arguments``,
``commands``.
"""
