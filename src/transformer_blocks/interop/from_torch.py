"""Conversion of the Transformer modules of ``torch.nn``, alone or in a model, to blocks."""

import copy
import warnings
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeVar, overload

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from transformer_blocks._contracts import raise_type_error
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.interop.parts import check_class, check_untied, convert, copy_linear
from transformer_blocks.interop.torch_calls import TorchAttention, TorchDecoder, TorchEncoder
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm, Residual

Converted = TypeVar("Converted", bound=nn.Module)


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
@overload
def from_torch(module: Converted) -> Converted: ...
def from_torch(module: nn.Module) -> nn.Module:
    """Convert a Transformer module of torch to a block, or all those in a model.

    **A module of torch** becomes the block that computes the same. It is called like all blocks:
    masks are boolean and True hides, as in torch's modules (a key padding mask of shape (B, S)
    becomes ``mask[:, None, None]``), and a decoder is causal by default, whereas torch's needs a
    ``tgt_mask``.

    **Any other model** is copied, and each module of torch in it is replaced by a block that is
    called as before, with torch's arguments, also for a single sequence of shape (L, d_model). A
    script therefore needs one more line, ``model =
    from_torch(model)``, after it has loaded a checkpoint and before it makes the optimizer. An
    ``nn.Transformer`` in a model remains, and its encoder and decoder are replaced; so does a
    subclass of it, also alone. What cannot be
    converted, for example a subclass, is left as it is, and a warning names it with the reason.
    Code that reads parts of a replaced module, such as ``encoder.layers``, must be changed.

    The weights are copied; a layer that occurs several times in a stack also does so in the
    converted stack. The block has the module's dtype, device, dropout and training mode.

    Args:
        module: An ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``,
            ``nn.TransformerDecoderLayer``, ``nn.TransformerEncoder``, ``nn.TransformerDecoder`` or
            ``nn.Transformer``, with ``batch_first=True``; or a model that contains some of them,
            with sequences in either order.

    Returns:
        A new block with copies of the weights, or a copy of the model.

    Raises:
        TypeError: If the module or a part of it is of another class, also of a subclass, which may
            compute something else. In a model: if nothing can be converted.
        ValueError: If the module was built with an option that has no equivalent here, has hooks or
            methods that were replaced on the instance, or has parts that share weights, other than
            whole layers. In a model: if a weight is shared with a part that is converted.

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
        >>> class Model(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.encoder = theirs
        ...
        ...     def forward(self, x, padding):
        ...         return self.encoder(x, src_key_padding_mask=padding)
        >>> model = from_torch(Model())  # its call of the encoder needs no change
        >>> torch.allclose(model(x, padding), y, atol=1e-5)
        True
    """
    if not isinstance(module, nn.Module):
        hints = {type: "; pass an instance of the class"}
        hint = "; load it into a module of torch" if isinstance(module, Mapping) else ""
        raise_type_error("module", "a module", module, hints.get(type(module), hint))
    if isinstance(module, tuple(_CALLS)) or type(module) is nn.Transformer:
        block = _convert(module)
        if not _is_batch_first(module):
            raise ValueError(
                "module must be built with batch_first=True, got batch_first=False; to pass "
                "(B, L, d_model) from now on, set batch_first = True in it and in each attention"
            )
        return block
    return _convert_parts(module)


def _convert(module: nn.Module) -> Any:
    return convert("module", module, _BUILDS)


def _convert_parts(model: Converted) -> Converted:
    """Copy a model, with a block in the place of each part that can be converted."""
    copies: dict[int, Any] = {}  # of the converted parts, which deepcopy then does not copy itself
    left, inside = "", tuple[str, ...]()
    for path, part in model.named_modules():
        if not issubclass(type(part), tuple(_CALLS)) or path.startswith(inside):
            continue
        inside += (f"{path}.",)
        try:
            block = _convert(part)
            copies[id(part)] = _CALLS[type(part)](block, batch_first=_is_batch_first(part))
        except (TypeError, ValueError) as error:
            left += f"\n  {path}: {error}"
    if not copies:
        known, name = ", ".join(each.__name__ for each in _BUILDS), type(model).__name__
        raise TypeError(f"module must be or contain one of {known}, got {name}{left}")
    converted = copy.deepcopy(model, copies)
    check_untied(model, converted)
    if left:
        warnings.warn(f"from_torch leaves these parts as they are:{left}", stacklevel=3)
    return converted


def _is_batch_first(module: nn.Module) -> bool:
    orders = {part.batch_first for part in module.modules() if type(part) is nn.MultiheadAttention}
    if len(orders) > 1:
        raise ValueError("batch_first must be the same in all attentions, got True and False")
    return all(orders)


def _attention(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    check_class("attention", theirs, nn.MultiheadAttention)
    check_class("out_proj", theirs.out_proj, nn.Linear, NonDynamicallyQuantizableLinear)
    if theirs.bias_k is not None:
        raise ValueError("add_bias_kv=True has no equivalent here")
    if theirs.add_zero_attn:
        raise ValueError("add_zero_attn=True has no equivalent here")
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
    layers = [*map(cache(_convert), theirs.layers)]  # one that occurs twice is converted once
    return kind(layers, norm=copy.deepcopy(theirs.norm))


_BUILDS: dict[type[nn.Module], Any] = {
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: partial(_layer, kind=EncoderLayer),
    nn.TransformerDecoderLayer: partial(_layer, kind=DecoderLayer),
    nn.TransformerEncoder: partial(_stack, kind=Encoder),
    nn.TransformerDecoder: partial(_stack, kind=Decoder),
    nn.Transformer: lambda each: EncoderDecoder(_convert(each.encoder), _convert(each.decoder)),
}

_CALLS: dict[type[nn.Module], Any] = {
    nn.MultiheadAttention: TorchAttention,
    nn.TransformerEncoderLayer: TorchEncoder,
    nn.TransformerDecoderLayer: TorchDecoder,
    nn.TransformerEncoder: TorchEncoder,
    nn.TransformerDecoder: TorchDecoder,
}
"""What takes the place of each class in a model. An ``nn.Transformer`` only calls its two parts."""
