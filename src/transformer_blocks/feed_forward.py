r"""Feed-forward: what every position does on its own.

Attention moves information between positions; the feed-forward network then works on each position
separately, the same way for all: widen to ``d_ff``, bend, and come back to ``d_model``
(section 3.3, equation 2 of the paper):

.. math:: \mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2

Two thirds of a Transformer layer's parameters live here.

Next chapter: :mod:`transformer_blocks.residual`, which holds attention and feed-forward together.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import check_dropout, check_size
from transformer_blocks.dropout import Dropout


class FeedForward(nn.Module):
    """Transform each position by itself: two linear maps with a bend between them.

    Args:
        d_model: Width of what comes in and goes out.
        d_ff: Width between the two maps; the paper takes 4 * d_model.
        activation: The bend, any function from tensor to tensor; the paper's is ReLU.
        dropout: Probability of dropping a number between the maps, while training. The paper
            drops nothing here; ``torch.nn.TransformerEncoderLayer`` does.
        bias: Whether the maps add :math:`b_1` and :math:`b_2`.

    Raises:
        ValueError: If a size is not positive or ``dropout`` is out of range.

    Example:
        >>> feed_forward = FeedForward(d_model=16, d_ff=64)
        >>> x = torch.randn(2, 5, 16)
        >>> alone = feed_forward(x[:, 3:4])  # a position without its neighbours ...
        >>> torch.allclose(alone, feed_forward(x)[:, 3:4], atol=1e-6)  # ... is treated alike
        True
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.relu,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        check_size(d_model=d_model, d_ff=d_ff)
        check_dropout(dropout=dropout)
        super().__init__()
        self.widen = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both maps to every position.

        Args:
            x: Shape (B, L, d_model); any leading dimensions do.

        Returns:
            Same shape as ``x``.
        """
        hidden = self.dropout(self.activation(self.widen(x)))  # (B, L, d_ff)
        return self.narrow(hidden)  # (B, L, d_model)
