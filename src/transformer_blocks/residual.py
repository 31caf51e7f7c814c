r"""Residual connections: each part adds to what is there, instead of replacing it.

A deep stack learns only if its lower layers feel the loss. So no sublayer (attention or
feed-forward) stands in the way: its output is *added* to its input, and a layer normalisation keeps
the sum's size in bounds. Where to normalise is the one question, and the two classes below are its
two answers:

- :class:`PostNorm`, the paper's (section 5.4 and figure 1): :math:`\mathrm{LayerNorm}(x + f(x))`.
  Needs a warm-up of the learning rate.
- :class:`PreNorm`: :math:`x + f(\mathrm{LayerNorm}(x))`. A straight path from the first layer to
  the last, easier to train ("On Layer Normalization in the Transformer Architecture", Xiong et al.
  2020, https://arxiv.org/abs/2002.04745). The path itself is never normalised, so a stack of these
  ends with one more layer normalisation.

Next chapter: :mod:`transformer_blocks.encoder`, the half that reads.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from transformer_blocks._checks import (
    check_callable,
    check_dropout,
    check_module,
    check_size,
    check_tensor,
    check_vectors,
    refuse,
)
from transformer_blocks.fast.dropout import Dropout


class Residual(nn.Module):
    """Add what a sublayer finds to what it was given; the base of both norm orders.

    Args:
        d_model: Width of the stream.
        dropout: Probability of dropping a number of the sublayer's output, while training
            (section 5.4).
        norm: The normalisation to use instead of ``nn.LayerNorm(d_model)``; a fresh module.

    Raises:
        TypeError: If ``norm`` is not a module, or another argument is of the wrong kind.
        ValueError: If ``d_model`` is not positive or ``dropout`` is out of range.
    """

    needs_final_norm: ClassVar[bool]
    """Whether a stack of these leaves its output unnormalised."""

    def __init__(
        self, d_model: int, *, dropout: float = 0.1, norm: nn.Module | None = None
    ) -> None:
        check_size(d_model=d_model)
        check_dropout(dropout=dropout)
        if norm is not None:
            check_module(norm=norm)
        super().__init__()
        self.d_model = d_model
        self.norm = nn.LayerNorm(d_model) if norm is None else norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Pass ``x`` through ``sublayer`` and add the result to it.

        Args:
            x: Shape (B, L, d_model).
            sublayer: Any function that keeps that shape.

        Returns:
            Same shape as ``x``.

        Raises:
            TypeError: If ``x`` is no tensor, or differs from the norm in dtype, or ``sublayer`` is
                no function.
            ValueError: If ``x`` has another shape, or ``sublayer`` changes it.
        """
        raise NotImplementedError

    def _run(self, sublayer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute what a sublayer adds, with dropout; another shape would be broadcast in silence.

        Raises:
            TypeError: If ``sublayer`` is no function, or returns no tensor.
            ValueError: If it does not keep the shape of ``x``.
        """
        if not callable(sublayer) or isinstance(sublayer, type):
            check_callable(sublayer=sublayer)
        y = sublayer(x)
        check_tensor("what sublayer returns", y)
        if y.shape != x.shape:
            raise ValueError(f"sublayer must keep shape {tuple(x.shape)}, got {tuple(y.shape)}")
        return self.dropout(y)


def new_residual(factory: Callable[[], Residual]) -> Residual:
    """Make a connection, and see that it is one.

    Raises:
        TypeError: If it is not.
    """
    residual = factory()
    if not isinstance(residual, Residual):
        refuse("residual", "what makes a Residual", residual)
    return residual


class PostNorm(Residual):
    r"""Normalise the sum, as the paper does: :math:`\mathrm{LayerNorm}(x + f(x))`.

    Example:
        >>> residual = PostNorm(16, dropout=0.0)
        >>> y = residual(torch.randn(2, 5, 16), lambda x: 100 * x)
        >>> torch.allclose(y.std(-1, unbiased=False), torch.ones(2, 5), atol=1e-3)  # in bounds
        True
    """

    needs_final_norm = False

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: D102
        norm = self.norm
        check_vectors("x", x, self.d_model, norm)
        return norm(x + self._run(sublayer, x))


class PreNorm(Residual):
    r"""Normalise what the sublayer reads and leave the stream alone: :math:`x + f(\mathrm{LN}(x))`.

    Example:
        >>> residual = PreNorm(16)
        >>> x = torch.randn(2, 5, 16)
        >>> y = residual(x, torch.zeros_like)  # a sublayer that has nothing to say ...
        >>> torch.equal(x, y)  # ... changes nothing
        True
    """

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: D102
        norm = self.norm
        check_vectors("x", x, self.d_model, norm)
        return x + self._run(sublayer, norm(x))
