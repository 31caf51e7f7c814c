"""Layers in a list that torch does not see.

A robotics Transformer kept its layers in a Python list. Modules in a list are not registered: they
compute in the forward pass, but their parameters are not among those of the model. They are not
trained, not saved, and not moved to another device with the model.

On a CPU nothing fails, and the loss falls, since the other parts of the model are trained. A reader
noticed in October 2023 that the number of trainable parameters did not grow with the number of
layers. The first issue about it in torch is of February 2017.

:theme: weights
:source: https://github.com/maruya24/pytorch_robotics_transformer/issues/3
:found by: device
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Soundness, check_soundness

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0]])


class Broken(nn.Module):
    """An encoder of two layers; token 0 is padding."""

    layers: Iterable[nn.Module]

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(10, 16), SinusoidalPositionalEncoding(16))
        self.layers = self.make_layers()

    def make_layers(self) -> Iterable[nn.Module]:
        """Make the layers."""
        # the fault: torch does not search a list for modules
        return [nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True) for _ in range(2)]

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute a vector for each token."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=tokens == 0)
        return x


class Mended(Broken):
    """Registers the layers."""

    def make_layers(self) -> Iterable[nn.Module]:
        """Make the layers."""
        return nn.ModuleList(super().make_layers())


def examine(model: Broken) -> Soundness:
    """Run all checks on a padded batch."""
    return check_soundness(model, TOKENS, padding_id=0)
