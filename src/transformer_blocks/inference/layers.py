"""Layers for inference: fused projections, and no computation for padding."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from transformer_blocks._contexts import eager_execution
from transformer_blocks._contracts import Mask, Vectors, checked, unchecked
from transformer_blocks.cache import SelfAttentionCache
from transformer_blocks.encoder import Encoder
from transformer_blocks.fast.intervals import packed_mask
from transformer_blocks.inference.module import InferenceModule
from transformer_blocks.multi_head import MultiHeadAttention

MAX_TOKEN_SHARE = 0.9
"""Share of tokens in a batch above which removing the padding costs more than it saves."""
MIN_SAVED_WORK = 8 * 10**6
"""Removed positions times d_model squared, below which removing the padding is slower."""

_encode = unchecked(Encoder.forward)  # with inputs that have been checked

Hidden = Annotated[Tensor, Vectors("B L d_model")]


class FusedQKVAttention(InferenceModule, MultiHeadAttention):
    """Multi-head self-attention that projects queries, keys and values in one matrix product.

    The output is that of the trained layer, up to rounding. Calls with different queries, keys and
    values use the three projections one by one.

    Args:
        attention: Trained layer to copy, a :class:`~transformer_blocks.MultiHeadAttention`, whose
            queries, keys and values have the same input size.
        linear: Function that receives a trained ``nn.Linear`` and returns the module that replaces
            it. It is called with the fused projection and with the output projection.
    """

    def __init__(
        self, attention: MultiHeadAttention, *, linear: Callable[[nn.Linear], Any]
    ) -> None:
        # The three projections remain: `attention_weights` projects queries and keys alone.
        vars(self).update(vars(attention), _modules={**attention._modules})
        groups = self.num_key_value_heads
        self.head_counts = [self.num_heads, groups, groups]  # of queries, keys and values
        self.fused_projection = linear(
            fuse_linear_layers([self.query_projection, self.key_projection, self.value_projection])
        )
        self.output_projection = linear(attention.output_projection)

    def project_heads(self, query: Tensor, key: Tensor, value: Tensor) -> Any:  # noqa: D102
        if not query is key is value:
            return super().project_heads(query, key, value)
        projected = self.split_heads(self.fused_projection(query))  # (B, H + 2 * G, L, d_k)
        return projected.split(self.head_counts, dim=1)


class UnpaddedEncoder(InferenceModule, Encoder):
    """An encoder that computes nothing for padding positions.

    In a standard layer, attention alone relates positions to each other; projections, feed-forward
    network and normalisation are position-wise. The tokens of a batch are therefore joined into one
    sequence, and :func:`~transformer_blocks.packed_mask` keeps them apart in attention.

    At every token the output is that of :class:`~transformer_blocks.Encoder`, up to rounding. At
    padding that is removed the output is zero, and the input is not read, so that even a NaN there
    has no effect. The plain computation is executed if the mask does not have the shape of a
    :func:`~transformer_blocks.padding_mask`, if removing what it masks would save little, if there
    is a cache, if gradients are recorded, or if :func:`~transformer_blocks.record_attention`
    records the layers.

    The matrix products of a layer save work in proportion to the removed positions and to the
    square of ``d_model``; joining the tokens, and attention among all of them, take longer. Padding
    is removed if it is at least a tenth of the positions, and if its positions times the square of
    ``d_model`` are at least 8 million: 500 positions at ``d_model`` 128, 31 at 512. This was
    measured on one thread of a CPU, at ``d_model`` 32 to 512 and with 80 to 3,840 positions.

    Args:
        encoder: Stack to replace, whose parts have been prepared.
    """

    def __init__(self, encoder: Encoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = encoder.layers, encoder.norm

    @checked
    def forward(  # noqa: D102
        self,
        x: Hidden,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        if mask is None or cache is not None or not self._supports(x, mask):
            return _encode(self, x, mask=mask, causal=causal, cache=cache)
        positions = (mask[:, 0, 0] == 0).nonzero(as_tuple=True)  # of the tokens: rows, columns
        count = len(positions[0])
        if count == mask.numel():  # such a mask only costs time
            return _encode(self, x, causal=causal)
        saved_work = (mask.numel() - count) * x.shape[-1] ** 2
        is_worth_it = count <= MAX_TOKEN_SHARE * mask.numel() and saved_work >= MIN_SAVED_WORK
        if not count or not is_worth_it:
            return _encode(self, x, mask=mask, causal=causal)
        tokens, rows = x[positions][None], positions[0][None]  # (1, T, d_model), (1, T)
        output = _encode(self, tokens, mask=packed_mask(rows), causal=causal)
        return torch.zeros_like(x).index_put_(positions, output[0])

    def _supports(self, x: Tensor, mask: Tensor) -> bool:
        """Return whether padding can be removed from this batch with this mask."""
        return (
            mask.shape == (x.shape[0], 1, 1, x.shape[1])
            and mask.device == x.device
            and not mask.is_meta
            and not eager_execution.holders
            and not torch.compiler.is_compiling()  # sizes would depend on the padding
            and not torch.is_grad_enabled()
        )


@torch.no_grad()
def fuse_linear_layers(layers: Sequence[nn.Linear]) -> nn.Linear:
    """Concatenate linear layers with the same input into one.

    Args:
        layers: Layers with the same input size, all with a bias or all without.

    Returns:
        A linear layer whose output is the concatenation of their outputs.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.inference.layers import fuse_linear_layers
        >>> layers, x = [nn.Linear(8, 4), nn.Linear(8, 6)], torch.randn(2, 8)
        >>> separate = torch.cat([layer(x) for layer in layers], dim=-1)
        >>> torch.allclose(fuse_linear_layers(layers)(x), separate, atol=1e-6)
        True
    """
    weight = torch.cat([layer.weight for layer in layers])
    has_bias = layers[0].bias is not None
    fused = nn.Linear(weight.shape[1], weight.shape[0], bias=has_bias, device="meta")
    fused.weight = nn.Parameter(weight)
    if has_bias:
        fused.bias = nn.Parameter(torch.cat([layer.bias for layer in layers]))
    return fused
