r"""Int8 linear layers: weights and inputs as 8-bit integers, multiplied in integer arithmetic.

A float32 weight is stored in 4 bytes, an int8 weight in one, and the integer instructions of a CPU
(VNNI and AMX on x86) multiply four or more times as many numbers at once. Quantisation replaces
each number by an integer from -127 to 127 times a scale:

.. math:: x \approx s q, \qquad s = \max |x| / 127, \qquad q = \mathrm{round}(x / s)

The weight has one scale for each output feature, which is computed once. The input has one scale
for each row, which is computed at each call (*dynamic* quantisation): unlike a scale for a whole
batch, it does not make the output of one sequence depend on the other sequences of its batch. (See
"LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale", Dettmers et al. 2022,
https://arxiv.org/abs/2208.07339, section 2.1 on the scale, section 3.1 on one scale for each row
and each output feature.)
"""

from functools import cache

import torch
from torch import Tensor, nn

from transformer_blocks._contexts import is_autocast
from transformer_blocks.inference.module import InferenceLinear, check_no_gradient, is_exact

LARGEST = 127
"""Largest absolute value of a quantised number; -128 is not used: the range is symmetric."""

SMALLEST_MAXIMUM = 1e-30
"""Lower bound of the maximum that determines a scale, so that a row of zeros can be divided."""

MOST_FEATURES = (2**31 - 1) // LARGEST**2
"""Number of input features up to which no sum of products overflows a 32-bit integer."""


class Int8Linear(InferenceLinear):
    r"""Compute a linear layer in int8, with one scale per output feature and one per input row.

    The output is approximately ``torch.nn.functional.linear(x, weight, bias)``. With the quantised
    input :math:`q_x` and weight :math:`q_w` and their scales :math:`s_x` and :math:`s_w`, it is

    .. math:: y_{ij} = s_{x,i} \, s_{w,j} \sum_k q_{x,ik} \, q_{w,jk} + b_j

    The sum is exact. The error is that of rounding: at most half a scale for each number, thus

    .. math:: |\Delta y_{ij}| \le \tfrac{1}{2} s_{x,i} \sum_k |w_{jk}|
        + \tfrac{1}{2} s_{w,j} \sum_k |x_{ik}| + \tfrac{1}{4} d \, s_{x,i} \, s_{w,j}

    for :math:`d` input features. A row's output does not depend on the other rows.

    Where torch has no exact int8 product, the same integers are multiplied in float32, which is
    slower than an unquantised layer; one warning is logged. On x86 this is so without the VNNI
    instructions: sums of two products are limited to 16 bits there.

    Args:
        linear: Trained layer with float32 weights on a CPU, which are copied; it is not changed.

    Raises:
        TypeError: If ``linear`` is not an ``nn.Linear``, or its weight is not float32.
        ValueError: If its weight is not on a CPU, or it has no input features or more than 133,144,
            whose products might not fit into 32 bits.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inference import Int8Linear
        >>> quantised, x = Int8Linear(nn.Linear(16, 64)), torch.randn(5, 16)
        >>> with torch.no_grad():
        ...     alone, in_batch = quantised(x[:1]), quantised(x)[:1]
        >>> torch.equal(alone, in_batch)
        True
    """

    weight_scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach()
        if weight.dtype != torch.float32:
            raise TypeError(f"int8 linear layers need float32 weights, got {weight.dtype}")
        if weight.device.type != "cpu":
            raise ValueError(f"int8 linear layers need weights on a CPU, got {weight.device}")
        if not 1 <= linear.in_features <= MOST_FEATURES:
            raise ValueError(
                f"int8 linear layers must have from 1 to {MOST_FEATURES} input features, got "
                f"in_features={linear.in_features}"
            )
        quantised, scale = quantise_rows(weight)
        dtype = torch.int8 if has_integer_product() else torch.float32
        # Transposed; without a copy, torch's product reads the strides of a single row wrongly.
        weight = quantised.to(dtype).t().clone(memory_format=torch.contiguous_format)
        self.register_buffer("weight", weight)  # (in_features, out_features)
        self.register_buffer("weight_scale", scale[:, 0])  # (out_features,)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear layer to the last dimension.

        Args:
            x: Input vectors, of shape (..., in_features), float32 on a CPU.

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            TypeError: If ``x`` is not float32.
            ValueError: If the last dimension of ``x`` is not in_features.
            RuntimeError: If ``x`` requires a gradient, and gradients are recorded.
        """
        check_no_gradient(x)
        if x.shape[-1:] != (self.in_features,):
            raise ValueError(f"x must have shape (..., {self.in_features}), got {tuple(x.shape)}")
        if x.dtype != torch.float32 and not (x.is_floating_point() and is_autocast(x)):
            raise TypeError(f"x must be float32, got dtype={x.dtype}")
        quantised, scale = quantise_rows(x.float())
        rows = quantised.reshape(-1, self.in_features).to(self.weight.dtype)
        y = torch._int_mm(rows, self.weight) if rows.dtype == torch.int8 else rows @ self.weight
        y = (y * self.weight_scale).view(*x.shape[:-1], self.out_features) * scale
        return y if self.bias is None else y + self.bias


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Divide each row by its scale and round it to integers from -127 to 127.

    Args:
        x: Rows of shape (..., D).

    Returns:
        The integers, as floating-point numbers of the same shape, and the scales, of shape
        (..., 1). If a row contains NaN or infinity, its scale is not finite either.

    Example:
        >>> import torch
        >>> from transformer_blocks.inference.int8 import quantise_rows
        >>> quantise_rows(torch.tensor([[0.5, -1.27, 1.0], [2.54, 0.0, 0.01]]))
        (tensor([[  50., -127.,  100.],
                [ 127.,    0.,    0.]]), tensor([[0.0100],
                [0.0200]]))
    """
    maximum = x.abs().amax(-1, keepdim=True).clamp_min(SMALLEST_MAXIMUM)
    return (x * (LARGEST / maximum)).round_(), maximum / LARGEST


@cache
def has_integer_product() -> bool:
    """Return whether torch multiplies int8 matrices exactly; tried once, with a warning if not."""
    largest = torch.full((64, 64), LARGEST, dtype=torch.int8, device="cpu")
    expected = torch.full((64, 64), 64 * LARGEST**2, dtype=torch.int32, device="cpu")
    return is_exact(
        lambda: torch.cat([torch._int_mm(largest, each) for each in (largest, -largest)]),
        torch.cat([expected, -expected]),
        otherwise="int8 layers multiply float32 numbers, slower than without int8,",
    )
