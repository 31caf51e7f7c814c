"""Prepacked linear layers: weights in the blocked layout in which oneDNN reads them."""

import logging
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import Vectors, check, check_match, check_tensor
from transformer_blocks.inference.module import InferenceModule, check_no_gradient

INPUT = Vectors("... in_features")

log = logging.getLogger(__name__)

SMALL_PRODUCT = 10**6
"""Number of multiplications in a product below which ``F.linear`` is faster than oneDNN."""

EXPECTED_ROWS = 64
"""Number of input rows for which oneDNN chooses its block sizes; any number of rows works."""


def prepack(weight: Tensor) -> Tensor:
    """Reorder a weight (out_features, in_features) into oneDNN's blocked layout."""
    contiguous = weight.clone(memory_format=torch.contiguous_format)
    return torch.ops.mkldnn._reorder_linear_weight(contiguous, EXPECTED_ROWS)


@cache
def _has_operators() -> bool:
    """Try the operators of oneDNN once, and return whether they work.

    They are private to torch: another version may lack them, or take other arguments.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight = torch.ones(1, 2, device="cpu"), torch.ones(3, 2, device="cpu")
    try:
        prepacked = prepack(weight)
        y = torch.ops.mkldnn._linear_pointwise(x, prepacked, None, "none", [], "")
        if y.tolist() != [[2.0, 2.0, 2.0]]:
            raise RuntimeError(f"oneDNN computes {y.tolist()} instead of 2.0")
    except (AttributeError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        log.warning("weights are not prepacked with torch %s: %s", torch.__version__, reason)
        return False
    return True


class PrepackedLinear(InferenceModule):
    """Compute a linear layer from a weight that is stored in oneDNN's blocked layout.

    The output is ``torch.nn.functional.linear(x, weight, bias)``, up to rounding. oneDNN is the
    library behind many of torch's CPU kernels; it multiplies fastest if a float32 weight has been
    reordered into blocks beforehand, which is called prepacking. Products of a single row, and
    those with fewer than a million multiplications, are computed by ``F.linear`` instead, because
    calling oneDNN would cost more than it saves; it uses a copy of the weight that is contiguous
    along its longer dimension. For other dtypes and devices, and if this version of torch lacks the
    operators, ``F.linear`` is always used.

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

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        check(nn.Linear, linear=linear)
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        prepacked_weight: Tensor | None = None
        is_cpu_float32 = weight.device.type == "cpu" and weight.dtype == torch.float32
        if is_cpu_float32 and weight.numel() and _has_operators():
            prepacked_weight = prepack(weight)
        if self.out_features > self.in_features:
            weight = weight.t().clone(memory_format=torch.contiguous_format).t()
        else:
            weight = weight.clone(memory_format=torch.contiguous_format)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self.prepacked_weight = prepacked_weight  # not a buffer: torch cannot export its layout

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear layer to the last dimension.

        Args:
            x: Input vectors, of shape (..., in_features).

        Returns:
            Output vectors, of shape (..., out_features).

        Raises:
            TypeError: If ``x`` is not a tensor, or differs from the weight in dtype.
            ValueError: If the last dimension of ``x`` is not in_features.
            RuntimeError: If ``x`` requires a gradient, and gradients are recorded.
        """
        check_tensor("x", x)
        check_no_gradient(x)
        is_compiling = torch.compiler.is_compiling()  # the compiler prepacks weights by itself
        if (
            self.prepacked_weight is not None
            and not is_compiling
            and x.dtype == torch.float32
            and x.is_cpu
            and x.shape[-1:] == (self.in_features,)  # otherwise F.linear raises the error
            and not self._is_small(x)
            and not torch.is_autocast_enabled("cpu")
        ):
            linear = torch.ops.mkldnn._linear_pointwise
            return linear(x, self.prepacked_weight, self.bias, "none", [], "")
        # The compiler fuses a sum with what follows it; a product with a bias would be one call
        # that copies the bias into each row first.
        try:
            y = F.linear(x, self.weight, None if is_compiling else self.bias)
        except RuntimeError:
            INPUT("x", x, self, {})  # raises a clearer error
            check_match("x", x, self.weight, self)
            raise
        return y + self.bias if is_compiling and self.bias is not None else y

    def _is_small(self, x: Tensor) -> bool:
        """Return whether ``F.linear`` is faster, as measured with one thread and with two."""
        count = x.numel()  # rows times in_features
        return count <= self.in_features or count * self.out_features < SMALL_PRODUCT
