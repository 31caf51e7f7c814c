"""Packed maps: weights that lie as the processor reads them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import (
    check_flag,
    check_instance,
    check_match,
    check_tensor,
    check_vectors,
)
from transformer_blocks._contexts import SharedContext
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.inference.module import InferenceModule, without_gradients

SMALL_PRODUCT = 10**6  # rows times weights; a smaller product is done faster than oneDNN is called
BLOCK_ROWS = 64  # for how many rows of input oneDNN is asked to choose its blocks; any number works

_sorting = SharedContext()


def prepacking_when_compiled() -> SharedContext:
    """Let code that is compiled meanwhile sort the weights once, when it is made, and keep them.

    Other compiled code asks for the weights at each call, and multiplies as ``nn.Linear`` does.
    """
    return _sorting


def _sort(weight: Tensor) -> Tensor:
    """Sort a weight into oneDNN's blocks."""
    whole = weight.clone(memory_format=torch.contiguous_format)
    return torch.ops.mkldnn._reorder_linear_weight(whole, BLOCK_ROWS)


# An operator, so that a compiler need not look into it: to oneDNN's own it knows no shapes.
if not hasattr(torch.ops.transformer_blocks, "sort"):  # it outlives a module that is loaded anew
    torch.library.define("transformer_blocks::sort", "(Tensor weight) -> Tensor")
    torch.library.impl("transformer_blocks::sort", "cpu", _sort)
    torch.library.register_fake("transformer_blocks::sort", torch.empty_like)


class PrepackedLinear(InferenceModule):
    """A linear map whose weights lie as the processor reads them.

    Float32 weights on a CPU are sorted into blocks by oneDNN, the library behind many of torch's
    own kernels. For a product of fewer than a million multiplications the call would cost more than
    it saves, and so it would for a single row in a single thread: these are multiplied as usual, by
    weights that lie along their longer side. In other dtypes and on other devices it computes what
    ``nn.Linear`` does.

    Args:
        linear: The map to pack; it is copied, and left as it is.
        relu: Whether negative results become 0.

    Raises:
        TypeError: If ``linear`` is no ``nn.Linear``.

    Example:
        >>> linear, x = nn.Linear(16, 64), torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(PrepackedLinear(linear)(x), linear(x), atol=1e-5)
        >>> same
        True
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, *, relu: bool = False) -> None:
        check_instance(nn.Linear, linear=linear)
        check_flag(relu=relu)
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.relu = relu
        weight = linear.weight.detach()
        blocks: Tensor | None = None
        in_float32 = weight.device.type == "cpu" and weight.dtype == torch.float32
        if in_float32 and torch.backends.mkldnn.is_available():
            blocks = torch.ops.transformer_blocks.sort(weight)
        if self.out_features > self.in_features:
            weight = weight.t().clone(memory_format=torch.contiguous_format).t()
        else:
            weight = weight.clone(memory_format=torch.contiguous_format)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self.blocks = blocks  # no buffer: torch cannot export one that lies in blocks

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Map the last dimension, and add a residual while the result is still at hand.

        Args:
            x: Shape (..., in_features).
            added: What to add to the result, in its shape.

        Returns:
            Shape (..., out_features).

        Raises:
            TypeError: If ``x`` is no tensor, or differs from the weights in dtype.
            ValueError: If its last dimension is not in_features.
        """
        check_tensor("x", x)
        if added is not None:
            check_tensor("added", added)
            if added.shape != (*x.shape[:-1], self.out_features) or not added.is_floating_point():
                raise ValueError(
                    f"added must hold real numbers in the output's shape (..., "
                    f"{self.out_features}), got {added.dtype} and {tuple(added.shape)}"
                )
        return without_gradients(self._forward, x, added)

    def _forward(self, x: Tensor, added: Tensor | None) -> Tensor:
        compiling = torch.compiler.is_compiling()
        if (
            self.blocks is None
            or (not compiling and self._is_small(x))
            or x.dtype != torch.float32
            or not x.is_cpu
            or torch.is_autocast_enabled("cpu")
            or not x.shape
            or x.shape[-1] != self.in_features  # which torch will tell
            or (added is not None and self.relu)
            or (compiling and not _sorting.holders)
        ):
            try:
                y = F.linear(x, self.weight, self.bias)
            except RuntimeError:
                check_vectors("x", x, self.in_features, leading=None)  # and say what was wrong
                check_match("x", x, self.weight, self)
                raise
            y = y.relu() if self.relu else y
            return y if added is None else added + y
        if added is not None and not compiling:  # a compiler joins the sum with what follows
            sum_up = torch.ops.mkldnn._linear_pointwise.binary
            return sum_up(x, added, self.blocks, self.bias, "add")
        blocks = torch.ops.transformer_blocks.sort(self.weight) if compiling else self.blocks
        y = torch.ops.mkldnn._linear_pointwise(x, blocks, self.bias, "none", [], "")
        # Not oneDNN's own ReLU, nor one that a compiler replaces by it: they turn NaN into zero.
        y = y.clamp_min_(0.0) if self.relu else y
        return y if added is None else added + y

    def _is_small(self, x: Tensor) -> bool:
        """Tell whether oneDNN would need longer, as measured with one thread and with two."""
        count = x.numel()  # rows times in_features
        is_small = count * self.out_features < SMALL_PRODUCT
        return is_small or (count <= self.in_features and torch.get_num_threads() == 1)


class PrepackedFeedForward(InferenceModule):
    """A feed-forward network whose ReLU is part of the first product.

    Args:
        feed_forward: The network to pack; its activation is ReLU.
    """

    def __init__(self, feed_forward: FeedForward) -> None:
        super().__init__()
        self.up_projection = PrepackedLinear(feed_forward.up_projection, relu=True)
        self.down_projection = PrepackedLinear(feed_forward.down_projection)

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Apply both maps, (..., d_model) to the same, and add a residual of that shape."""
        hidden = self.up_projection(x)  # (..., d_ff)
        return self.down_projection(hidden, added)
