"""Layers for inference: fused projections, a short decoding step, no computation for padding."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks._contexts import eager_execution
from transformer_blocks._contracts import Input, Mask, checked
from transformer_blocks.cache import KeyValueCache, SelfAttentionCache
from transformer_blocks.decoder import DecoderLayer
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.linear import PrepackedFeedForward, PrepackedLinear
from transformer_blocks.inference.module import InferenceModule
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PreNorm

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


class InferenceDecoderLayer(InferenceModule, DecoderLayer):
    """A decoder layer whose decoding step calls its parts directly, without checks and hooks.

    A step of one position with caches computes what :class:`~transformer_blocks.DecoderLayer`
    computes, but calls the ``forward`` methods of its parts directly: their hooks are not called
    and their arguments are not checked again. This saves about a tenth of the time of a step for
    one sequence, and less for larger batches. Every other call, and every step within
    :func:`~transformer_blocks.record_attention`, executes ``DecoderLayer.forward``.

    Args:
        layer: Layer to replace, whose parts have been prepared; its self-attention is a
            :class:`FusedQKVAttention`, and its residual connections are all
            :class:`~transformer_blocks.PreNorm` or all :class:`~transformer_blocks.PostNorm`.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        for name, part in layer._modules.items():
            self.add_module(name, part)
        self_attention: Any = layer.self_attention
        cross_attention = layer.cross_attention
        self.is_pre_norm = isinstance(layer.self_attention_residual, PreNorm)
        self.self_attention_norm = layer.self_attention_residual.norm.forward
        self.cross_attention_norm = layer.cross_attention_residual.norm.forward
        self.feed_forward_norm = layer.feed_forward_residual.norm.forward
        self.fused_projection = self_attention.fused_projection.forward
        self.add_self_attention_output = _add_output_of(self_attention.output_projection)
        self.cross_query_projection = cross_attention.query_projection.forward
        self.add_cross_attention_output = _add_output_of(cross_attention.output_projection)
        self.add_feed_forward_output = _add_output_of(layer.feed_forward)

    def forward(  # noqa: D102
        self,
        x: Tensor,
        memory: Tensor | KeyValueCache,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        is_step = x.shape[1] == 1 and x.shape[0] > 0 and mask is None
        if cache is None or isinstance(memory, Tensor) or not is_step or eager_execution.holders:
            return super().forward(
                x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
            )
        if self.is_pre_norm:
            heads = self._self_attention_heads(self.self_attention_norm(x), cache, causal)
            x = self.add_self_attention_output(heads, x)
            heads = self._cross_attention_heads(self.cross_attention_norm(x), memory, memory_mask)
            x = self.add_cross_attention_output(heads, x)
            x = self.add_feed_forward_output(self.feed_forward_norm(x), x)
        else:
            heads = self._self_attention_heads(x, cache, causal)
            x = self.self_attention_norm(self.add_self_attention_output(heads, x))
            heads = self._cross_attention_heads(x, memory, memory_mask)
            x = self.cross_attention_norm(self.add_cross_attention_output(heads, x))
            x = self.feed_forward_norm(self.add_feed_forward_output(x, x))
        cache.advance(1)
        return x

    def _self_attention_heads(self, x: Tensor, cache: KeyValueCache, causal: bool) -> Tensor:
        """Compute the concatenated heads of the self-attention, of shape (N, 1, H * d_k)."""
        attention: Any = self.self_attention
        projected = self.fused_projection(x).view(x.shape[0], -1, 1, attention.d_k)
        queries, keys, values = projected.split(attention.head_counts, dim=1)
        queries = attention.transform_queries(queries, start=cache.length)
        keys, values = cache.write(attention.transform_keys(keys, start=cache.length), values)
        output = attention.attend(queries, keys, values, mask=None, causal=causal)  # (N, H, 1, d_k)
        return output.reshape(x.shape[0], 1, attention.num_heads * attention.d_k)

    def _cross_attention_heads(
        self, x: Tensor, memory: KeyValueCache, mask: Tensor | None
    ) -> Tensor:
        """Compute the concatenated heads of the cross-attention, of shape (N, 1, H * d_k).

        The N / B rows that share a memory are the queries of one attention: there is one copy of
        its keys and values.
        """
        keys, values = memory.read()  # (B, H, S, d_k)
        num_heads, d_k = self.cross_attention.num_heads, self.cross_attention.d_k
        queries = self.cross_query_projection(x).view(keys.shape[0], -1, num_heads, d_k)
        queries = queries.transpose(1, 2)  # (B, H, N / B, d_k)
        start = keys.shape[2] - queries.shape[2]
        queries = self.cross_attention.transform_queries(queries, start=start)
        output = self.cross_attention.attend(queries, keys, values, mask=mask, causal=False)
        return output.transpose(1, 2).reshape(x.shape[0], 1, num_heads * d_k)


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


def _add_output_of(part: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of an input and a residual that adds the part's output to the residual."""
    if isinstance(part, PrepackedLinear | PrepackedFeedForward):
        return part.forward
    forward = part.forward
    return lambda x, residual: residual + forward(x)


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
