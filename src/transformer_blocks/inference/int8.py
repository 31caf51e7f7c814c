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

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Vectors, check, check_match, check_tensor
from transformer_blocks.inference.module import InferenceModule, check_no_gradient

INPUT = Vectors("... in_features")

log = logging.getLogger(__name__)

LARGEST = 127
"""Largest absolute value of a quantised number; -128 is not used: the range is symmetric."""

SMALLEST_MAXIMUM = 1e-30
"""Lower bound of the maximum that determines a scale, so that a row of zeros can be divided."""

ZERO_POINT = 128
"""What is added to a quantised number to make it unsigned."""

MOST_EXACT_FEATURES = 2**24 // LARGEST**2
"""Number of input features up to which every sum of products is exact in float32, too."""

FEW_ROWS = 8
"""Number of rows up to which a compiled product of float32 is faster than one of int8."""

MOST_FEATURES = (2**31 - 1) // LARGEST**2
"""Number of input features up to which no sum of products overflows a 32-bit integer."""


def _prepack(weight: Tensor) -> Tensor:
    """Reorder an int8 weight (in_features, out_features) into oneDNN's blocked layout."""
    return torch.ops.onednn.qlinear_prepack(weight.t().contiguous(), None)


# A custom operator, because the compiler cannot infer the output shape of oneDNN's own operator.
if not hasattr(torch.ops.transformer_blocks, "prepack_int8"):  # it survives a reload
    torch.library.define("transformer_blocks::prepack_int8", "(Tensor weight) -> Tensor")
    torch.library.impl("transformer_blocks::prepack_int8", "cpu", _prepack)
    torch.library.register_fake("transformer_blocks::prepack_int8", torch.empty_like)


class Int8Linear(InferenceModule):
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

    weight: Tensor
    weight_scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        check(nn.Linear, linear=linear)
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
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        quantised, scale = quantise_rows(weight)
        dtype = torch.int8 if has_integer_product() else torch.float32
        self.has_compiled_product = has_integer_product() and has_compiled_product()
        # Transposed; without a copy, torch's product reads the strides of a single row wrongly.
        weight = quantised.to(dtype).t().clone(memory_format=torch.contiguous_format)
        self.register_buffer("weight", weight)  # (in_features, out_features)
        self.register_buffer("weight_scale", scale[:, 0])  # (out_features,)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear layer to the last dimension.

        Args:
            x: Input vectors, of shape (..., in_features), float32 on a CPU.

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            TypeError: If ``x`` is not a tensor, or not float32.
            ValueError: If the last dimension of ``x`` is not in_features.
            RuntimeError: If ``x`` requires a gradient, and gradients are recorded.
        """
        check_tensor("x", x)
        if x.dtype != torch.float32 or not x.is_cpu or x.shape[-1:] != (self.in_features,):
            INPUT("x", x, self, {})
            check_match("x", x, self.weight_scale, self)  # autocast may pass another dtype
        check_no_gradient(x)
        quantised, scale = quantise_rows(x.float())
        y = self._multiply(quantised) * scale
        return y if self.bias is None else y + self.bias

    def _multiply(self, quantised: Tensor) -> Tensor:
        """Multiply integers, given as float32 of shape (..., in_features), by weight and scale."""
        if self.weight.dtype != torch.int8:
            return quantised @ self.weight * self.weight_scale
        rows = quantised.reshape(-1, self.in_features)
        if not torch.compiler.is_exporting():
            y = torch._int_mm(rows.to(torch.int8), self.weight) * self.weight_scale
        elif rows.shape[0] == 1 and self.in_features <= MOST_EXACT_FEATURES:
            # Inductor's own loop: it reads one byte per weight, and calls no library.
            y = (self.weight.t().contiguous() * rows).sum(-1) * self.weight_scale
        elif self._is_exact_in_float32(rows.shape[0]):  # the faster product for few rows
            y = rows @ self.weight.float() * self.weight_scale
        elif self.has_compiled_product:
            y = _multiply_prepacked(rows, self.weight, self.weight_scale)
        else:
            y = torch._int_mm(rows.to(torch.int8), self.weight) * self.weight_scale
        return y.view(*quantised.shape[:-1], self.out_features)

    def _is_exact_in_float32(self, rows: object) -> bool:
        """Return whether so few rows, as many as beams, are multiplied as float32 numbers."""
        is_few = isinstance(rows, int) and rows <= FEW_ROWS  # a symbol stands for many
        return is_few and self.in_features <= MOST_EXACT_FEATURES


def _multiply_prepacked(rows: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """Multiply integers by a weight and its scale with the operator that Inductor generates.

    The operator expects unsigned numbers, and subtracts their zero point within the product.
    """
    return torch.ops.onednn.qlinear_pointwise(
        *((rows + ZERO_POINT).to(torch.uint8), 1.0, ZERO_POINT),
        torch.ops.transformer_blocks.prepack_int8(weight),  # once, when a program is compiled
        *(weight_scale, torch.zeros_like(weight_scale, dtype=torch.int32), None),
        *(1.0, 0, torch.float32),  # scale, zero point and dtype of the output
        *("none", [], ""),  # no activation function
    )


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
    if _is_exact(lambda rows, weight: torch._int_mm(rows, weight)):
        return True
    log.warning(
        "torch has no exact int8 product on this CPU; float32 products are used instead, which are "
        "slower than without int8"
    )
    return False


@cache
def has_compiled_product() -> bool:
    """Return whether torch has the int8 product for which Inductor generates code; tried once."""
    if _is_exact(lambda rows, weight: _multiply_prepacked(rows.float(), weight, torch.ones(64))):
        return True
    log.info("torch has no prepacked int8 product; compiled steps are slower")
    return False


def _is_exact(multiply: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Return whether a product of the largest integers is exact; False if it raises an error."""
    largest = torch.full((64, 64), LARGEST, dtype=torch.int8, device="cpu")
    try:
        products = multiply(largest, largest), multiply(largest, -largest)
    except (AttributeError, RuntimeError, TypeError):  # missing, failing, or called otherwise
        return False
    expected = 64 * LARGEST**2
    return bool((products[0] == expected).all() and (products[1] == -expected).all())
