"""Conversion of the Transformer modules of ``torch.nn`` to blocks of this package."""

import copy
from functools import cache, partial
from typing import Any, overload

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.interop.parts import check_class, convert, copy_linear
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm, Residual


@overload
def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention: ...
@overload
def from_torch(module: nn.TransformerEncoderLayer) -> EncoderLayer: ...
@overload
def from_torch(module: nn.TransformerDecoderLayer) -> DecoderLayer: ...
@overload
def from_torch(module: nn.TransformerEncoder) -> Encoder: ...
@overload
def from_torch(module: nn.TransformerDecoder) -> Decoder: ...
@overload
def from_torch(module: nn.Transformer) -> EncoderDecoder: ...
def from_torch(module: nn.Module) -> nn.Module:
    """Convert a Transformer module of torch to the block that computes the same.

    The weights are copied; a layer that occurs several times in a stack also does so in the
    converted stack. The block has the module's dtype, device, dropout and training mode. It is
    called like all blocks: masks are boolean and True hides, as in torch's modules (a key padding
    mask of shape (B, S) becomes ``mask[:, None, None]``), and a decoder is causal by default,
    whereas torch's needs a ``tgt_mask``.

    Args:
        module: An ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``,
            ``nn.TransformerDecoderLayer``, ``nn.TransformerEncoder``, ``nn.TransformerDecoder`` or
            ``nn.Transformer``, with ``batch_first=True``.

    Returns:
        A new block with copies of the weights.

    Raises:
        TypeError: If the module or a part of it is of another class, also of a subclass, which may
            compute something else.
        ValueError: If the module was built with an option that has no equivalent here, has hooks or
            methods that were replaced on the instance, or has parts that share weights, other than
            whole layers.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks.interop import from_torch
        >>> theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()
        >>> ours = from_torch(theirs)
        >>> x, padding = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]) > 0
        >>> y = ours(x, mask=padding[:, None, None])
        >>> torch.allclose(y, theirs(x, src_key_padding_mask=padding), atol=1e-5)
        True
    """
    return convert("module", module, _BUILDS)


def _attention(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    check_class("attention", theirs, nn.MultiheadAttention)
    check_class("out_proj", theirs.out_proj, nn.Linear, NonDynamicallyQuantizableLinear)
    if theirs.bias_k is not None:
        raise ValueError("add_bias_kv=True has no equivalent here")
    if theirs.add_zero_attn:
        raise ValueError("add_zero_attn=True has no equivalent here")
    if not theirs.batch_first:
        raise ValueError(
            "module must be built with batch_first=True, got batch_first=False; the weights are "
            "the same, so set batch_first = True in it and in each of its attentions, and pass "
            "(B, L, d_model)"
        )
    bias = theirs.in_proj_bias
    ours = MultiHeadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        key_width=theirs.kdim,
        value_width=theirs.vdim,
        dropout=theirs.dropout,
    )
    weights: Any = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    if theirs.in_proj_weight is not None:
        weights = theirs.in_proj_weight.chunk(3)
    biases = [None] * 3 if bias is None else bias.chunk(3)
    projections = ours.query_projection, ours.key_projection, ours.value_projection
    for projection, weight, projection_bias in zip(projections, weights, biases, strict=True):
        copy_linear(projection, weight, projection_bias)
    copy_linear(ours.output_projection, theirs.out_proj.weight, theirs.out_proj.bias)
    return ours


def _feed_forward(theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> FeedForward:
    up, down = theirs.linear1, theirs.linear2
    for name, part in (("linear1", up), ("linear2", down)):
        check_class(name, part, nn.Linear)
    check_class("dropout", theirs.dropout, nn.Dropout)
    ours = FeedForward(
        up.in_features,
        up.out_features,
        activation=copy.deepcopy(theirs.activation),
        dropout=theirs.dropout.p,
    )
    copy_linear(ours.up_projection, up.weight, up.bias)
    copy_linear(ours.down_projection, down.weight, down.bias)
    return ours


def _layer(theirs: Any, kind: Any) -> Any:
    """Build a layer; its norms and dropouts are numbered in the order of its parts."""
    parts: list[nn.Module] = [_attention(theirs.self_attn), _feed_forward(theirs)]
    if kind is DecoderLayer:
        parts.insert(1, _attention(theirs.multihead_attn))
    connect = PreNorm if theirs.norm_first else PostNorm
    residuals: list[Residual] = []
    for number in range(1, len(parts) + 1):
        dropout, norm = getattr(theirs, f"dropout{number}"), getattr(theirs, f"norm{number}")
        check_class(f"dropout{number}", dropout, nn.Dropout)
        width = theirs.linear1.in_features
        residuals.append(connect(width, dropout=dropout.p, norm=copy.deepcopy(norm)))
    return kind(*parts, residual=iter(residuals).__next__)


def _stack(theirs: Any, kind: type[Encoder] | type[Decoder]) -> Encoder | Decoder:
    layers = [*map(cache(from_torch), theirs.layers)]  # one that occurs twice is converted once
    return kind(layers, norm=copy.deepcopy(theirs.norm))


_BUILDS: dict[type[nn.Module], Any] = {
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: partial(_layer, kind=EncoderLayer),
    nn.TransformerDecoderLayer: partial(_layer, kind=DecoderLayer),
    nn.TransformerEncoder: partial(_stack, kind=Encoder),
    nn.TransformerDecoder: partial(_stack, kind=Decoder),
    nn.Transformer: lambda each: EncoderDecoder(from_torch(each.encoder), from_torch(each.decoder)),
}
