"""Tables 1 and 3 of "Attention Is All You Need", computed with the library.

``table1.py`` measures the cost, the sequential operations and the path length of four kinds of
layers. ``table3.py`` builds the model of each row and counts its parameters.
"""
