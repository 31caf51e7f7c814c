"""Packed layers: attention in fewer products, a step written out, no work for padding."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_boolean, check_vectors
from transformer_blocks.cache import KeyValueCache, SelfAttentionCache, undo_on_error
from transformer_blocks.decoder import DecoderLayer
from transformer_blocks.encoder import Encoder
from transformer_blocks.inference.linear import PrepackedFeedForward, PrepackedLinear
from transformer_blocks.inference.module import InferenceModule
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PreNorm

MOST_REAL = 0.9  # with a larger part of real tokens than this, leaving out the rest gains nothing


class FusedQKVAttention(InferenceModule, MultiHeadAttention):
    """Self-attention that makes queries, keys and values in a single product.

    Args:
        attention: The layer to copy; queries, keys and values come in with one width.
        linear: Called with a trained ``nn.Linear``; returns what replaces it.
    """

    def __init__(
        self, attention: MultiHeadAttention, *, linear: Callable[[nn.Linear], Any]
    ) -> None:
        nn.Module.__init__(self)
        self.num_heads, self.d_k = attention.num_heads, attention.d_k
        self.dropout = attention.dropout
        self.attention_function = attention.attention_function
        self._weights_hooks = attention._weights_hooks
        # As trained: record_attention still asks for queries and keys one by one.
        self.query_projection = attention.query_projection
        self.key_projection = attention.key_projection
        self.value_projection = attention.value_projection
        self.fused_projection = linear(
            _join([self.query_projection, self.key_projection, self.value_projection])
        )
        self.output_projection = linear(attention.output_projection)

    def _project_all(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if not query is key is value:
            return super()._project_all(query, key, value)
        joined = self.fused_projection(query)  # (B, L, 3 * d_model)
        return joined.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind()


class InferenceDecoderLayer(InferenceModule, DecoderLayer):
    """A decoder layer whose step of one position is written out: small steps feel every detour.

    It saves a tenth of the time of a step for one sentence, less for many. All else goes through
    the parts as ever, and so does a step that :func:`~transformer_blocks.record_attention` watches.
    Hooks of the parts are not called in a step.

    Args:
        layer: The layer to replace, with a :class:`FusedQKVAttention` and other prepared parts.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        for name, part in layer._modules.items():
            self.add_module(name, part)
        attention: Any = layer.self_attention
        cross = layer.cross_attention
        self.norms_first = isinstance(layer.self_attention_residual, PreNorm)
        self.norms = (
            layer.self_attention_residual.norm.forward,
            layer.cross_attention_residual.norm.forward,
            layer.feed_forward_residual.norm.forward,
        )
        self.join, self.combine = (
            attention.fused_projection.forward,
            _adder(attention.output_projection),
        )
        self.ask, self.answer = cross.query_projection.forward, _adder(cross.output_projection)
        self.think = _adder(layer.feed_forward)

    @undo_on_error
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
        if cache is None or isinstance(memory, Tensor) or not is_step or self._is_watched():
            return super().forward(
                x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
            )
        first, second, third = self.norms
        if self.norms_first:
            x = self.combine(self._self_attend(first(x), cache, causal), x)
            x = self.answer(self._attend_to_memory(second(x), memory, memory_mask), x)
            return self.think(third(x), x)
        x = first(self.combine(self._self_attend(x, cache, causal), x))
        x = second(self.answer(self._attend_to_memory(x, memory, memory_mask), x))
        return third(self.think(x, x))

    def _is_watched(self) -> bool:
        attentions = self.self_attention, self.cross_attention
        return any(attention._forward_pre_hooks for attention in attentions)

    def _self_attend(self, x: Tensor, cache: KeyValueCache, causal: bool) -> Tensor:
        """Mix what the positions so far hand over. Shape (N, 1, d_model)."""
        heads, d_k = self.self_attention.num_heads, self.self_attention.d_k
        joined = self.join(x).view(x.shape[0], 3, heads, 1, d_k)
        queries, keys, values = joined.unbind(1)  # (N, H, 1, d_k)
        mixed = self.self_attention.attend(queries, *cache.append(keys, values), causal=causal)
        return mixed.reshape(x.shape)

    def _attend_to_memory(self, x: Tensor, memory: KeyValueCache, mask: Tensor | None) -> Tensor:
        """Mix what the source hands over, to the rows of a sentence at once. Same shape."""
        keys, values = memory.read()  # (B, H, S, d_k)
        heads, d_k = self.cross_attention.num_heads, self.cross_attention.d_k
        queries = self.ask(x).view(keys.shape[0], -1, heads, d_k)  # (B, N / B, H, d_k)
        mixed = self.cross_attention.attend(queries.transpose(1, 2), keys, values, mask=mask)
        return mixed.transpose(1, 2).reshape(x.shape)


class UnpaddedEncoder(InferenceModule, Encoder):
    """An encoder that computes nothing for padding.

    Only attention needs to know which token belongs to which sentence. All else works on each
    position alone, so the real tokens of a batch go through it in one row, and are laid out as
    sentences where they look at each other. Where the mask hides a position from all, the result
    is zero, and what stands there is not read, not even NaN. A mask that is not
    :func:`~transformer_blocks.padding_mask`'s, or hides little, and layers that
    :func:`~transformer_blocks.record_attention` watches, take the usual way. Hooks of the layers
    are not called.

    Args:
        encoder: The stack to replace, with prepared parts.
    """

    def __init__(self, encoder: Encoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = encoder.layers, encoder.norm

    def forward(  # noqa: D102
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        layers: Sequence[Any] = list(self.layers)
        check_vectors("x", x, layers[0].self_attention.query_projection.in_features)
        if mask is not None:
            check_boolean("mask", mask)
        watched = any(layer.self_attention._forward_pre_hooks for layer in layers)
        shape = x.shape[0], 1, 1, x.shape[1]
        if (
            mask is None
            or cache is not None
            or mask.shape != shape
            or mask.device != x.device
            or mask.is_meta
            or watched
            or torch.is_grad_enabled()
        ):
            return super().forward(x, mask=mask, causal=causal, cache=cache)
        padding = mask[:, 0, 0]  # (B, L)
        places = (padding == 0).flatten().nonzero()[:, 0]  # (T,): where the real tokens stand
        if len(places) > MOST_REAL * padding.numel() or not len(places):
            nothing_hidden = len(places) == padding.numel()  # then the mask only costs time
            return super().forward(x, mask=None if nothing_hidden else mask, causal=causal)
        lengths = padding.shape[1] - padding.sum(1)
        counted = torch.arange(int(lengths.max()), device=x.device)  # (L',)
        hidden = counted >= lengths[:, None]  # (B, L')
        is_real = counted < lengths[:, None]
        rows = (is_real.flatten().cumsum(0) - 1).view_as(is_real).clamp_min(0)  # among the T

        def look_around(attention: MultiHeadAttention, x: Tensor) -> Tensor:
            queries, keys, values = (  # (B, H, L', d_k)
                each[0].transpose(0, 1)[rows].transpose(1, 2)
                for each in attention._project_all(x, x, x)
            )
            mixed = attention.attend(
                queries, keys, values, mask=hidden[:, None, None], causal=causal
            )
            joined = mixed.transpose(1, 2)[is_real].flatten(1)  # (T, d_model)
            return attention.output_projection(joined[None])

        row = x.flatten(0, 1)[places][None]  # (1, T, d_model)
        for layer in layers:
            row = layer.self_attention_residual(row, partial(look_around, layer.self_attention))
            row = layer.feed_forward_residual(row, layer.feed_forward)
        row = row if self.norm is None else self.norm(row)
        return torch.zeros_like(x).flatten(0, 1).index_copy_(0, places, row[0]).view_as(x)


def _adder(part: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Make a function of input and residual that gives the residual plus the part's output."""
    if isinstance(part, PrepackedLinear | PrepackedFeedForward):
        return part.forward
    forward = part.forward
    return lambda x, added: added + forward(x)


@torch.no_grad()
def _join(parts: Sequence[nn.Linear]) -> nn.Linear:
    """Stack linear maps that read the same input into one that does the work of all."""
    weight = torch.cat([part.weight for part in parts])
    has_bias = parts[0].bias is not None
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=has_bias, device="meta")
    joined.weight = nn.Parameter(weight)
    if has_bias:
        joined.bias = nn.Parameter(torch.cat([part.bias for part in parts]))
    return joined
