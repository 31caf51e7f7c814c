"""Layers that are copies of one layer.

torch.nn.TransformerEncoder receives one layer and makes deep copies of it. All layers begin with
the same weights, unlike those of torch.nn.Transformer, which initialises all its parameters once
more.

Nothing fails: the layers receive different gradients, and their weights diverge. Users reported it
in February and in October 2022; one had read the source, and one compared the weights of two
layers. Neither the shapes nor the loss show it. The documentation now warns of it, and the second
issue is still open.

:theme: weights
:source: https://github.com/pytorch/pytorch/issues/86274
:found by: initialisation
"""

import copy

import torch
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Soundness, check_soundness

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0]])


def make_layer() -> nn.TransformerEncoderLayer:
    """Make a layer with random weights."""
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)


class Broken(nn.Module):
    """An encoder of two layers; token 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(10, 16), SinusoidalPositionalEncoding(16))
        self.layers = nn.ModuleList(self.make_layers())

    def make_layers(self) -> list[nn.Module]:
        """Make the layers."""
        layer = make_layer()
        # the fault: a copy has the same initial weights
        return [copy.deepcopy(layer) for _ in range(2)]

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute a vector for each token."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=tokens == 0)
        return x


class Mended(Broken):
    """Makes each layer anew."""

    def make_layers(self) -> list[nn.Module]:
        """Make the layers."""
        return [make_layer() for _ in range(2)]


def examine(model: Broken) -> Soundness:
    """Run all checks on a padded batch."""
    return check_soundness(model, TOKENS, padding_id=0)
