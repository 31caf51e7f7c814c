"""Builders: whole stacks from a few sizes.

The classes of this package take finished parts, so that any part can be another. Most of the time
one wants the usual parts: here they are composed, with the base model of the paper for defaults
(table 3: 6 layers, d_model 512, 8 heads, d_ff 2048, dropout 0.1, post-norm). To change what no
argument names, copy the few lines of a builder and pass other parts.

Next chapter: :mod:`transformer_blocks.loss`, which training minimises.
"""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._checks import check_callable, check_dropout, check_factory, check_size
from transformer_blocks.attention import fused_attention
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.kernels import AttentionFunction
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, Residual


def build_encoder(
    *,
    num_layers: int = 6,
    d_model: int = 512,
    num_heads: int = 8,
    d_ff: int = 2048,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation: Callable[[Tensor], Tensor] = F.relu,
    residual: Callable[..., Residual] = PostNorm,
    attention_function: AttentionFunction = fused_attention,
) -> Encoder:
    """Build an encoder from its sizes.

    Args:
        num_layers: How many layers are stacked.
        d_model: Width of the stream.
        num_heads: H, how many ways each layer looks at once; divides d_model.
        d_ff: Inner width of the feed-forward networks.
        dropout: Of each sublayer's output (section 5.4).
        attention_dropout: Of the attention weights; not in the paper, and it costs the fused
            kernel its speed.
        activation: The bend of the feed-forward networks, a function or a stateless module.
        residual: :class:`PostNorm` or :class:`PreNorm`, or a function that makes one, called with
            ``d_model`` and ``dropout=``. A stack of the latter ends with one more norm of its kind.
        attention_function: What computes attention, in all layers; one that learns is shared by them.

    Returns:
        The composed stack.

    Raises:
        TypeError: If an argument is of the wrong kind: a class for a kernel, a name for a function.
        ValueError: If a size or probability is out of range, or num_heads does not divide d_model.

    Example:
        >>> encoder = build_encoder()  # the paper's
        >>> sum(weight.numel() for weight in encoder.parameters())
        18914304
    """
    check_size(num_layers=num_layers)
    check_dropout(dropout=dropout, attention_dropout=attention_dropout)
    check_callable(activation=activation, attention_function=attention_function)
    check_factory(residual=residual)
    new_residual = partial(residual, d_model, dropout=dropout)
    layers = [
        EncoderLayer(
            MultiHeadAttention(
                d_model, num_heads, dropout=attention_dropout, attention_function=attention_function
            ),
            FeedForward(d_model, d_ff, activation=activation),
            residual=new_residual,
        )
        for _ in range(num_layers)
    ]
    last = new_residual()
    return Encoder(layers, norm=last.norm if last.needs_final_norm else None)


def build_decoder(
    *,
    num_layers: int = 6,
    d_model: int = 512,
    num_heads: int = 8,
    d_ff: int = 2048,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation: Callable[[Tensor], Tensor] = F.relu,
    residual: Callable[..., Residual] = PostNorm,
    attention_function: AttentionFunction = fused_attention,
    cross_kernel: AttentionFunction = fused_attention,
) -> Decoder:
    """Build a decoder from its sizes; the arguments are those of :func:`build_encoder`.

    Two kernels differ: ``attention_function`` is that of self-attention, ``cross_kernel`` that of the look into
    the source, between whose positions and the target's there is no distance.

    Returns:
        The composed stack.

    Raises:
        TypeError: If an argument is of the wrong kind: a class for a kernel, a name for a function.
        ValueError: If a size or probability is out of range, or num_heads does not divide d_model.

    Example:
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> first, second = (layer.feed_forward.up_projection.weight for layer in decoder.layers)
        >>> torch.equal(first, second)  # every layer is made anew, none is a copy
        False
    """
    check_size(num_layers=num_layers)
    check_dropout(dropout=dropout, attention_dropout=attention_dropout)
    check_callable(
        activation=activation, attention_function=attention_function, cross_kernel=cross_kernel
    )
    check_factory(residual=residual)
    new_residual = partial(residual, d_model, dropout=dropout)
    layers = [
        DecoderLayer(
            MultiHeadAttention(
                d_model, num_heads, dropout=attention_dropout, attention_function=attention_function
            ),
            MultiHeadAttention(
                d_model, num_heads, dropout=attention_dropout, attention_function=cross_kernel
            ),
            FeedForward(d_model, d_ff, activation=activation),
            residual=new_residual,
        )
        for _ in range(num_layers)
    ]
    last = new_residual()
    return Decoder(layers, norm=last.norm if last.needs_final_norm else None)
