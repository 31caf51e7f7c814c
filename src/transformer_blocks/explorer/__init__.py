"""The explorer: every layer and head of a model on one page that needs no network.

A table of weights is read best by moving about in it. :func:`save_explorer` writes one HTML file
with all of a model's attention over a sentence: layers and heads side by side, one of them large,
lines from each token to what it looks at, two heads compared, and the writing of a translation word
by word. The file opens from the disk, loads nothing and sends nothing. :func:`plot_attention` and
:func:`plot_heads` draw the same as figures.

This was the last chapter: every block now stands. ``examples/translation/transformer.py`` assembles
figure 1 of the paper from them.
"""

from transformer_blocks.explorer.page import AttentionMaps, Explorer, Writing, save_explorer
from transformer_blocks.explorer.plots import plot_attention, plot_heads

__all__ = [
    "AttentionMaps",
    "Explorer",
    "Writing",
    "plot_attention",
    "plot_heads",
    "save_explorer",
]
