"""Explorer: the attention maps of all layers and heads on one interactive page.

In one call, :func:`explore` runs a model and makes an :class:`Explorer`: one HTML file with the
attention maps of the model for one sequence, which can be opened without a network connection. It
tells a story of a few screens, and has a laboratory: an overview of all layers and heads, the map
of the selected head, lines between the tokens, and what each layer of a decoder would predict. With
a :class:`LiveModel` it also holds the model, and translates or continues any sentence.
:class:`Arithmetic` holds the queries, keys and values from which the page shows how a weight was
computed. :func:`plot_attention` and :func:`plot_heads` draw attention maps as matplotlib figures.

This is the last chapter. ``examples/translation/transformer.py`` assembles figure 1 of the paper
from these blocks.
"""

from transformer_blocks.explorer.explore import explore  # isort: skip  (first in the reference)

from transformer_blocks.explorer.arithmetic import Arithmetic, reproduces
from transformer_blocks.explorer.live import LiveModel
from transformer_blocks.explorer.page import AttentionMaps, DecodingSteps, Explorer
from transformer_blocks.explorer.plots import plot_attention, plot_heads

__all__ = [
    "Arithmetic",
    "AttentionMaps",
    "DecodingSteps",
    "Explorer",
    "LiveModel",
    "explore",
    "plot_attention",
    "plot_heads",
    "reproduces",
]
