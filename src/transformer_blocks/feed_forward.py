r"""Feed-forward: what every position does on its own.

Attention moves information between positions; the feed-forward network then works on each position
separately, the same way for all: widen to ``d_ff``, bend, and come back to ``d_model``
(section 3.3, equation 2 of the paper):

.. math:: \mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2

Two thirds of a Transformer layer's parameters live here.

Today's models bend by a gate: a second map of the same input decides, number by number, how much
of the first goes through ("GLU Variants Improve Transformer", Shazeer 2020,
https://arxiv.org/abs/2002.05202):

.. math:: \mathrm{FFN}_{SwiGLU}(x) = (\mathrm{Swish}(x W) \odot x V)\, W_2

Next chapter: :mod:`transformer_blocks.residual`, which holds attention and feed-forward together.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import (
    check_callable,
    check_dropout,
    check_flag,
    check_size,
    check_vectors,
)
from transformer_blocks.fast.dropout import Dropout


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
        TypeError: If ``activation`` cannot be called, or another argument is of the wrong kind.
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
        check_callable(activation=activation)
        check_flag(bias=bias)
        super().__init__()
        self.up_projection = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.down_projection = nn.Linear(d_ff, d_model, bias=bias)
        for linear in (self.up_projection, self.down_projection):
            _initialise(linear)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both maps to every position.

        Args:
            x: Shape (B, L, d_model); any leading dimensions do.

        Returns:
            Same shape as ``x``.

        Raises:
            TypeError: If ``x`` is no tensor, or differs from the weights in dtype.
            ValueError: If its last dimension is not d_model.
        """
        up = self.up_projection
        check_vectors("x", x, getattr(up, "in_features", None), up, leading=None)
        hidden = self.dropout(self.activation(up(x)))  # (B, L, d_ff)
        return self.down_projection(hidden)  # (B, L, d_model)

    def extra_repr(self) -> str:
        """Show the activation when the module is printed."""
        return _name_activation(self.activation)


class GatedFeedForward(nn.Module):
    """Transform each position by itself, and let a gate decide how much of it counts.

    It has three maps where :class:`FeedForward` has two; with two thirds of the width d_ff, it has
    as many weights.

    Args:
        d_model: Width of what comes in and goes out.
        d_ff: Width between the maps.
        activation: Of the gate: ``F.silu`` makes it SwiGLU, ``F.gelu`` GEGLU, ``torch.sigmoid`` the
            first GLU (Dauphin et al. 2016, https://arxiv.org/abs/1612.08083).
        dropout: Probability of dropping a number between the maps, while training.
        bias: Whether the maps add a learned constant; the paper's do not.

    Raises:
        TypeError: If ``activation`` cannot be called, or another argument is of the wrong kind.
        ValueError: If a size is not positive or ``dropout`` is out of range.

    Example:
        >>> feed_forward = GatedFeedForward(d_model=16, d_ff=64)
        >>> with torch.no_grad():
        ...     shut = (
        ...         feed_forward.gate_projection.weight.zero_()
        ...     )  # Swish(0) is 0: the gate is shut ...
        >>> bool(feed_forward(torch.randn(2, 5, 16)).any())  # ... and nothing goes through
        False
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.silu,
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        check_size(d_model=d_model, d_ff=d_ff)
        check_dropout(dropout=dropout)
        check_callable(activation=activation)
        check_flag(bias=bias)
        super().__init__()
        self.gate_projection = nn.Linear(d_model, d_ff, bias=bias)
        self.up_projection = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.down_projection = nn.Linear(d_ff, d_model, bias=bias)
        for linear in (self.gate_projection, self.up_projection, self.down_projection):
            _initialise(linear)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the maps to every position.

        Args:
            x: Shape (B, L, d_model); any leading dimensions do.

        Returns:
            Same shape as ``x``.

        Raises:
            TypeError: If ``x`` is no tensor, or differs from the weights in dtype.
            ValueError: If its last dimension is not d_model.
        """
        gate = self.gate_projection
        check_vectors("x", x, getattr(gate, "in_features", None), gate, leading=None)
        hidden = self.dropout(self.activation(gate(x)) * self.up_projection(x))  # (B, L, d_ff)
        return self.down_projection(hidden)  # (B, L, d_model)

    def extra_repr(self) -> str:
        """Show the activation when the module is printed."""
        return _name_activation(self.activation)


def _initialise(linear: nn.Linear) -> None:
    """Give a map Xavier's uniform weights and no bias."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _name_activation(activation: Callable[[Tensor], Tensor]) -> str:
    """Name a function; a module is printed anyway."""
    if isinstance(activation, nn.Module):
        return ""
    return f"activation={getattr(activation, '__name__', activation)}"
