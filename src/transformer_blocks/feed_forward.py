r"""Feed-forward network: two linear layers, applied to each position separately.

Attention exchanges information between positions. The position-wise feed-forward network then
transforms each position separately, with the same weights for all: expand to ``d_ff``, apply a
nonlinearity, project back to ``d_model`` (section 3.3, equation 2 of the paper):

.. math:: \mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2

With ``d_ff = 4 * d_model``, as in the paper, two thirds of the parameters of an encoder layer are
here, also in a language model such as GPT-2, and half of those of the paper's decoder layer, which
has two attention sublayers.

**Dropout** regularises this network and every other sublayer. In training mode, each element of a
tensor is set to zero with probability :math:`p`, by a new random mask in each forward pass, and the
others are divided by the keep probability :math:`1 - p`, so that the expected value does not
change:

.. math:: \mathrm{dropout}(x)_i = \frac{m_i\,x_i}{1 - p}, \qquad m_i = 0 \text{ with probability } p

No unit can rely on the presence of another one, which reduces overfitting ("Dropout: A Simple Way
to Prevent Neural Networks from Overfitting", Srivastava et al. 2014,
https://jmlr.org/papers/v15/srivastava14a.html). The paper applies dropout with :math:`p = 0.1` to
the output of each sublayer and to the sums of embeddings and positional encodings (section 5.4). In
evaluation mode (``model.eval()``), dropout is the identity. :class:`~transformer_blocks.Dropout`
computes what ``torch.nn.Dropout`` does, faster on a CPU.

Next: :mod:`transformer_blocks.residual`, residual connections and layer normalisation.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Function, Size, checked
from transformer_blocks.fast.dropout import Dropout


class FeedForward(nn.Module):
    """Position-wise feed-forward network: two linear layers with a nonlinearity between them.

    Args:
        d_model: Size of the input and output vectors.
        d_ff: Inner size, between the two linear layers; the paper uses 4 * d_model.
        activation: The nonlinearity, any function from tensor to tensor of the same shape; the
            paper uses ReLU.
        dropout: Probability of setting an element of the inner vectors, of size ``d_ff``, to zero
            in training mode. The paper has no dropout here; ``torch.nn.TransformerEncoderLayer``
            has.
        bias: Whether the linear layers have the biases :math:`b_1` and :math:`b_2`.

    Raises:
        TypeError: If ``activation`` is not callable, or another argument is of the wrong type.
        ValueError: If a size is not positive or ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import FeedForward
        >>> feed_forward = FeedForward(d_model=16, d_ff=64)
        >>> x = torch.randn(2, 5, 16)
        >>> alone = feed_forward(x[:, 3:4])  # position 3 without its neighbours ...
        >>> torch.allclose(alone, feed_forward(x)[:, 3:4], atol=1e-6)  # ... has the same output
        True
    """

    @checked
    def __init__(
        self,
        d_model: Size,
        d_ff: Size,
        *,
        activation: Function[Callable[[Tensor], Tensor]] = F.relu,
        dropout: DropoutProbability = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
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
        hidden = self.dropout(self.activation(self.up_projection(x)))  # (B, L, d_ff)
        return self.down_projection(hidden)  # (B, L, d_model)

    def extra_repr(self) -> str:
        """Show the activation function when the module is printed."""
        return f"activation={getattr(self.activation, '__name__', self.activation)}"


def initialise(module: nn.Module) -> None:
    """Initialise the linear layers of a module with Xavier uniform weights and zero biases."""
    for layer in module.children():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
