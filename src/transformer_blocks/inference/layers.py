"""Layers for inference: fused projections, a short decoding step, no computation for padding."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks._contexts import eager_execution
from transformer_blocks._contracts import Input, Mask, checked
from transformer_blocks.cache import KeyValueCache, SelfAttentionCache
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.module import InferenceModule
from transformer_blocks.multi_head import MultiHeadAttention

MAX_TOKEN_SHARE = 0.9
"""Share of tokens in a batch above which removing the padding costs more than it saves."""

Hidden = Annotated[Tensor, Input("B L d_model", "layers.0.self_attention.query_projection")]


class FusedQKVAttention(InferenceModule, MultiHeadAttention):
    """Multi-head self-attention that projects queries, keys and values in one matrix product.

    The output is that of the trained layer, up to rounding. Calls with different queries, keys and
    values use the three projections one by one.

    Args:
        attention: Trained layer to copy, a :class:`~transformer_blocks.MultiHeadAttention` or a
            :class:`~transformer_blocks.GroupedQueryAttention`; its queries, keys and values have
            the same input size.
        linear: Function that receives a trained ``nn.Linear`` and returns the module that replaces
            it. It is called with the fused projection and with the output projection.
    """

    def __init__(
        self, attention: MultiHeadAttention, *, linear: Callable[[nn.Linear], Any]
    ) -> None:
        nn.Module.__init__(self)
        self.num_heads, self.d_k = attention.num_heads, attention.d_k
        self.dropout = attention.dropout
        self.attention_function = attention.attention_function
        self.transforms = attention.transforms
        # The trained projections remain: `attention_weights` projects queries and keys alone.
        self.query_projection = attention.query_projection
        self.key_projection = attention.key_projection
        self.value_projection = attention.value_projection
        groups = self.key_projection.out_features // self.d_k
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
    network and normalisation are position-wise. The tokens of a batch are therefore concatenated
    into one sequence without padding, and form a padded batch only within attention.

    At every token the output is that of :class:`~transformer_blocks.Encoder`, up to rounding. At
    padding positions the output is zero, and the input is not read, so that even a NaN there has no
    effect. The plain computation is executed if the mask does not have the shape of a
    :func:`~transformer_blocks.padding_mask`, if it masks few positions, if a cache holds positions
    already, if gradients are recorded, or if :func:`~transformer_blocks.record_attention` records
    the layers. Hooks of the layers are not called.

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
        layers: Sequence[Any] = list(self.layers)
        caches = [None] * len(layers) if cache is None else cache.layers_for(x, len(layers))
        if mask is None or not self._supports(x, mask) or (cache is not None and cache.length):
            return super().forward(x, mask=mask, causal=causal, cache=cache)
        padding = mask[:, 0, 0]  # (B, L)
        indices = (padding == 0).flatten().nonzero()[:, 0]  # (T,)
        if len(indices) > MAX_TOKEN_SHARE * padding.numel() or not len(indices):
            masks_nothing = len(indices) == padding.numel()  # such a mask only costs time
            mask = None if masks_nothing else mask
            return super().forward(x, mask=mask, causal=causal, cache=cache)
        tokens = locate_tokens(padding, indices)
        hidden = x.flatten(0, 1)[indices][None]  # (1, T, d_model)
        for layer, layer_cache in zip(layers, caches, strict=True):
            attention = layer.self_attention
            attend = partial(_attend_to_tokens, attention, tokens=tokens, causal=causal)
            if layer_cache is not None:
                places = {"indices": indices, "mask": mask}
                attend = partial(_prefill, attention, cache=layer_cache, causal=causal, **places)
            hidden = layer.self_attention_residual(hidden, attend)
            hidden = layer.feed_forward_residual(hidden, layer.feed_forward)
        hidden = hidden if self.norm is None else self.norm(hidden)
        output = torch.zeros_like(x).flatten(0, 1).index_copy_(0, indices, hidden[0]).view_as(x)
        if cache is not None:
            cache.advance(x.shape[1])
        return output

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


class TokenLayout(NamedTuple):
    """Where the tokens of a padded batch, numbered from 0 to T - 1, are in a shorter padded batch.

    In the shorter batch, of shape (B, L'), the tokens of each sequence come first, in their order;
    L' is the largest number of tokens in a sequence.

    Attributes:
        numbers: Number of the token at each position of the shorter batch, of shape (B, L'). At
            padding positions it is arbitrary.
        is_token: True at the tokens of the shorter batch, of shape (B, L').
        padding: True at the padding of the shorter batch, of shape (B, L').
    """

    numbers: Tensor
    is_token: Tensor
    padding: Tensor


def locate_tokens(padding: Tensor, indices: Tensor) -> TokenLayout:
    """Find the positions of the tokens in the shortest batch that holds them.

    Args:
        padding: True at the padding of the given batch, of shape (B, L).
        indices: Indices of its T tokens among all B * L positions, of shape (T,).

    Returns:
        The layout of the shorter batch.

    Example:
        >>> import torch
        >>> from transformer_blocks.inference.layers import locate_tokens
        >>> padding = torch.tensor([[True, True, False], [True, False, False]])
        >>> locate_tokens(padding, torch.tensor([2, 4, 5])).numbers
        tensor([[0, 0],
                [1, 2]])
    """
    lengths = padding.shape[1] - padding.sum(1)  # (B,)
    positions = torch.arange(int(lengths.max()), device=indices.device)  # (L',)
    is_token = positions < lengths[:, None]
    numbers = (is_token.flatten().cumsum(0) - 1).view_as(is_token).clamp_min(0)
    return TokenLayout(numbers, is_token, positions >= lengths[:, None])


def _attend_to_tokens(
    attention: MultiHeadAttention, x: Tensor, *, tokens: TokenLayout, causal: bool
) -> Tensor:
    """Apply self-attention to the concatenated tokens of a batch, of shape (1, T, d_model)."""
    projected: Any = attention.project_heads(x, x, x)
    queries, keys, values = (  # from (1, H, T, d_k) to (B, H, L', d_k)
        heads[0].transpose(0, 1)[tokens.numbers].transpose(1, 2) for heads in projected
    )
    output = attention.attend(
        queries, keys, values, mask=tokens.padding[:, None, None], causal=causal
    )
    concatenated = output.transpose(1, 2)[tokens.is_token].flatten(1)  # (T, d_model)
    return attention.output_projection(concatenated[None])


def _prefill(
    attention: MultiHeadAttention,
    x: Tensor,
    *,
    cache: KeyValueCache,
    indices: Tensor,
    mask: Tensor,
    causal: bool,
) -> Tensor:
    """Apply self-attention to concatenated tokens, and append their keys and values to a cache.

    The cache has a column for each position of the padded batch; its padding is zero and masked.
    """
    batch, length = mask.shape[0], mask.shape[3]

    def pad(heads: Tensor) -> Tensor:  # from (1, H, T, d_k) to (B, H, L, d_k)
        rows = heads.new_zeros(batch * length, heads.shape[1], heads.shape[3])
        rows.index_copy_(0, indices, heads[0].transpose(0, 1))
        return rows.unflatten(0, (batch, length)).transpose(1, 2)

    queries, keys, values = map(pad, attention.project_heads(x, x, x))
    queries = attention.transform_queries(queries, start=cache.length)
    keys = attention.transform_keys(keys, start=cache.length)
    keys, values = cache.append(keys, values)
    output = attention.attend(queries, keys, values, mask=mask, causal=causal)
    concatenated = output.transpose(1, 2).flatten(0, 1)[indices].flatten(1)  # (T, d_model)
    return attention.output_projection(concatenated[None])


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
