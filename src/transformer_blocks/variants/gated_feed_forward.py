r"""Gated feed-forward network: a gated linear unit in place of the nonlinearity.

Many later models, among them LLaMA (https://arxiv.org/abs/2302.13971), replace the nonlinearity of
:class:`~transformer_blocks.FeedForward` by a gated linear unit (GLU): two linear layers project the
same input, and the activation of one projection, the *gate*, is multiplied elementwise with the
other ("GLU Variants Improve Transformer", Shazeer 2020, https://arxiv.org/abs/2002.05202, section
2):

.. math:: \mathrm{FFN}_{SwiGLU}(x) = (\mathrm{Swish}(x W) \odot x V)\, W_2

The gate :math:`\mathrm{Swish}(x W)` thus scales each element of :math:`x V`. The paper reports
better results than with ReLU and offers no explanation.

Next: :mod:`transformer_blocks.variants.routing`, which chooses among many such networks.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Function, Size, checked
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import initialise


class GatedFeedForward(nn.Module):
    """Position-wise feed-forward network with a gated linear unit, as in SwiGLU and GEGLU.

    It has three linear layers, whereas :class:`~transformer_blocks.FeedForward` has two. With two
    thirds of the inner size ``d_ff``, both have the same number of weights.

    Args:
        d_model: Size of the input and output vectors.
        d_ff: Inner size, which is the size of the gate and of the projection that it scales.
        activation: Activation function of the gate: ``F.silu`` makes it SwiGLU, ``F.gelu`` GEGLU,
            ``torch.sigmoid`` the first GLU (Dauphin et al. 2016, https://arxiv.org/abs/1612.08083).
        dropout: Probability of setting an element of the inner vectors to zero in training mode.
        bias: Whether the linear layers have biases; those of the GLU paper have none.

    Raises:
        TypeError: If ``activation`` is not callable, or another argument is of the wrong type.
        ValueError: If a size is not positive or ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import GatedFeedForward
        >>> feed_forward = GatedFeedForward(d_model=16, d_ff=64)
        >>> _ = nn.init.zeros_(feed_forward.gate_projection.weight)  # Swish(0) = 0 ...
        >>> bool(feed_forward(torch.randn(2, 5, 16)).any())  # ... so every output is zero
        False
    """

    @checked
    def __init__(
        self,
        d_model: Size,
        d_ff: Size,
        *,
        activation: Function[Callable[[Tensor], Tensor]] = F.silu,
        dropout: DropoutProbability = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.gate_projection = nn.Linear(d_model, d_ff, bias=bias)
        self.up_projection = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.down_projection = nn.Linear(d_ff, d_model, bias=bias)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to every position.

        Args:
            x: Input vectors, of shape (B, L, d_model); any leading dimensions are accepted.

        Returns:
            Output vectors, of the shape of ``x``.

        Raises:
            RuntimeError: If the last dimension of ``x`` is not d_model, or its dtype is not that of
                the weights.
        """
        gate = self.activation(self.gate_projection(x))
        hidden = self.dropout(gate * self.up_projection(x))  # (B, L, d_ff)
        return self.down_projection(hidden)  # (B, L, d_model)

    def extra_repr(self) -> str:
        """Show the activation function of the gate when the module is printed."""
        return f"activation={getattr(self.activation, '__name__', self.activation)}"
