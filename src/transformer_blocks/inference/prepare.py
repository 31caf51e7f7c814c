"""Preparation of a model for inference: replace parts that have a faster equivalent."""

import copy
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._alteration import alteration
from transformer_blocks._contracts import Module, checked
from transformer_blocks.decoder import DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.inference.int8 import Int8Linear
from transformer_blocks.inference.layers import FusedQKVAttention, UnpaddedEncoder
from transformer_blocks.inference.linear import PrepackedLinear
from transformer_blocks.inference.module import InferenceModule, as_inference_module
from transformer_blocks.models import TiedLinear
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.lora import LoraLinear, merge_lora
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts
from transformer_blocks.variants.routing import SigmoidRouting
from transformer_blocks.variants.sandwich_norm import SandwichNorm

Trained = TypeVar("Trained", bound=nn.Module)

STANDARD_PARTS = {
    *(Encoder, EncoderLayer, MultiHeadAttention, nn.ModuleList),
    *(
        FeedForward,
        GatedFeedForward,
        MixtureOfExperts,
        SigmoidRouting,
        PreNorm,
        PostNorm,
        SandwichNorm,
        Dropout,
    ),
    *(nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity),
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh),
}
"""Parts of an encoder that relate no positions to each other, except for attention."""


@checked
def prepare(model: Module[Trained], *, int8: bool = False) -> Trained:
    """Copy a trained model into one that computes the same outputs faster, for inference only.

    In the copy, linear layers have prepacked weights; each self-attention projects queries, keys
    and values in one matrix product; dropout is removed, since it does nothing in evaluation mode;
    and an encoder of standard layers computes nothing for padding, where its output is then zero,
    in batches in which that saves time: if a tenth of the positions is padding, and the padding
    positions times the square of ``d_model`` are at least 8 million.
    :mod:`transformer_blocks.inference` describes each of them. It pays from about ``d_model`` 64
    on; an encoder of ``d_model`` 32 takes 1.0 to 1.1 times as long as before. LoRA layers are
    merged first, as :func:`~transformer_blocks.merge_lora` does.

    The copy is in evaluation mode and takes twice the memory of the model. It cannot be trained,
    moved, converted, given other weights, copied or pickled: each of these raises a
    ``RuntimeError``. Keep the trained model, apply the operation to it, and prepare it again.

    Args:
        model: Any trained module; it is not changed.
        int8: Whether linear layers multiply int8 integers, as :class:`Int8Linear` does, instead of
            float32 numbers. Outputs then differ by about a hundredth of their size. The model must
            have float32 weights on a CPU.

    Returns:
        The prepared copy.

    Raises:
        TypeError: If ``model`` is not a module, ``int8`` is not a boolean, or with ``int8`` a
            linear layer is not float32.
        ValueError: If the model, or a part of it, is prepared already, if with ``int8`` a linear
            layer is not on a CPU or has no input features, or if a LoRA layer has hooks or replaced
            methods.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> from transformer_blocks.inference import prepare
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x = torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     same = torch.allclose(prepare(encoder)(x), encoder(x), atol=1e-5)
        >>> same
        True
    """
    if any(isinstance(part, InferenceModule) for part in model.modules()):
        raise ValueError("model must not be prepared already, got a prepared one")
    # The second `eval` is for the new parts: every module is constructed in training mode.
    with torch.inference_mode(False):  # inference tensors could not be used outside that mode
        trained: nn.Module = copy.deepcopy(model).eval()
        if any(isinstance(part, LoraLinear) for part in trained.modules()):
            trained = merge_lora(trained)
        linear = Int8Linear if int8 else PrepackedLinear
        prepared: Any = _replace_parts(trained, linear).eval().requires_grad_(False)
    return as_inference_module(prepared)


def _replace_parts(module: Any, linear: Callable[[nn.Linear], nn.Module]) -> Any:
    """Return the faster equivalent of a module, or the module itself with faster parts."""
    if type(module) in (nn.Linear, TiedLinear) and not alteration(module):
        return linear(module)
    if type(module) in (Dropout, nn.Dropout) and not alteration(module):
        return nn.Identity()
    is_standard_encoder = _is_standard_encoder(module)  # before any part is replaced
    if type(module) is FeedForward and module.activation in (F.relu, torch.relu):
        module.activation = relu
    for name, part in list(module._modules.items()):
        if part is None or name in getattr(module, "read_parts", ()):
            continue  # a router whose rounding would choose other experts, or weights that are read
        is_layer = isinstance(module, EncoderLayer | DecoderLayer)
        if is_layer and name == "self_attention" and _can_fuse_projections(part):
            setattr(module, name, FusedQKVAttention(part, linear=linear))
        else:
            setattr(module, name, _replace_parts(part, linear))
    return UnpaddedEncoder(module) if is_standard_encoder else module


def relu(x: Tensor) -> Tensor:
    """Apply ReLU. Fused with a product by the compiler, torch's own would turn NaN into zero."""
    return x.clamp_min(0.0)


def _is_standard_encoder(module: nn.Module) -> bool:
    """Return whether nothing in an encoder but its attention relates positions to each other."""
    parts = [*module.modules()]
    return (
        type(module) is Encoder
        and [type(part) for part in parts].count(MultiHeadAttention) == len(module.layers) > 0
        and all(
            type(part) in STANDARD_PARTS
            and not alteration(part)
            and getattr(part, "attention_function", fused_attention) is fused_attention
            and len(getattr(part, "normalized_shape", ())) <= 1
            for part in parts
        )
    )


def _can_fuse_projections(attention: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Return whether one matrix product computes the same as the three input projections."""
    if type(attention) is not MultiHeadAttention or any(map(alteration, attention.modules())):
        return False
    parts = attention.query_projection, attention.key_projection, attention.value_projection
    return (
        all(type(part) is nn.Linear for part in (*parts, attention.output_projection))
        and len({part.in_features for part in parts}) == 1
        and len({part.bias is None for part in parts}) == 1
    )
