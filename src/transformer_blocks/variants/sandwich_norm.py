r"""Sandwich normalisation: normalise the input and the output of each sublayer.

With :class:`~transformer_blocks.PreNorm`, a sublayer's output is added to the residual stream as it
is, and nothing bounds it: in large models trained in half precision, a few elements can grow until
they overflow. If the output is normalised too, each sublayer adds a vector whose size is determined
by the learned gains of the normalisation:

.. math:: x + \mathrm{Norm}_2\left(f\left(\mathrm{Norm}_1(x)\right)\right)

Its authors call it Sandwich-LN ("CogView: Mastering Text-to-Image Generation via Transformers",
Ding et al. 2021, https://arxiv.org/abs/2105.13290, section 2.4). Gemma 2 and Gemma 3 have it, with
RMSNorm ("Gemma 3 Technical Report", 2025, https://arxiv.org/abs/2503.19786, section 2).

Next: :mod:`transformer_blocks.variants.pooling`, from the vectors of a sequence to one vector.
"""

from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Size, checked
from transformer_blocks.residual import Residual, Sublayer


class SandwichNorm(Residual):
    r"""Normalise a sublayer's input and its output: :math:`x + N_2(f(N_1(x)))`.

    Args:
        d_model: Size of the vectors of the residual stream.
        dropout: Probability of setting an element of the normalised output to zero in training
            mode.
        norm: Normalisation layer of the input, ``nn.LayerNorm(d_model)`` by default. Pass a new one
            to each residual connection.
        output_norm: Normalisation layer of the output, ``nn.LayerNorm(d_model)`` by default.

    Raises:
        TypeError: If a norm is not a module, or another argument is of the wrong type.
        ValueError: If ``d_model`` is not positive or ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import SandwichNorm
        >>> residual = SandwichNorm(16, dropout=0.0)
        >>> x = torch.randn(2, 5, 16)
        >>> added = residual(x, lambda x: 1000 * x) - x  # however large the output is ...
        >>> torch.allclose(added.std(-1, unbiased=False), torch.ones(2, 5), atol=1e-3)
        True
    """

    needs_final_norm = True

    @checked
    def __init__(
        self,
        d_model: Size,
        *,
        dropout: DropoutProbability = 0.1,
        norm: nn.Module | None = None,
        output_norm: nn.Module | None = None,
    ) -> None:
        super().__init__(d_model, dropout=dropout, norm=norm)
        self.output_norm = nn.LayerNorm(d_model) if output_norm is None else output_norm

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:  # noqa: D102
        return x + self.dropout(self.output_norm(self._apply_sublayer(sublayer, self.norm(x))))
