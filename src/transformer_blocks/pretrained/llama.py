"""Llama: the parts of a language model since 2023, with sizes and published defaults."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import (
    Count,
    DropoutProbability,
    Factory,
    Function,
    PositiveNumber,
    Size,
    checked,
)
from transformer_blocks.builders import build_encoder
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.sliding_window import SlidingWindowAttention
from transformer_blocks.models import LanguageModel
from transformer_blocks.multi_head import MultiHeadAttention, QueryKeyTransform
from transformer_blocks.residual import PreNorm, Residual
from transformer_blocks.variants.alternate import alternate
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.query_key_norm import QueryKeyNorm
from transformer_blocks.variants.rotary import RotaryPositionalEncoding

INITIAL_STD = 0.02
BASE = 5 * 10.0**5  # of the rotary frequencies of Llama 3


@checked
def build_llama(
    vocabulary_size: Size,
    *,
    num_layers: Size = 16,
    d_model: Size = 2048,
    num_heads: Size = 32,
    num_key_value_heads: Size | None = None,
    d_k: Size | None = None,
    d_ff: Size | None = None,
    activation: Function[Callable[[Tensor], Tensor]] = F.silu,
    attention: Factory[Callable[[], MultiHeadAttention]] | None = None,
    feed_forward: Factory[Callable[[], nn.Module]] | None = None,
    rotary: Factory[Callable[[], RotaryPositionalEncoding]] | None = None,
    windows: Sequence[int | None] = (None,),
    window_rotary: Factory[Callable[[], RotaryPositionalEncoding]] | None = None,
    query_key_norm: bool = False,
    bias: bool = False,
    feed_forward_bias: bool = False,
    residual: Factory[Callable[..., Residual]] | None = None,
    eps: PositiveNumber = 1e-5,
    tied: bool = True,
    dropout: DropoutProbability = 0.0,
    padding_id: Count | None = None,
) -> LanguageModel:
    """Build a language model with the parts of Llama 3, or by options of its relatives.

    The parts are grouped-query attention with rotary positions, gated feed-forward networks, and
    RMSNorm before each sublayer, without biases. The default sizes are those of
    Llama 3.2 1B. Embeddings have a standard deviation of 0.02 at first, as in published models, so
    that the loss begins near ln V.

    Args:
        vocabulary_size: V, the number of token ids.
        num_layers: Number of layers.
        d_model: Size of the hidden vectors between the layers.
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads, which divides ``num_heads``; a quarter
            of it if not given, as in Llama 3.2 1B.
        d_k: Size of a head; ``d_model`` / ``num_heads`` if not given.
        d_ff: Inner size of the feed-forward networks; 4 * ``d_model`` if not given, as in Llama 3.2
            1B.
        activation: Activation function of their gates.
        attention: Function without arguments that returns the attention of a layer, for example a
            :class:`~transformer_blocks.LatentAttention`, in place of one of the other arguments.
        feed_forward: Function without arguments that returns the feed-forward network of a layer,
            for example a :class:`~transformer_blocks.MixtureOfExperts`, in place of one of
            ``d_ff``, ``activation`` and ``feed_forward_bias``.
        rotary: Function without arguments that returns the rotary positions of a layer; by default
            they rotate whole heads with the base 500,000.
        windows: Sliding window of each layer in turn, over and over again; None for a layer that
            attends to all earlier positions.
        window_rotary: The rotary positions of a layer with a window; ``rotary`` if not given.
        query_key_norm: Whether queries and keys are normalised before they are rotated (Qwen3).
        bias: Whether the projections of the attention have biases.
        feed_forward_bias: Whether the linear layers of the feed-forward networks have biases.
        residual: As in :func:`~transformer_blocks.build_encoder`; :class:`PreNorm` with RMSNorm if
            not given.
        eps: Constant that the normalisations add to the mean square.
        tied: Whether the output layer shares the weights of the token embedding.
        dropout: Dropout probability of the embeddings and of the sublayers, none by default.
        padding_id: As in :class:`~transformer_blocks.LanguageModel`.

    Returns:
        The model. Its ``generate``, ``loss`` and caches are those of every
        :class:`~transformer_blocks.LanguageModel`.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If sizes are not positive or do not fit, or ``windows`` is empty.

    Example:
        >>> import math
        >>> import torch
        >>> from transformer_blocks.pretrained import build_llama
        >>> model = build_llama(1000, num_layers=2, d_model=64, num_heads=8, num_key_value_heads=2)
        >>> loss = model.loss(torch.randint(1000, (2, 50)))
        >>> abs(loss.item() - math.log(1000)) < 0.2  # it begins without a preference
        True
    """
    if not windows:
        raise ValueError("windows must have at least one element, got none; (None,) has no window")
    if attention is None:
        norm = partial(nn.RMSNorm, eps=eps) if query_key_norm else None
        sizes: dict[str, Any] = {
            "num_key_value_heads": num_key_value_heads or max(1, num_heads // 4),
            "d_k": d_k,
            "bias": bias,
        }
        make = partial(rotary_attention, d_model, num_heads, norm=norm, **sizes)
        rotaries = {True: window_rotary or rotary, False: rotary}
        kinds = [partial(make, each, rotaries[each is not None]) for each in windows]
        attention = alternate(*kinds)
    if feed_forward is None:
        options: dict[str, Any] = {"activation": activation, "bias": feed_forward_bias}
        feed_forward = partial(GatedFeedForward, d_model, d_ff or 4 * d_model, **options)

    def normed(d_model: int, dropout: float) -> Residual:
        return PreNorm(d_model, dropout=dropout, norm=nn.RMSNorm(d_model, eps=eps))

    decoder = build_encoder(
        num_layers=num_layers,
        d_model=d_model,
        dropout=dropout,
        residual=residual or normed,
        attention=attention,
        feed_forward=feed_forward,
    )
    embedding = nn.Embedding(vocabulary_size, d_model)
    output = None if tied else nn.Linear(d_model, vocabulary_size, bias=False)
    for layer in (embedding, output):
        if layer is not None:
            nn.init.normal_(layer.weight, std=INITIAL_STD)
    return LanguageModel(embedding, decoder, dropout=dropout, output=output, padding_id=padding_id)


def rotary_attention(
    d_model: int,
    num_heads: int,
    window: int | None,
    rotary: Callable[[], RotaryPositionalEncoding] | None,
    *,
    num_key_value_heads: int,
    d_k: int | None,
    bias: bool,
    norm: Callable[[int], nn.Module] | None,
) -> MultiHeadAttention:
    """Make attention with rotary positions, and with a window and normalised queries if wanted."""
    if d_k is None and d_model % num_heads:
        rule = "d_model must be divisible by num_heads"
        raise ValueError(f"{rule}, got d_model={d_model} and num_heads={num_heads}")
    size = d_k or d_model // num_heads
    transforms: list[QueryKeyTransform] = [] if norm is None else [QueryKeyNorm(size, norm=norm)]
    transforms.append(rotary() if rotary else RotaryPositionalEncoding(size, base=BASE))
    function = fused_attention if window is None else SlidingWindowAttention(window)
    return MultiHeadAttention(
        d_model,
        num_heads,
        num_key_value_heads=num_key_value_heads,
        d_k=d_k,
        bias=bias,
        attention_function=function,
        transforms=transforms,
    )
