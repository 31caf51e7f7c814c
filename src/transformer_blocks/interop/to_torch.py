"""Conversion of blocks of this package to the Transformer modules of ``torch.nn``."""

import copy
from functools import cache, partial
from typing import Any, overload

import torch.nn.functional as F
from torch import nn

from transformer_blocks.attention import scaled_dot_product_attention
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.interop.parts import check_class, concatenate, convert, copy_linear
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm


@overload
def to_torch(block: MultiHeadAttention) -> nn.MultiheadAttention: ...
@overload
def to_torch(block: EncoderLayer) -> nn.TransformerEncoderLayer: ...
@overload
def to_torch(block: DecoderLayer) -> nn.TransformerDecoderLayer: ...
@overload
def to_torch(block: Encoder) -> nn.TransformerEncoder: ...
@overload
def to_torch(block: Decoder) -> nn.TransformerDecoder: ...
@overload
def to_torch(block: EncoderDecoder) -> nn.Transformer: ...
def to_torch(block: nn.Module) -> nn.Module:
    """Convert a block to the Transformer module of torch that computes the same.

    The weights are copied; a layer that occurs several times in a stack also does so in the
    converted stack. The module has the block's dtype, device, dropout and training mode, and
    ``batch_first=True``. Two rules of torch's modules differ: a decoder attends to future positions
    unless ``tgt_mask`` masks them, and the output of a query whose keys are all masked is NaN in
    some of torch's paths, such as the fast path.

    Args:
        block: A :class:`~transformer_blocks.MultiHeadAttention`, an encoder, a decoder, a layer of
            either, or an :class:`~transformer_blocks.EncoderDecoder`, whose parts torch has too.

    Returns:
        A new module with copies of the weights.

    Raises:
        TypeError: If the block or a part of it is of a class that has no equivalent in torch.
        ValueError: If torch's module has no such option, or the block has hooks, methods that were
            replaced on the instance, or parts that share weights, other than whole layers.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> from transformer_blocks.interop import from_torch, to_torch
        >>> ours = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> theirs, x = to_torch(ours), torch.randn(2, 5, 16)
        >>> torch.allclose(ours(x), theirs(x), atol=1e-5)
        True
        >>> back = from_torch(theirs)
        >>> all(torch.equal(a, b) for a, b in zip(ours.parameters(), back.parameters()))
        True
    """
    return convert("block", block, _BUILDS)


def _attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    _check_attention(ours)
    query, key, value = ours.query_projection, ours.key_projection, ours.value_projection
    theirs = nn.MultiheadAttention(
        query.in_features,
        ours.num_heads,
        dropout=ours.dropout,
        bias=query.bias is not None,
        kdim=key.in_features,
        vdim=value.in_features,
        batch_first=True,
    )
    weights = query.weight, key.weight, value.weight
    if theirs.in_proj_weight is None:
        copies = map(concatenate, weights)
        theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight = copies
    else:
        theirs.in_proj_weight = concatenate(*weights)
    if query.bias is not None:
        theirs.in_proj_bias = concatenate(query.bias, key.bias, value.bias)
    copy_linear(theirs.out_proj, ours.output_projection.weight, ours.output_projection.bias)
    return theirs


def _check_attention(ours: MultiHeadAttention) -> None:
    """Raise unless torch's attention can compute what a layer does."""
    check_class("attention", ours, MultiHeadAttention)
    if ours.attention_function not in (fused_attention, scaled_dot_product_attention):
        rule = "attention_function must be scaled dot-product attention, as in torch"
        raise TypeError(f"{rule}, got {ours.attention_function!r}")
    if len(ours.transforms):
        names = ", ".join(type(each).__name__ for each in ours.transforms)
        raise TypeError(f"transforms must be empty, as torch's attention has none, got {names}")
    heads, groups, size = ours.num_heads, ours.num_key_value_heads, ours.d_k
    if (heads * size, groups) != (ours.d_model, heads):
        raise ValueError(
            "d_k must be d_model / num_heads, and num_key_value_heads be num_heads, as in torch, "
            f"got d_k={size}, d_model={ours.d_model}, num_heads={heads} and "
            f"num_key_value_heads={groups}"
        )
    projections = [each for name, each in ours.named_children() if name.endswith("projection")]
    for projection in projections:
        check_class("projection", projection, nn.Linear)
    if len({projection.bias is None for projection in projections}) > 1:
        raise ValueError("all projections must have a bias, or none")


def _layer(ours: EncoderLayer | DecoderLayer, kind: Any) -> Any:
    """Build a layer of torch and copy all weights; its norms and dropouts are numbered."""
    residuals = [ours.self_attention_residual, ours.feed_forward_residual]
    if isinstance(ours, DecoderLayer):
        residuals.insert(1, ours.cross_attention_residual)
    feed_forward: Any = ours.feed_forward
    check_class("feed_forward", feed_forward, FeedForward)
    up, down = feed_forward.up_projection, feed_forward.down_projection
    for linear in (up, down):
        check_class("feed_forward's projection", linear, nn.Linear)
    kinds = {type(residual) for residual in residuals}
    if kinds not in ({PreNorm}, {PostNorm}):
        names = ", ".join(sorted(each.__name__ for each in kinds))
        raise TypeError(f"residuals must be all PreNorm or all PostNorm, got {names}")
    theirs = kind(
        up.in_features,
        ours.self_attention.num_heads,
        up.out_features,
        activation=copy.deepcopy(feed_forward.activation),
        batch_first=True,
        norm_first=kinds == {PreNorm},
    )
    copy_linear(theirs.linear1, up.weight, up.bias)
    copy_linear(theirs.linear2, down.weight, down.bias)
    theirs.dropout.p = feed_forward.dropout.p
    theirs.self_attn = _attention(ours.self_attention)
    if isinstance(ours, DecoderLayer):
        theirs.multihead_attn = _attention(ours.cross_attention)
    for number, residual in enumerate(residuals, start=1):
        check_class("norm", residual.norm, nn.LayerNorm)
        check_class("dropout", residual.dropout, Dropout, nn.Dropout)
        setattr(theirs, f"norm{number}", copy.deepcopy(residual.norm))
        getattr(theirs, f"dropout{number}").p = residual.dropout.p
    biases = up.bias, *(residual.norm.bias for residual in residuals)
    if feed_forward.activation not in (F.relu, F.gelu) or any(bias is None for bias in biases):
        theirs.activation_relu_or_gelu = 0  # disables torch's fast path, which lacks these
    return theirs


def _stack(ours: Encoder | Decoder, kind: Any) -> Any:
    """Build a stack of torch, whose constructor would copy one layer several times."""
    layers = [*map(cache(to_torch), ours.layers)]  # one that occurs twice is converted once
    theirs = kind(layers[0], 0, copy.deepcopy(ours.norm))
    theirs.layers, theirs.num_layers = nn.ModuleList(layers), len(layers)
    return theirs


def _transformer(ours: EncoderDecoder) -> nn.Transformer:
    encoder, decoder = to_torch(ours.encoder), to_torch(ours.decoder)
    attention = encoder.layers[0].self_attn
    theirs = nn.Transformer(
        attention.embed_dim,
        attention.num_heads,
        custom_encoder=nn.Identity(),  # or the constructor would initialise new stacks
        custom_decoder=nn.Identity(),
        batch_first=True,
    )
    theirs.encoder, theirs.decoder = encoder, decoder
    return theirs


_BUILDS: dict[type[nn.Module], Any] = {
    MultiHeadAttention: _attention,
    EncoderLayer: partial(_layer, kind=nn.TransformerEncoderLayer),
    DecoderLayer: partial(_layer, kind=nn.TransformerDecoderLayer),
    Encoder: partial(_stack, kind=partial(nn.TransformerEncoder, enable_nested_tensor=False)),
    Decoder: partial(_stack, kind=nn.TransformerDecoder),
    EncoderDecoder: _transformer,
}
