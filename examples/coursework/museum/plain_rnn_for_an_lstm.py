"""A plain RNN where an LSTM is meant.

A benchmark of DyNet trains the same models with several toolkits, to compare their speed. Where the
language model for DyNet has an LSTM, that for PyTorch had nn.RNN, in a variable called rnn, until
December 2017: a quarter of the weights of the layer, and less work in each step. The correction
says that the program "cheats a little bit".

Both layers take the same arguments and return outputs of the same shape, and both learn. The gates
of an LSTM are what keeps a state over many steps. A comparison with the layer that the text
describes finds the fault; so does a count of the weights.

:theme: layout and modes
:source: https://github.com/neulab/dynet-benchmark/pull/16
:found by: equivalence
"""

import torch
from torch import Tensor, nn

from coursework.museum.exhibit import seeded
from transformer_blocks.inspection import Difference, first_difference


class Broken(nn.Module):
    """An encoder that is described as an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = self.make_layer()

    def make_layer(self) -> nn.RNNBase:
        """Make the recurrent layer."""
        # the fault: a layer without gates
        return nn.RNN(16, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the states (B, L, 16) of vectors (B, L, 16)."""
        states: Tensor = self.rnn(x)[0]
        return states


class Mended(Broken):
    """An LSTM."""

    def make_layer(self) -> nn.RNNBase:
        """Make the recurrent layer."""
        return nn.LSTM(16, 16, batch_first=True)


def examine(model: Broken) -> Difference:
    """Compare with the steps of an LSTM cell of the same seed."""
    cell = seeded(lambda: nn.LSTMCell(16, 16))

    def described(x: Tensor) -> Tensor:
        states = [cell(x[:, 0])]
        states += [cell(x[:, 1], states[0])]
        return torch.stack([hidden for hidden, _ in states], dim=1)

    return first_difference(model, described, torch.randn(2, 2, 16))
