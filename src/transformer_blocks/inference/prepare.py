"""Packing itself: which parts of a model have a faster form, and their exchange."""

import copy
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import nn

from transformer_blocks._checks import check_factory, check_flag, check_module
from transformer_blocks.attention import fused_attention, scaled_dot_product_attention
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.inference.compiled import CompiledDecoder, CompiledEncoder
from transformer_blocks.inference.layers import (
    FusedQKVAttention,
    InferenceDecoderLayer,
    UnpaddedEncoder,
)
from transformer_blocks.inference.linear import PrepackedFeedForward, PrepackedLinear
from transformer_blocks.inference.module import InferenceModule, seal
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward

Model = TypeVar("Model", bound=nn.Module)
KERNELS = (fused_attention, scaled_dot_product_attention)
BY_POSITION = {
    *(FeedForward, GatedFeedForward, PreNorm, PostNorm, Dropout),
    *(nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity),
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh),
}
"""Modules that compute each position from that position alone."""


def prepare(
    model: Model,
    *,
    linear: Callable[[nn.Linear], nn.Module] = PrepackedLinear,
    compiled: bool = False,
) -> Model:
    """Copy a finished model into one that computes the same faster, without gradients.

    Linear maps are prepared, the self-attention of every layer makes its queries, keys and values in
    one product, ReLU belongs to the product before it, and dropout, which does nothing any more, is
    left out. The step of a decoder layer with the usual parts takes the shortest way; an encoder of
    usual layers computes nothing for padding, and gives zeros there. The copy is in evaluation mode
    and takes twice the memory. Keep the model: the copy cannot be trained, differentiated, moved,
    converted, given other weights, copied or pickled, and raises a ``RuntimeError`` if it is asked
    to. Do that with the model, and pack it again.

    Args:
        model: Any module; it is left as it is.
        linear: Called with each trained ``nn.Linear``; returns what replaces it. It needs an
            attribute ``in_features``, which inputs are checked against.
        compiled: Also compile the steps that encoders and decoders take with a cache, on a CPU. It
            needs a C++ compiler. The second step of a kind (of one row, of up to eight, of more;
            so many rows to a sentence; a mask of the memory or none) then takes half a minute, more
            for a deep model. Every later one, whatever its length, takes about a third of its time
            for one row, half for up to eight, and 0.7 to 0.8 for more; a server calls
            :func:`compile_steps` first, so that no request waits. What modules hold is taken
            to stay as it was. Their hooks are not called, but
            :func:`~transformer_blocks.record_attention` and its like see every step.

    Returns:
        The prepared copy.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the model is prepared already.

    Example:
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x = torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(prepare(encoder)(x), encoder(x), atol=1e-5)
        >>> same
        True
    """
    check_module(model=model)
    check_factory(linear=linear)
    check_flag(compiled=compiled)
    if any(isinstance(part, InferenceModule) for part in model.modules()):
        raise ValueError("model must be one that was trained, got a prepared one")
    # Parts that are made meanwhile start in training mode, as every module does.
    with torch.inference_mode(False):  # whose tensors could not be used outside of it
        prepared: Any = _exchange(copy.deepcopy(model).eval(), linear).eval()
    return seal(_compile_steps(prepared).eval() if compiled else prepared)


def _compile_steps(module: nn.Module) -> Any:
    """Give back a module whose stacks, or which itself if it is one, have compiled steps."""
    for name, part in list(module._modules.items()):
        if part is not None:
            setattr(module, name, _compile_steps(part))
    if _has_hooks(module):
        return module
    if type(module) in (Encoder, UnpaddedEncoder):
        return CompiledEncoder(cast(Encoder, module))
    return CompiledDecoder(module) if type(module) is Decoder else module


def _exchange(module: nn.Module, linear: Callable[[nn.Linear], nn.Module]) -> Any:
    """Give back the fast form of a module: another one, or itself with fast parts."""
    has_hooks = _has_hooks(module)
    if type(module) is nn.Linear and not has_hooks:
        return linear(module)
    if type(module) in (Dropout, nn.Dropout) and not has_hooks:
        return nn.Identity()
    watched = any(map(_has_hooks, module.modules()))  # before the parts are exchanged
    needs_no_padding = _needs_no_padding(module)
    if linear is PrepackedLinear and _bends_by_relu(module) and not watched:
        return PrepackedFeedForward(module)
    for name, part in list(module._modules.items()):
        if part is None:
            continue
        of_layer = isinstance(module, EncoderLayer | DecoderLayer) and name == "self_attention"
        if of_layer and _can_fuse_projections(part):
            setattr(module, name, FusedQKVAttention(part, linear=linear))
        else:
            setattr(module, name, _exchange(part, linear))
    if type(module) is DecoderLayer and _has_usual_parts(module) and not watched:
        return InferenceDecoderLayer(module)
    if type(module) is Encoder and needs_no_padding and not watched:
        return UnpaddedEncoder(module)
    return module


def _bends_by_relu(module: nn.Module) -> TypeGuard[FeedForward]:
    """Tell whether :class:`PrepackedFeedForward` can take the place of a module."""
    return (
        type(module) is FeedForward
        and module.activation in (F.relu, torch.relu)
        and type(module.up_projection) is type(module.down_projection) is nn.Linear
        and type(module.dropout) in (Dropout, nn.Dropout)
    )


def _has_usual_parts(layer: DecoderLayer) -> bool:
    """Tell whether the step of :class:`InferenceDecoderLayer` is the layer's own."""
    residuals = (
        layer.self_attention_residual,
        layer.cross_attention_residual,
        layer.feed_forward_residual,
    )
    kinds = {type(residual) for residual in residuals}
    return (
        type(layer.self_attention) is FusedQKVAttention
        and type(layer.cross_attention) is MultiHeadAttention
        and kinds in ({PreNorm}, {PostNorm})
        and all(isinstance(residual.dropout, nn.Identity) for residual in residuals)
    )


def _needs_no_padding(module: nn.Module) -> bool:
    """Tell whether a module is an encoder in which attention alone mixes positions."""
    if type(module) is not Encoder or not len(module.layers):
        return False
    parts: list[nn.Module] = [] if module.norm is None else [module.norm]
    for layer in module.layers:
        if type(layer) is not EncoderLayer:
            return False
        attention = layer.self_attention
        if type(attention) is not MultiHeadAttention or attention.attention_function not in KERNELS:
            return False
        parts += (part for part in layer.modules() if part not in (layer, attention))
    return all(map(_works_on_each_position, parts))


def _works_on_each_position(part: nn.Module) -> bool:
    """Tell whether a part of an encoder computes each position from that position alone."""
    if isinstance(part, nn.LayerNorm | nn.RMSNorm) and len(part.normalized_shape) > 1:
        return False
    return type(part) in BY_POSITION


def _has_hooks(module: nn.Module) -> bool:
    hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return any(getattr(module, name) for name in hooks)


def _can_fuse_projections(attention: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Tell whether one product can do the work of the three projections."""
    if type(attention) is not MultiHeadAttention or any(map(_has_hooks, attention.modules())):
        return False
    parts = attention.query_projection, attention.key_projection, attention.value_projection
    return (
        all(type(part) is nn.Linear for part in (*parts, attention.output_projection))
        and len({part.in_features for part in parts}) == 1
        and len({part.bias is None for part in parts}) == 1
    )
