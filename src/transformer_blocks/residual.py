r"""Residual connections: each sublayer's output is added to its input.

A deep stack can be trained only if gradients reach its lower layers. Every sublayer :math:`f`
(attention or feed-forward network) is therefore wrapped in a residual connection, :math:`x + f(x)`
("Deep Residual Learning for Image Recognition", He et al. 2015, https://arxiv.org/abs/1512.03385):
the gradient of the sum reaches :math:`x` undiminished, whatever the sublayer does. The vectors that
each sublayer of a stack reads and adds to are called the *residual stream*.

*Layer normalisation* keeps the scale of the activations constant ("Layer Normalization", Ba et al.
2016, https://arxiv.org/abs/1607.06450). It subtracts from each vector the mean of its components
and divides by their standard deviation; a learned scale :math:`\gamma` and shift :math:`\beta`
follow, one of each per component:

.. math::

   \mathrm{LayerNorm}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta,
   \qquad \mu = \frac{1}{d_{model}} \sum_i x_i, \quad
   \sigma^2 = \frac{1}{d_{model}} \sum_i (x_i - \mu)^2

The small :math:`\epsilon` (:math:`10^{-5}` in ``torch.nn.LayerNorm``) prevents a division by zero.
Each position is normalised by itself, so that neither padding nor other sequences have an effect.

The two classes differ in where they normalise:

- :class:`PostNorm`, the paper's order: :math:`\mathrm{LayerNorm}(x + f(x))` (section 3.1), with
  dropout applied to :math:`f(x)` before the addition (section 5.4). Each normalisation also scales
  the gradient of :math:`x`, so that at first the gradients of the upper layers are large; with a
  large learning rate, deep stacks need a warm-up (:mod:`transformer_blocks.schedule`).
- :class:`PreNorm`: :math:`x + f(\mathrm{LayerNorm}(x))`, with the same dropout. The residual stream
  passes from the first layer to the last without normalisation, which makes training easier ("On
  Layer Normalization in the Transformer Architecture", Xiong et al. 2020,
  https://arxiv.org/abs/2002.04745). A stack of such layers therefore ends with one more layer
  normalisation.

Next: :mod:`transformer_blocks.encoder`, a stack of self-attention and feed-forward layers.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Size, check, checked, raise_type_error
from transformer_blocks.fast.dropout import Dropout

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """Base class of residual connections, which add a sublayer's output to its input.

    Args:
        d_model: Size of the vectors of the residual stream.
        dropout: Probability of setting an element of the sublayer's output to zero in training mode
            (section 5.4).
        norm: Normalisation layer, ``nn.LayerNorm(d_model)`` by default. Pass a new one to each
            residual connection; otherwise the connections share its parameters.

    Attributes:
        needs_final_norm: Whether a stack of these connections needs one more normalisation after
            its last layer.

    Raises:
        TypeError: If ``norm`` is not a module, or another argument is of the wrong type.
        ValueError: If ``d_model`` is not positive or ``dropout`` is out of range.
    """

    needs_final_norm: ClassVar[bool]

    @checked
    def __init__(
        self, d_model: Size, *, dropout: DropoutProbability = 0.1, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.norm = nn.LayerNorm(d_model) if norm is None else norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Apply ``sublayer`` with dropout, and add its output to ``x``.

        Args:
            x: Input vectors, of shape (B, L, d_model).
            sublayer: A function or module whose output has the shape of its input.

        Returns:
            Output vectors, of the shape of ``x``.

        Raises:
            TypeError: If ``sublayer`` does not return a tensor.
            ValueError: If its output has another shape than ``x``.
        """
        raise NotImplementedError

    def _apply_sublayer(self, sublayer: Sublayer, x: Tensor) -> Tensor:
        """Compute a sublayer's output.

        Raises:
            TypeError: If ``sublayer`` does not return a tensor.
            ValueError: If its output has another shape than ``x``, which the sum might broadcast.
        """
        y = sublayer(x)
        if not isinstance(y, Tensor):
            raise_type_error("the output of sublayer", "a tensor", y)
        if y.shape != x.shape:
            raise ValueError(f"sublayer must keep shape {tuple(x.shape)}, got {tuple(y.shape)}")
        return y


def new_residual(factory: Callable[[], Residual]) -> Residual:
    """Build a residual connection.

    Raises:
        TypeError: If the factory returns anything else.
    """
    residual = factory()
    check(Residual, residual=residual)
    return residual


class PostNorm(Residual):
    r"""Normalise after the addition: :math:`\mathrm{LayerNorm}(x + f(x))` (section 3.1).

    Example:
        >>> import torch
        >>> from transformer_blocks import PostNorm
        >>> residual = PostNorm(16, dropout=0.0)
        >>> y = residual(torch.randn(2, 5, 16), lambda x: 100 * x)
        >>> torch.allclose(y.std(-1, unbiased=False), torch.ones(2, 5), atol=1e-3)  # unit variance
        True
    """

    needs_final_norm = False

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:  # noqa: D102
        return self.norm(x + self.dropout(self._apply_sublayer(sublayer, x)))


class PreNorm(Residual):
    r"""Normalise only the sublayer's input: :math:`x + f(\mathrm{LayerNorm}(x))`.

    Example:
        >>> import torch
        >>> from transformer_blocks import PreNorm
        >>> residual = PreNorm(16)
        >>> x = torch.randn(2, 5, 16)
        >>> y = residual(x, torch.zeros_like)  # a sublayer that adds nothing ...
        >>> torch.equal(x, y)  # ... leaves the residual stream unchanged
        True
    """

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:  # noqa: D102
        return x + self.dropout(self._apply_sublayer(sublayer, self.norm(x)))
