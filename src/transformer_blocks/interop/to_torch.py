"""Conversion of blocks of this package to the Transformer modules of ``torch.nn``."""

import copy
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.attention import scaled_dot_product_attention
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.interop.parts import (
    check_class,
    check_no_alterations,
    check_no_ties,
    convert_layers,
)
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm, Residual


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
    unless ``tgt_mask`` masks them, and the output of a query whose keys are all masked is NaN.

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
    build = _BUILDS.get(type(block))
    if build is None:
        known = ", ".join(each.__name__ for each in _BUILDS)
        raise TypeError(f"block must be one of {known}, got {type(block).__name__}")
    check_no_alterations(block)
    check_no_ties(block, EncoderLayer, DecoderLayer)
    module: nn.Module = build(block)
    if isinstance(block, Encoder | Decoder | EncoderDecoder):
        module.training = block.training  # and leave the modes of its layers, which may differ
        return module
    return module.train(block.training)


def _attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    check_class("attention", ours, MultiHeadAttention)
    if ours.attention_function not in (fused_attention, scaled_dot_product_attention):
        name = getattr(ours.attention_function, "__name__", type(ours.attention_function).__name__)
        raise TypeError(
            f"attention_function must be scaled dot-product attention, as in torch, got {name}"
        )
    if len(ours.transforms):
        names = ", ".join(type(each).__name__ for each in ours.transforms)
        raise TypeError(f"transforms must be empty, as torch's attention has none, got {names}")
    query, key, value = ours.query_projection, ours.key_projection, ours.value_projection
    if ours.num_heads * ours.d_k != query.in_features:
        raise ValueError(
            "d_k must be d_model / num_heads, as in torch, "
            f"got d_k={ours.d_k}, d_model={query.in_features} and num_heads={ours.num_heads}"
        )
    projections = query, key, value, ours.output_projection
    for projection in projections:
        check_class("projection", projection, nn.Linear)
    if len({projection.bias is None for projection in projections}) > 1:
        raise ValueError("all projections must have a bias, or none")
    theirs = nn.MultiheadAttention(
        query.in_features,
        ours.num_heads,
        dropout=ours.dropout,
        bias=query.bias is not None,
        kdim=key.in_features,
        vdim=value.in_features,
        batch_first=True,
    )
    if theirs.in_proj_weight is None:
        theirs.q_proj_weight = _parameter(query.weight)
        theirs.k_proj_weight = _parameter(key.weight)
        theirs.v_proj_weight = _parameter(value.weight)
    else:
        theirs.in_proj_weight = _parameter(query.weight, key.weight, value.weight)
    if query.bias is not None:
        theirs.in_proj_bias = _parameter(query.bias, key.bias, value.bias)
    _copy_weights(theirs.out_proj, ours.output_projection)
    return theirs


def _parameter(*parts: Tensor) -> nn.Parameter:
    """Concatenate copies of weights into one parameter."""
    if len({(part.dtype, part.device) for part in parts}) > 1:
        kinds = ", ".join(f"{part.dtype} on {part.device}" for part in parts)
        raise ValueError(
            f"weights that torch concatenates must have one dtype and device, got {kinds}"
        )
    flags = {part.requires_grad for part in parts}
    if len(flags) > 1:
        raise ValueError("weights that torch concatenates must all be frozen, or none")
    return nn.Parameter(torch.cat([part.detach() for part in parts]), requires_grad=True in flags)


def _copy_weights(theirs: nn.Linear, ours: nn.Linear) -> None:
    theirs.weight = _parameter(ours.weight)
    theirs.bias = None if ours.bias is None else _parameter(ours.bias)


def _layer(ours: EncoderLayer | DecoderLayer, kind: Any, residuals: list[Residual]) -> Any:
    """Build a layer of torch and copy all its weights except those of its cross-attention."""
    feed_forward: Any = ours.feed_forward
    check_class("feed_forward", feed_forward, FeedForward)
    for linear in (feed_forward.up_projection, feed_forward.down_projection):
        check_class("feed_forward's projection", linear, nn.Linear)
    kinds = {type(residual) for residual in residuals}
    if kinds not in ({PreNorm}, {PostNorm}):
        names = ", ".join(sorted(each.__name__ for each in kinds))
        raise TypeError(f"residuals must be all PreNorm or all PostNorm, got {names}")
    theirs = kind(
        feed_forward.up_projection.in_features,
        ours.self_attention.num_heads,
        feed_forward.up_projection.out_features,
        activation=copy.deepcopy(feed_forward.activation),
        batch_first=True,
        norm_first=kinds == {PreNorm},
    )
    _copy_weights(theirs.linear1, feed_forward.up_projection)
    _copy_weights(theirs.linear2, feed_forward.down_projection)
    theirs.dropout.p = feed_forward.dropout.p
    theirs.self_attn = _attention(ours.self_attention)
    for number, residual in enumerate(residuals, start=1):
        check_class("norm", residual.norm, nn.LayerNorm)
        check_class("dropout", residual.dropout, Dropout, nn.Dropout)
        setattr(theirs, f"norm{number}", copy.deepcopy(residual.norm))
        getattr(theirs, f"dropout{number}").p = residual.dropout.p
    parts: list[Any] = [feed_forward.up_projection, *(residual.norm for residual in residuals)]
    is_known = feed_forward.activation in (F.relu, F.gelu)
    if not is_known or any(part.bias is None for part in parts):
        theirs.activation_relu_or_gelu = 0  # disables torch's fast path, which lacks these
    return theirs


def _encoder_layer(ours: EncoderLayer) -> nn.TransformerEncoderLayer:
    residuals = [ours.self_attention_residual, ours.feed_forward_residual]
    theirs: nn.TransformerEncoderLayer = _layer(ours, nn.TransformerEncoderLayer, residuals)
    return theirs


def _decoder_layer(ours: DecoderLayer) -> nn.TransformerDecoderLayer:
    residuals = [
        ours.self_attention_residual,
        ours.cross_attention_residual,
        ours.feed_forward_residual,
    ]
    theirs: nn.TransformerDecoderLayer = _layer(ours, nn.TransformerDecoderLayer, residuals)
    theirs.multihead_attn = _attention(ours.cross_attention)
    return theirs


def _encoder(ours: Encoder) -> nn.TransformerEncoder:
    converted = _layers(ours)
    theirs = nn.TransformerEncoder(
        converted[0], 0, copy.deepcopy(ours.norm), enable_nested_tensor=False
    )
    theirs.layers, theirs.num_layers = nn.ModuleList(converted), len(converted)
    return theirs


def _decoder(ours: Decoder) -> nn.TransformerDecoder:
    converted = _layers(ours)
    theirs = nn.TransformerDecoder(converted[0], 0, copy.deepcopy(ours.norm))
    theirs.layers, theirs.num_layers = nn.ModuleList(converted), len(converted)
    return theirs


def _first_attention(stack: Any) -> nn.MultiheadAttention:
    attention: nn.MultiheadAttention = stack.layers[0].self_attn
    return attention


def _layers(stack: Encoder | Decoder) -> list[Any]:
    layers: list[Any] = list(stack.layers)
    if not layers:
        raise ValueError("a stack must have a layer, got none")
    return convert_layers(layers, to_torch)


def _transformer(ours: EncoderDecoder) -> nn.Transformer:
    encoder, decoder = to_torch(ours.encoder), to_torch(ours.decoder)
    attention, decoder_attention = (_first_attention(stack) for stack in (encoder, decoder))
    if attention.embed_dim != decoder_attention.embed_dim:
        raise ValueError(
            "encoder and decoder must have the same d_model, "
            f"got {attention.embed_dim} and {decoder_attention.embed_dim}"
        )
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
    EncoderLayer: _encoder_layer,
    DecoderLayer: _decoder_layer,
    Encoder: _encoder,
    Decoder: _decoder,
    EncoderDecoder: _transformer,
}
