"""Builders: whole stacks built from a few sizes.

The classes of this package receive their parts as arguments, so that any part can be replaced. The
builders compose the parts of the paper. Their defaults are the sizes of the base model (table 3: 6
layers, d_model 512, 8 heads, d_ff 2048, dropout 0.1) and its order of normalisation (post-norm,
section 3.1). One default differs: the attention projections have biases, which the paper's have
not. Other parts are passed as factories, which are functions that return a new part for every
layer.

Next: :mod:`transformer_blocks.loss`, which training minimises.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Factory, Function, Size, checked
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, Residual

Stack = TypeVar("Stack", Encoder, Decoder)


@checked
def build_encoder(
    *,
    num_layers: Size = 6,
    d_model: Size = 512,
    num_heads: Size = 8,
    d_ff: Size = 2048,
    dropout: DropoutProbability = 0.1,
    attention_dropout: DropoutProbability = 0.0,
    activation: Function[Callable[[Tensor], Tensor]] = F.relu,
    residual: Factory[Callable[..., Residual]] = PostNorm,
    attention: Factory[Callable[[], MultiHeadAttention]] | None = None,
    feed_forward: Factory[Callable[[], nn.Module]] | None = None,
) -> Encoder:
    """Build an encoder from its sizes, or from factories of its parts.

    Args:
        num_layers: Number of layers in the stack.
        d_model: Size of the hidden vectors between the layers.
        num_heads: Number of attention heads H of each layer, which divides ``d_model``.
        d_ff: Inner size of the feed-forward networks.
        dropout: Dropout probability of the output of each sublayer (section 5.4).
        attention_dropout: Dropout probability of the attention weights. The paper has none, and
            with it the fused kernel loses its speed on a CPU.
        activation: Activation function of the feed-forward networks, a function or a module without
            parameters.
        residual: Class of the residual connections, :class:`PostNorm` or :class:`PreNorm`, or a
            function that returns one; it is called as ``residual(d_model, dropout=dropout)``. A
            stack with :class:`PreNorm` ends with one more normalisation layer of the same kind.
        attention: Function without arguments that returns the self-attention of one layer; it is
            called once per layer. By default, it builds a :class:`MultiHeadAttention` with
            ``num_heads`` and ``attention_dropout``, which a function of your own does not get.
        feed_forward: Function without arguments that returns the feed-forward network of one layer;
            it is called once per layer. By default, it builds a :class:`FeedForward` with ``d_ff``
            and ``activation``, which a function of your own does not get.

    Returns:
        The composed stack.

    Raises:
        TypeError: If an argument is of the wrong type, for example a module where a factory is
            needed.
        ValueError: If a size or probability is out of range, ``num_heads`` does not divide
            ``d_model``, or layers share parameters.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import (
        ...     build_encoder,
        ...     GatedFeedForward,
        ...     MultiHeadAttention,
        ...     PreNorm,
        ...     QueryKeyNorm,
        ...     RotaryPositionalEncoding,
        ... )
        >>> encoder = build_encoder(  # the encoder of the paper's base model
        ...     attention=lambda: MultiHeadAttention(512, 8, bias=False)
        ... )
        >>> sum(weight.numel() for weight in encoder.parameters())
        18902016
        >>> with_biases = build_encoder()  # 4 * 512 biases in the attention of each of 6 layers
        >>> sum(weight.numel() for weight in with_biases.parameters()) - 18902016
        12288
        >>> modern = build_encoder(  # the layers of current language models
        ...     num_layers=2,
        ...     d_model=64,
        ...     residual=lambda d_model, dropout: PreNorm(
        ...         d_model, dropout=dropout, norm=nn.RMSNorm(d_model)
        ...     ),
        ...     attention=lambda: MultiHeadAttention(
        ...         64,
        ...         8,
        ...         num_key_value_heads=2,
        ...         bias=False,
        ...         transforms=[QueryKeyNorm(8), RotaryPositionalEncoding(8)],
        ...     ),
        ...     feed_forward=lambda: GatedFeedForward(64, 170),
        ... )
        >>> modern(torch.randn(1, 5, 64), causal=True).shape
        torch.Size([1, 5, 64])
    """
    new_attention = partial(MultiHeadAttention, d_model, num_heads, dropout=attention_dropout)
    new_feed_forward = partial(FeedForward, d_model, d_ff, activation=activation)
    parts = attention or new_attention, feed_forward or new_feed_forward
    new_residual = partial(residual, d_model, dropout=dropout)
    return _compose(Encoder, EncoderLayer, num_layers, parts, new_residual)


@checked
def build_decoder(
    *,
    num_layers: Size = 6,
    d_model: Size = 512,
    num_heads: Size = 8,
    d_ff: Size = 2048,
    dropout: DropoutProbability = 0.1,
    attention_dropout: DropoutProbability = 0.0,
    activation: Function[Callable[[Tensor], Tensor]] = F.relu,
    residual: Factory[Callable[..., Residual]] = PostNorm,
    attention: Factory[Callable[[], MultiHeadAttention]] | None = None,
    cross_attention: Factory[Callable[[], MultiHeadAttention]] | None = None,
    feed_forward: Factory[Callable[[], nn.Module]] | None = None,
) -> Decoder:
    """Build a decoder from its sizes, or from factories of its parts.

    The arguments are those of :func:`build_encoder`, and ``cross_attention``, a function without
    arguments that returns the cross-attention of one layer. Transforms and attention functions that
    depend on the distance between positions, such as rotary positional encoding, ALiBi and
    relative position biases, belong to the self-attention only: between source and target
    positions, distance is not defined.

    Returns:
        The composed stack.

    Raises:
        TypeError: If an argument is of the wrong type, for example a module where a factory is
            needed.
        ValueError: If a size or probability is out of range, ``num_heads`` does not divide
            ``d_model``, layers share parameters, or the cross-attention uses positions.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_decoder
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> first, second = (layer.feed_forward.up_projection.weight for layer in decoder.layers)
        >>> torch.equal(first, second)  # each layer has its own initial weights
        False
    """
    new_attention = partial(MultiHeadAttention, d_model, num_heads, dropout=attention_dropout)
    new_feed_forward = partial(FeedForward, d_model, d_ff, activation=activation)
    attentions = attention or new_attention, cross_attention or new_attention
    parts = *attentions, feed_forward or new_feed_forward
    new_residual = partial(residual, d_model, dropout=dropout)
    return _compose(Decoder, DecoderLayer, num_layers, parts, new_residual)


def _compose(
    stack: Callable[..., Stack],
    layer: Callable[..., nn.Module],
    num_layers: int,
    parts: Sequence[Callable[[], nn.Module]],
    residual: Callable[[], Residual],
) -> Stack:
    """Compose a stack and its layers, with a final normalisation if it needs one.

    Args:
        stack: Class of the stack.
        layer: Class of the layers.
        num_layers: Number of layers.
        parts: Factories of the parts of a layer, in the order of its arguments.
        residual: Factory of residual connections.
    """
    layers = [layer(*(make() for make in parts), residual=residual) for _ in range(num_layers)]
    _check_nothing_is_shared(layers)
    last = residual()
    return stack(layers, norm=last.norm if last.needs_final_norm else None)


def _check_nothing_is_shared(layers: Sequence[nn.Module]) -> None:
    """Check that no part and no parameter occurs in two places."""
    owners: dict[int, str] = {}
    for number, layer in enumerate(layers):
        parts = [*layer.named_children(), *layer.named_parameters(remove_duplicate=False)]
        for name, part in parts:
            owner = owners.setdefault(id(part), place := f"layers[{number}].{name}")
            if owner != place:
                raise ValueError(
                    "factories must make a new module at each call, so that layers share no "
                    f"parameters, got {place} the same as {owner}"
                )
