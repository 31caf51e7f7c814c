"""Prepacked linear layers: weights in the blocked layout in which oneDNN reads them."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inference.module import InferenceLinear, check_no_gradient, is_exact

SMALL_PRODUCT = 10**6
"""Number of multiplications in a product below which ``F.linear`` is faster than oneDNN."""

SMALL_WEIGHT = 2**12
"""Number of elements of a weight up to which ``F.linear`` is as fast as oneDNN, or faster."""

EXPECTED_ROWS = 64
"""Number of input rows for which oneDNN chooses its block sizes; any number of rows works."""


def prepack(weight: Tensor) -> Tensor:
    """Reorder a weight (out_features, in_features) into oneDNN's blocked layout."""
    contiguous = weight.clone(memory_format=torch.contiguous_format)
    return torch.ops.mkldnn._reorder_linear_weight(contiguous, EXPECTED_ROWS)


def multiply(x: Tensor, prepacked_weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute ``F.linear`` from a prepacked weight."""
    return torch.ops.mkldnn._linear_pointwise(x, prepacked_weight, bias, "none", [], "")


@cache
def _has_operators() -> bool:
    """Try the operators of oneDNN once, and return whether they work."""
    x, weight = torch.ones(1, 2, device="cpu"), torch.ones(3, 2, device="cpu")
    return torch.backends.mkldnn.is_available() and is_exact(
        lambda: multiply(x, prepack(weight), None),
        torch.full((1, 3), 2.0, device="cpu"),
        otherwise="weights are not prepacked",
    )


class PrepackedLinear(InferenceLinear):
    """Compute a linear layer from a weight that is stored in oneDNN's blocked layout.

    The output is ``torch.nn.functional.linear(x, weight, bias)``, up to rounding. oneDNN is the
    library behind many of torch's CPU kernels; it multiplies fastest if a float32 weight has been
    reordered into blocks beforehand, which is called prepacking. Products of a single row, those
    with fewer than a million multiplications, and those with a weight of up to 4,096 elements are
    computed by ``F.linear`` instead, because calling oneDNN would cost more than it saves; it uses
    a copy of the weight that is contiguous along its longer dimension. For other dtypes and
    devices, and if this version of torch lacks the operators, ``F.linear`` is always used.

    Args:
        linear: Trained layer whose weight and bias are copied; it is not changed.

    Raises:
        TypeError: If ``linear`` is not an ``nn.Linear``.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inference import PrepackedLinear
        >>> linear, x = nn.Linear(16, 64), torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(PrepackedLinear(linear)(x), linear(x), atol=1e-5)
        >>> same
        True
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach()
        is_cpu_float32 = weight.is_cpu and weight.dtype == torch.float32
        can_prepack = is_cpu_float32 and weight.numel() > SMALL_WEIGHT and _has_operators()
        # No buffer: torch cannot export its layout.
        self.prepacked_weight = prepack(weight) if can_prepack else None
        is_long = self.out_features > self.in_features
        weight = (weight.t() if is_long else weight).clone(memory_format=torch.contiguous_format)
        self.register_buffer("weight", weight.t() if is_long else weight)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear layer to the last dimension.

        Args:
            x: Input vectors, of shape (..., in_features).

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            RuntimeError: If ``x`` does not fit the weight, or if it requires a gradient, and
                gradients are recorded.
        """
        check_no_gradient(x)
        is_compiling = torch.compiler.is_compiling()  # the compiler prepacks weights by itself
        if (
            self.prepacked_weight is not None
            and not is_compiling
            and x.dtype == torch.float32
            and x.is_cpu
            and x.shape[-1:] == (self.in_features,)  # otherwise F.linear raises the error
            and x.numel() > self.in_features  # more rows than one
            and x.numel() * self.out_features >= SMALL_PRODUCT
            and not torch.is_autocast_enabled("cpu")
        ):
            return multiply(x, self.prepacked_weight, self.bias)
        # The compiler fuses a sum with what follows it; a product with a bias would be one call
        # that copies the bias into each row first.
        y = F.linear(x, self.weight, None if is_compiling else self.bias)
        return y + self.bias if is_compiling and self.bias is not None else y
