"""Packing: a finished model, laid out for speed.

A step of decoding multiplies a few rows with all the weights of the model. Its time goes less into
arithmetic than into fetching weights, so it matters how they lie in memory: a processor with wide
registers wants them in blocks, not in rows. Training, which rewrites the weights at each update,
cannot afford to sort them; a finished model can, once.

:func:`pack` copies a model and exchanges parts for equal but faster ones, which is what modules are
for. It computes the same numbers, up to rounding.

Next chapter: :mod:`transformer_blocks.generation`, from scores for the next word to a sentence.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import check_width
from transformer_blocks.attention import fused_attention, scaled_dot_product_attention
from transformer_blocks.cache import EncoderCache, KeyValueCache
from transformer_blocks.decoder import DecoderLayer
from transformer_blocks.dropout import Dropout
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.feed_forward import FeedForward, GatedFeedForward
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm

Model = TypeVar("Model", bound=nn.Module)
BLOCK_ROWS = 64  # for how many rows of input oneDNN is asked to choose its blocks; any number works

MOST_REAL = 0.9  # with a larger part of real tokens than this, leaving out the rest gains nothing


class PackedLinear(nn.Module):
    """A linear map whose weights lie as the processor reads them.

    Float32 weights on a CPU are sorted into blocks by oneDNN, the library behind many of torch's
    own kernels. For a single row the call would cost more than it saves: one row is multiplied as
    usual, by weights that lie along their longer side. In other dtypes and on other devices it
    computes what ``nn.Linear`` does.

    Args:
        linear: The map to pack; it is copied, and left as it is.
        relu: Whether negative results become 0.

    Example:
        >>> linear, x = nn.Linear(16, 64), torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(PackedLinear(linear)(x), linear(x), atol=1e-5)
        >>> same
        True
    """

    def __init__(self, linear: nn.Linear, *, relu: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.relu = relu
        weight = linear.weight.detach()
        self.blocks = None
        in_float32 = weight.device.type == "cpu" and weight.dtype == torch.float32
        if in_float32 and torch.backends.mkldnn.is_available():
            self.blocks = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), BLOCK_ROWS)
        if self.out_features > self.in_features:
            self.weight = weight.t().clone(memory_format=torch.contiguous_format).t()
        else:
            self.weight = weight.clone(memory_format=torch.contiguous_format)
        self.bias = None if linear.bias is None else linear.bias.detach().clone()

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Map the last dimension, and add a residual while the result is still at hand.

        Args:
            x: Shape (..., in_features).
            added: What to add to the result, in its shape.

        Returns:
            Shape (..., out_features).
        """
        if (
            self.blocks is None
            or x.numel() <= self.in_features
            or x.dtype != torch.float32
            or torch.is_autocast_enabled("cpu")
            or x.shape[-1] != self.in_features  # which torch will tell
            or x.requires_grad  # which oneDNN's product would not serve
            or (added is not None and (added.requires_grad or self.relu))
        ):
            y = F.linear(x, self.weight, self.bias)
            y = y.relu() if self.relu else y
            return y if added is None else added + y
        if added is not None:
            sum_up = torch.ops.mkldnn._linear_pointwise.binary
            return sum_up(x, added, self.blocks, self.bias, "add")
        bend = "relu" if self.relu else "none"
        return torch.ops.mkldnn._linear_pointwise(x, self.blocks, self.bias, bend, [], "")


class PackedFeedForward(nn.Module):
    """A feed-forward network whose ReLU is part of the first product.

    Args:
        feed_forward: The network to pack; its activation is ReLU.
    """

    def __init__(self, feed_forward: FeedForward) -> None:
        super().__init__()
        self.widen = PackedLinear(feed_forward.widen, relu=True)
        self.narrow = PackedLinear(feed_forward.narrow)

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Apply both maps, (..., d_model) to the same, and add a residual of that shape."""
        hidden = self.widen(x)  # (..., d_ff)
        return self.narrow(hidden, added)


class JoinedAttention(MultiHeadAttention):
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
        self.kernel = attention.kernel
        # As trained: record_attention still asks for queries and keys one by one.
        self.query_projection = attention.query_projection
        self.key_projection = attention.key_projection
        self.value_projection = attention.value_projection
        self.joined_projection = linear(
            _join([self.query_projection, self.key_projection, self.value_projection])
        )
        self.output_projection = linear(attention.output_projection)

    def _project_all(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if not query is key is value:
            return super()._project_all(query, key, value)
        joined = self.joined_projection(query)  # (B, L, 3 * d_model)
        return joined.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind()


class PackedDecoderLayer(DecoderLayer):
    """A decoder layer whose step of one position is written out: small steps feel every detour.

    It saves a tenth of the time of a step for one sentence, less for many. All else goes through
    the parts as ever, and so does a step that :func:`~transformer_blocks.record_attention` watches.
    Hooks of the parts are not called in a step.

    Args:
        layer: The layer to replace, with a :class:`JoinedAttention` and other packed parts.
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
            attention.joined_projection.forward,
            _adder(attention.output_projection),
        )
        self.ask, self.answer = cross.query_projection.forward, _adder(cross.output_projection)
        self.think = _adder(layer.feed_forward)

    def forward(  # noqa: D102
        self,
        x: Tensor,
        memory: Tensor | KeyValueCache,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        past: KeyValueCache | None = None,
    ) -> Tensor:
        is_step = x.shape[1] == 1 and len(x) > 0 and mask is None
        if past is None or isinstance(memory, Tensor) or not is_step or self._is_watched():
            return super().forward(
                x, memory, mask=mask, memory_mask=memory_mask, causal=causal, past=past
            )
        first, second, third = self.norms
        if self.norms_first:
            x = self.combine(self._look_back(first(x), past, causal), x)
            x = self.answer(self._look_over(second(x), memory, memory_mask), x)
            return self.think(third(x), x)
        x = first(self.combine(self._look_back(x, past, causal), x))
        x = second(self.answer(self._look_over(x, memory, memory_mask), x))
        return third(self.think(x, x))

    def _is_watched(self) -> bool:
        attentions = self.self_attention, self.cross_attention
        return any(attention._forward_pre_hooks for attention in attentions)

    def _look_back(self, x: Tensor, past: KeyValueCache, causal: bool) -> Tensor:
        """Mix what the positions so far hand over. Shape (N, 1, d_model)."""
        joined = self.join(x).view(len(x), 3, self.self_attention.num_heads, 1, -1)
        queries, keys, values = joined.unbind(1)  # (N, H, 1, d_k)
        mixed = self.self_attention.mix(queries, *past.add(keys, values), causal=causal)
        return mixed.reshape(x.shape)

    def _look_over(self, x: Tensor, memory: KeyValueCache, mask: Tensor | None) -> Tensor:
        """Mix what the source hands over, to the rows of a sentence at once. Same shape."""
        keys, values = memory.read()  # (B, H, S, d_k)
        queries = self.ask(x).view(len(keys), -1, *keys.shape[1::2])  # (B, N / B, H, d_k)
        mixed = self.cross_attention.mix(queries.transpose(1, 2), keys, values, mask=mask)
        return mixed.transpose(1, 2).reshape(x.shape)


class PackedEncoder(Encoder):
    """An encoder that computes nothing for padding.

    Only attention needs to know which token belongs to which sentence. All else works on each
    position alone, so the real tokens of a batch go through it in one row, and are laid out as
    sentences where they look at each other. Where the mask hides a position from all, the result
    is zero. A mask that is not :func:`~transformer_blocks.padding_mask`'s, or hides little, and
    layers that :func:`~transformer_blocks.record_attention` watches, take the usual way. Hooks of
    the layers are not called.

    Args:
        encoder: The stack to replace, with packed parts.
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
        cache: EncoderCache | None = None,
    ) -> Tensor:
        layers: Sequence[Any] = list(self.layers)
        watched = any(layer.self_attention._forward_pre_hooks for layer in layers)
        shape = len(x), 1, 1, x.shape[1]
        if (
            mask is None
            or cache is not None
            or mask.shape != shape
            or mask.dtype != torch.bool
            or watched
            or torch.is_grad_enabled()
        ):
            return super().forward(x, mask=mask, causal=causal, cache=cache)
        check_width("x", x, layers[0].self_attention.query_projection.in_features)
        padding = mask[:, 0, 0]  # (B, L)
        places = (padding == 0).flatten().nonzero()[:, 0]  # (T,): where the real tokens stand
        if len(places) > MOST_REAL * padding.numel() or not len(places):
            return super().forward(x, mask=mask, causal=causal)
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
            mixed = attention.mix(queries, keys, values, mask=hidden[:, None, None], causal=causal)
            joined = mixed.transpose(1, 2)[is_real].flatten(1)  # (T, d_model)
            return attention.output_projection(joined[None])

        row = x.flatten(0, 1)[places][None]  # (1, T, d_model)
        for layer in layers:
            row = layer.self_attention_residual(row, partial(look_around, layer.self_attention))
            row = layer.feed_forward_residual(row, layer.feed_forward)
        row = row if self.norm is None else self.norm(row)
        return torch.zeros_like(x).flatten(0, 1).index_copy_(0, places, row[0]).view_as(x)


def pack(model: Model, *, linear: Callable[[nn.Linear], nn.Module] = PackedLinear) -> Model:
    """Copy a finished model into one that computes the same faster, without gradients.

    Linear maps are packed, the self-attention of every layer makes its queries, keys and values in
    one product, ReLU belongs to the product before it, and dropout, which does nothing any more, is
    left out. The step of a decoder layer with the usual parts takes the shortest way; an encoder of
    usual layers computes nothing for padding, and gives zeros there. The copy is in eval mode and
    takes twice the memory. It cannot be trained, moved, copied or saved: keep the model, and pack
    it again.

    Args:
        model: Any module; it is left as it is.
        linear: Called with each trained ``nn.Linear``; returns what replaces it. It needs an
            attribute ``in_features``, which inputs are checked against.

    Returns:
        The packed copy.

    Raises:
        ValueError: If the model is packed already.

    Example:
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x = torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(pack(encoder)(x), encoder(x), atol=1e-5)
        >>> same
        True
    """
    if any(isinstance(part, PackedLinear) for part in model.modules()):
        raise ValueError("model must be one that was trained, got a packed one")
    packed: Model = _exchange(copy.deepcopy(model).eval(), linear)
    return packed


def _exchange(module: nn.Module, linear: Callable[[nn.Linear], nn.Module]) -> Any:
    """Give back the fast form of a module: another one, or itself with fast parts."""
    has_hooks = _has_hooks(module)
    if type(module) is nn.Linear and not has_hooks:
        return linear(module)
    if type(module) in (Dropout, nn.Dropout) and not has_hooks:
        return nn.Identity()
    watched = any(map(_has_hooks, module.modules()))  # before the parts are exchanged
    if linear is PackedLinear and _bends_by_relu(module) and not watched:
        return PackedFeedForward(module)
    for name, part in list(module._modules.items()):
        if part is None:
            continue
        of_layer = isinstance(module, EncoderLayer | DecoderLayer) and name == "self_attention"
        if of_layer and _can_be_joined(part):
            setattr(module, name, JoinedAttention(part, linear=linear))
        else:
            setattr(module, name, _exchange(part, linear))
    if type(module) is DecoderLayer and _has_usual_parts(module) and not watched:
        return PackedDecoderLayer(module)
    usual = isinstance(module, Encoder) and all(map(_is_usual, module.layers))
    if type(module) is Encoder and len(module.layers) and usual and not watched:
        return PackedEncoder(module)
    return module


def _bends_by_relu(module: nn.Module) -> TypeGuard[FeedForward]:
    """Tell whether :class:`PackedFeedForward` can take the place of a module."""
    return (
        type(module) is FeedForward
        and module.activation in (F.relu, torch.relu)
        and type(module.widen) is type(module.narrow) is nn.Linear
        and type(module.dropout) in (Dropout, nn.Dropout)
    )


def _adder(part: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Make a function of input and residual that gives the residual plus the part's output."""
    if isinstance(part, PackedLinear | PackedFeedForward):
        return part.forward
    forward = part.forward
    return lambda x, added: added + forward(x)


def _has_usual_parts(layer: DecoderLayer) -> bool:
    """Tell whether the step of :class:`PackedDecoderLayer` is the layer's own."""
    residuals = (
        layer.self_attention_residual,
        layer.cross_attention_residual,
        layer.feed_forward_residual,
    )
    kinds = {type(residual) for residual in residuals}
    return (
        type(layer.self_attention) is JoinedAttention
        and type(layer.cross_attention) is MultiHeadAttention
        and kinds in ({PreNorm}, {PostNorm})
        and all(isinstance(residual.dropout, nn.Identity) for residual in residuals)
    )


def _is_usual(layer: nn.Module) -> bool:
    """Tell whether :class:`PackedEncoder` can do what the layer does."""
    if type(layer) is not EncoderLayer:
        return False
    attention, residuals = (
        layer.self_attention,
        (layer.self_attention_residual, layer.feed_forward_residual),
    )
    return (
        type(attention) in (JoinedAttention, MultiHeadAttention)
        and attention.kernel in (fused_attention, scaled_dot_product_attention)
        # Each of these works on every position alone.
        and type(layer.feed_forward) in (FeedForward, GatedFeedForward, PackedFeedForward)
        and all(type(residual) in (PreNorm, PostNorm) for residual in residuals)
        and all(type(residual.norm) in (nn.LayerNorm, nn.RMSNorm) for residual in residuals)
    )


def _has_hooks(module: nn.Module) -> bool:
    hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return any(getattr(module, name) for name in hooks)


def _can_be_joined(attention: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Tell whether one product can do the work of the three projections."""
    if type(attention) is not MultiHeadAttention or any(map(_has_hooks, attention.modules())):
        return False
    parts = attention.query_projection, attention.key_projection, attention.value_projection
    return (
        all(type(part) is nn.Linear for part in (*parts, attention.output_projection))
        and len({part.in_features for part in parts}) == 1
        and len({part.bias is None for part in parts}) == 1
    )


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
