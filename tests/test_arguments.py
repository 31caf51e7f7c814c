"""Every argument of every public name is checked: our own code refuses invalid ones by name.

One table lists the arguments of all public names, each with a valid value and invalid ones. A new
name or argument that is not in the table fails the first test.
"""

import copy
import inspect
import math
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.public import PUBLIC
from torch import Tensor, nn

import transformer_blocks
from transformer_blocks import (
    AdditiveAttention,
    ALiBi,
    Decoder,
    DecoderCache,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    ExplicitAttention,
    FeedForward,
    GatedFeedForward,
    GroupedQueryAttention,
    KeyValueCache,
    LearnedPositionalEncoding,
    Llama3Scaling,
    LoraLinear,
    MultiHeadAttention,
    PositionInterpolation,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    QueryKeyTransform,
    RelativeBias,
    Residual,
    RotaryPositionalEncoding,
    SandwichNorm,
    SelfAttentionCache,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    SlidingWindowAttention,
    TokenEmbedding,
    add_lora,
    alibi_slopes,
    attention_weights,
    beam_search,
    build_decoder,
    build_encoder,
    causal_mask,
    document_mask,
    format_mask,
    fused_attention,
    greedy_search,
    linear_cross_entropy,
    load_lora,
    lora_weights,
    merge_lora,
    noam_rate,
    noam_schedule,
    packed_mask,
    padding_mask,
    sample,
    scaled_dot_product_attention,
    sinusoidal_table,
    sliding_window_mask,
)
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.generation import IncrementalDecoder, left_pad
from transformer_blocks.inference import Int8Linear, PrepackedLinear, compile_steps, prepare
from transformer_blocks.inspection import (
    assert_sound,
    check_equivalence,
    check_labels,
    check_loss,
    check_search,
    check_soundness,
    head_patterns,
)

HOME = Path(transformer_blocks.__file__).parent


class Argument(NamedTuple):
    """A valid value of an argument, and invalid values."""

    valid: Any
    invalid: tuple[Any, ...]

    def or_none(self) -> "Argument":
        """The same argument, where None is valid too, and the default."""
        return Argument(None, tuple(each for each in self.invalid if each is not None))


def vectors(
    *shape: int,
    any_rank: bool = False,
    width: bool = True,
    weights: bool = True,
    half: bool = True,
) -> Argument:
    """A tensor of float32.

    Args:
        shape: The valid shape.
        any_rank: Whether other numbers of leading dimensions are valid too.
        width: Whether another size of the last dimension is invalid.
        weights: Whether another dtype or device is invalid, as the block has weights or other
            inputs.
        half: Whether half precision is invalid; norms of torch accept it.
    """
    valid = torch.ones(shape)
    invalid = [valid.numpy(), valid.tolist(), None, "x", Tensor, 1.0, valid.long(), valid.bool()]
    invalid += [valid[0]] if not any_rank else []
    invalid += [valid[..., :-1]] if width else []
    invalid += [valid.double(), valid.to("meta")] if weights else []
    invalid += [valid.half()] if weights and half else []
    return Argument(valid, tuple(invalid))


def ids(*shape: int, dtype: torch.dtype = torch.int64) -> Argument:
    valid = torch.ones(shape, dtype=dtype)
    others = valid.numpy(), valid.tolist(), None, "x", 1, valid.float(), valid.bool(), valid[None]
    return Argument(valid, others)


def mask(*shape: int) -> Argument:
    valid = torch.zeros(shape, dtype=torch.bool)
    invalid = (
        valid.numpy(),
        valid.tolist(),
        "causal",
        True,
        valid.float(),
        valid.long(),
        valid[..., 1:],
    )
    return Argument(valid, (*invalid, valid[None], valid.to("meta")))


def size(valid: int) -> Argument:
    return Argument(valid, (0, -1, 2.0, str(valid), True, None, torch.ones(3), int))


def number(valid: float) -> Argument:
    others = str(valid), True, None, [valid], torch.tensor([valid]), float
    return Argument(valid, (*others, math.nan, math.inf, -math.inf))


def probability(valid: float) -> Argument:
    return Argument(valid, (*number(valid).invalid, -0.1, 1.5, float("nan")))


def made(valid: object, kind: type) -> Argument:
    """An instance of a class."""
    return Argument(valid, (kind, [valid], {}, "x", None, 1))


FLAG = Argument(False, ("no", 0, 1, None, np.True_, bool))
INTEGER = Argument(0, (1.5, "0", True, None, torch.ones(3), int))
IDENTITY = Argument(nn.Identity(), (nn.Identity, "relu", None, 1, torch.ones(3)))
FUNCTION = Argument(torch.relu, ("gelu", nn.GELU, None, 1, [torch.relu]))
ATTENTION_FUNCTION = Argument(fused_attention, ("fused", ALiBi, None, 1, torch.ones(3)))
TRANSFORM = QueryKeyTransform()
TRANSFORMS = Argument((), (TRANSFORM, [QueryKeyTransform], [torch.relu], None, "rotary", 1))
ANYTHING = Argument(None, ())  # checked by Python or torch, such as a device


class Call(NamedTuple):
    """A function and its arguments.

    Attributes:
        function: The function, called with keyword arguments.
        arguments: The arguments by name.
        aliases: Other names under which an argument may be refused.
    """

    function: Callable[..., Any]
    arguments: dict[str, Argument]
    aliases: dict[str, str] | None = None

    def run(self, **others: Any) -> Any:
        """Call it with valid values, except for some arguments."""
        given = {name: each.valid for name, each in self.arguments.items()} | others
        with torch.no_grad():
            return self.function(**given)


B, L, S, D, H = 2, 3, 4, 8, 2
X, MEMORY, HIDDEN = vectors(B, L, D), vectors(B, S, D), vectors(B, L, D, half=False)
QUERY, KEY = vectors(B, H, L, D // H), vectors(B, H, S, D // H)
SELF_MASK = mask(L, L).or_none()
SELF, CROSS = mask(L, L), mask(B, 1, 1, S)
# An attention function has no weights: another dtype of all its inputs is valid.
VALUE = vectors(B, H, S, D // H, width=False)  # of any size
HEADS = {"query": QUERY, "key": KEY, "value": VALUE}
PROJECTED = {  # not checked: a layer projects them from what it has checked
    "keys": Argument(KEY.valid, ()),
    "values": Argument(VALUE.valid, ()),
}
OPTIONS = {"mask": mask(L, S).or_none(), "causal": FLAG, "scale": number(1.0).or_none()}
ATTENTION_INPUTS = {**HEADS, **OPTIONS, "dropout": probability(0.0)}
WEIGHTS = {"query": QUERY, "key": KEY, **OPTIONS}
STACK = {
    "num_layers": size(1),
    "d_model": size(D),
    "num_heads": size(H),
    "d_ff": size(12),
    "dropout": probability(0.1),
    "attention_dropout": probability(0.0),
    "activation": FUNCTION,
    "residual": Argument(PreNorm, ("pre", PreNorm(D), nn.Identity(), None, 1)),
    "attention": Argument(
        None, (MultiHeadAttention(D, H), "attention", 1, dict, lambda: nn.Linear)
    ),
    "feed_forward": Argument(None, (nn.Identity(), "gated", 1, dict, lambda: None)),
}
SEARCH = {
    "start": ids(B),
    "end_id": Argument(0, (-1, 10, 10**9, 1.0, "0", True, [0, 10], [-1], [1.0], b"0")),
    "max_length": size(2),
}
CACHED_KEYS = torch.ones(B, H, S, D // H)
CACHED = vectors(B, H, S, D // H)
ROWS = Argument(torch.tensor([0]), ([0], None, "x", 1, torch.tensor([0.0]), torch.tensor([[0]])))


class Model:
    """A model with a vocabulary of ten tokens."""

    def step(self, tokens: Tensor) -> Tensor:
        return torch.zeros(len(tokens), 10)

    def reorder(self, rows: Tensor) -> None: ...


MODEL = made(Model(), Model)


class Uniform(ExplicitAttention):
    """An attention function with equal scores, which checks nothing itself."""

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        return torch.zeros(*query.shape[:3], key.shape[2])


def attention(attention_function: Any = fused_attention) -> MultiHeadAttention:
    return MultiHeadAttention(D, H, attention_function=attention_function)


def encoder(residual: Any = PostNorm) -> Encoder:
    return build_encoder(num_layers=1, d_model=D, num_heads=H, d_ff=12, residual=residual)


def decoder(residual: Any = PostNorm) -> Decoder:
    return build_decoder(num_layers=1, d_model=D, num_heads=H, d_ff=12, residual=residual)


def layer_of(stack: nn.Module) -> Any:
    return stack.get_submodule("layers.0")


def cache(*, filled: bool = True) -> KeyValueCache:
    made = KeyValueCache()
    if filled:
        made.append(CACHED_KEYS, CACHED_KEYS)
    return made


def reorder(rows: Tensor) -> None:
    for each in (cache(filled=False), cache()):
        each.reorder(rows)


def decoder_cache() -> DecoderCache:
    with torch.no_grad():
        return decoder().new_cache(MEMORY.valid)


def incremental_decoder() -> IncrementalDecoder:
    stack, embedding = encoder().eval(), TokenEmbedding(9, D)
    return IncrementalDecoder(
        stack,
        stack.new_cache(),
        embed=lambda tokens, offset: embedding(tokens),
        output=torch.relu,
    )


def prefilled_decoder() -> IncrementalDecoder:
    decoder = incremental_decoder()
    decoder.prefill(torch.ones(B, L, dtype=torch.int64))
    return decoder


def adapted() -> MultiHeadAttention:
    layer = attention()
    add_lora(layer, rank=2)
    return layer


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


CACHE = made(KeyValueCache(), KeyValueCache).or_none()
NORM = made(nn.LayerNorm(D), nn.LayerNorm).or_none()
ATTENTION = made(attention(), MultiHeadAttention)
ROW_OFFSETS = torch.zeros(B, dtype=torch.int64)
OFFSET = Argument(
    0,
    (
        *(*INTEGER.invalid, -1, ROW_OFFSETS.tolist(), ROW_OFFSETS.float(), ROW_OFFSETS.bool()),
        *(ROW_OFFSETS[1:], ROW_OFFSETS[None], ROW_OFFSETS.to("meta")),
    ),
)
GENERATOR = torch.Generator()
POSITIONS = {"x": X, "offset": OFFSET}
LAYER_ATTENTION = {
    "query": X,
    "key": MEMORY,
    "value": MEMORY,
    "mask": CROSS.or_none(),
    "causal": FLAG,
}
LAYER_WEIGHTS = {"query": X, "key": MEMORY, "mask": CROSS.or_none(), "causal": FLAG}
HEADS_OF_LAYER = {
    "d_model": size(D),
    "num_heads": size(H),
    "d_k": size(D).or_none(),
    "key_width": size(D).or_none(),
    "value_width": size(D).or_none(),
    "bias": FLAG,
    "dropout": probability(0.0),
    "attention_function": ATTENTION_FUNCTION,
    "transforms": TRANSFORMS,
}
FEED_FORWARD = {
    "d_model": size(D),
    "d_ff": size(12),
    "activation": FUNCTION,
    "dropout": probability(0.0),
    "bias": FLAG,
}
RESIDUAL_ARGUMENTS = {"d_model": size(D), "dropout": probability(0.1), "norm": NORM}
SUBLAYER = Argument(torch.tanh, ("tanh", nn.Tanh, None, 1, lambda x: x[:, :1], lambda x: [x]))
RESIDUAL = Argument(lambda: PreNorm(D), ("pre", PreNorm(D), None, 1, nn.Identity, dict))

TOLERANCE = Argument(None, ("0", True, [1.0], -1.0, float("nan"), float("inf")))
SOUNDNESS = {
    "model": Argument(nn.GRU(D, D, batch_first=True), ("gru", nn.GRU, None, 1)),
    "example": Argument(X.valid, (None, 1, "ids", {}, [], torch.tensor(1.0), torch.ones(0, 2))),
    "causal": Argument(None, ("no", 0, 1, np.True_, bool)),
    "padding_id": Argument(None, (1.5, "0", True, torch.ones(3), int)),
    "new_step_model": Argument(None, ("steps", 1, [print])),  # a class may be one
    "tolerance": TOLERANCE,
}

ALPHA = Argument(4, (*number(1.0).invalid, 0, -1.0, float("nan"), float("inf"))).or_none()
LORA = lora_weights(adapted())

CALLS: dict[str, Call] = {
    "TokenEmbedding": Call(TokenEmbedding, {"vocabulary_size": size(9), "d_model": size(D)}),
    "TokenEmbedding.forward": Call(
        lambda tokens: TokenEmbedding(9, D)(tokens),
        {"tokens": Argument(ids(B, L).valid, (*ids(B, L).invalid, ids(B, L).valid.to("meta")))},
    ),
    "SinusoidalPositionalEncoding": Call(
        SinusoidalPositionalEncoding, {"d_model": size(D), "max_length": size(9)}
    ),
    "SinusoidalPositionalEncoding.forward": Call(
        lambda x, **options: SinusoidalPositionalEncoding(D)(x, **options),
        {"x": vectors(B, L, D, weights=False), "offset": OFFSET},  # any dtype is valid
    ),
    "LearnedPositionalEncoding": Call(
        LearnedPositionalEncoding, {"d_model": size(D), "max_length": size(9)}
    ),
    "LearnedPositionalEncoding.forward": Call(
        lambda x, **options: LearnedPositionalEncoding(D, max_length=9)(x, **options), POSITIONS
    ),
    "sinusoidal_table": Call(sinusoidal_table, {"length": size(3), "d_model": size(D)}),
    "causal_mask": Call(
        causal_mask,
        {"query_length": size(L), "key_length": size(S).or_none(), "device": ANYTHING},
    ),
    "padding_mask": Call(padding_mask, {"tokens": ids(B, L), "padding_id": INTEGER}),
    "sliding_window_mask": Call(
        sliding_window_mask,
        {
            "query_length": size(L),
            "key_length": size(S).or_none(),
            "window": size(2),
            "device": ANYTHING,
        },
    ),
    "document_mask": Call(
        document_mask, {"documents": ids(B, L), "key_documents": ids(B, S).or_none()}
    ),
    "format_mask": Call(
        format_mask,
        {
            "mask": Argument(SELF.valid, ([[True]], None, "x", SELF.valid.long(), SELF.valid[0])),
            "queries": Argument(None, (["a"], [1, 2, 3], 3)),
            "keys": Argument(None, (["a"], [1, 2, 3], 3)),
        },
    ),
    "packed_mask": Call(packed_mask, {"documents": ids(B, L)}),
    "attention_weights": Call(attention_weights, WEIGHTS),
    "scaled_dot_product_attention": Call(scaled_dot_product_attention, ATTENTION_INPUTS),
    "fused_attention": Call(fused_attention, ATTENTION_INPUTS),
    "ExplicitAttention.forward": Call(lambda **given: Uniform()(**given), ATTENTION_INPUTS),
    "ExplicitAttention.attention_weights": Call(
        lambda **given: Uniform().attention_weights(**given), WEIGHTS
    ),
    "AdditiveAttention": Call(AdditiveAttention, {"d_k": size(D), "num_heads": size(H)}),
    "AdditiveAttention.attention_weights": Call(
        lambda **given: AdditiveAttention(D // H, H).attention_weights(**given), WEIGHTS
    ),
    "SingleHeadAttention": Call(
        SingleHeadAttention,
        {"d_model": size(D), "scale": number(1.0).or_none(), "bias": FLAG},
    ),
    "SingleHeadAttention.forward": Call(
        lambda **given: SingleHeadAttention(D)(**given), LAYER_ATTENTION
    ),
    "SingleHeadAttention.attention_weights": Call(
        lambda **given: SingleHeadAttention(D).attention_weights(**given), LAYER_WEIGHTS
    ),
    "MultiHeadAttention": Call(MultiHeadAttention, HEADS_OF_LAYER),
    "MultiHeadAttention.forward": Call(
        lambda **given: attention()(**given), {**LAYER_ATTENTION, "cache": CACHE}
    ),
    "MultiHeadAttention.attention_weights": Call(
        lambda **given: attention().attention_weights(**given), LAYER_WEIGHTS
    ),
    "MultiHeadAttention.project": Call(
        lambda **given: attention().project(**given), {"key": MEMORY, "value": MEMORY}
    ),
    "MultiHeadAttention.attend": Call(
        lambda queries, keys, values, **options: attention().attend(
            queries, keys, values, **options
        ),
        {
            "queries": Argument(QUERY.valid, ()),
            **PROJECTED,
            "mask": mask(L, S).or_none(),
            "causal": Argument(True, ()),
        },
    ),
    "Dropout": Call(Dropout, {"p": probability(0.1), "inplace": FLAG}),
    "Dropout.forward": Call(
        lambda input: Dropout(0.5)(input),
        {"input": vectors(B, L, D, any_rank=True, width=False, weights=False)},
    ),
    "apply_dropout": Call(
        apply_dropout,
        {
            "x": vectors(B, L, D, any_rank=True, width=False, weights=False),
            "p": probability(0.1),
        },
    ),
    "FeedForward": Call(FeedForward, FEED_FORWARD),
    "FeedForward.forward": Call(
        lambda x: FeedForward(D, 12)(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "GatedFeedForward": Call(GatedFeedForward, FEED_FORWARD),
    "GatedFeedForward.forward": Call(
        lambda x: GatedFeedForward(D, 12)(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "Residual": Call(Residual, RESIDUAL_ARGUMENTS),
    "SandwichNorm": Call(
        SandwichNorm,
        {**RESIDUAL_ARGUMENTS, "output_norm": RESIDUAL_ARGUMENTS["norm"]},
    ),
    "SandwichNorm.forward": Call(
        lambda x, sublayer: SandwichNorm(D)(x, sublayer), {"x": HIDDEN, "sublayer": SUBLAYER}
    ),
    "PostNorm": Call(PostNorm, RESIDUAL_ARGUMENTS),
    "PostNorm.forward": Call(
        lambda x, sublayer: PostNorm(D)(x, sublayer),
        {"x": HIDDEN, "sublayer": SUBLAYER},
    ),
    "PreNorm": Call(PreNorm, RESIDUAL_ARGUMENTS),
    "PreNorm.forward": Call(
        lambda x, sublayer: PreNorm(D)(x, sublayer), {"x": HIDDEN, "sublayer": SUBLAYER}
    ),
    "EncoderLayer": Call(
        EncoderLayer,
        {"self_attention": ATTENTION, "feed_forward": IDENTITY, "residual": RESIDUAL},
    ),
    "EncoderLayer.forward": Call(
        lambda **given: encoder().layers[0](**given),
        {"x": HIDDEN, "mask": SELF_MASK, "causal": FLAG, "cache": CACHE},
    ),
    "Encoder": Call(
        Encoder, {"layers": Argument([], (nn.Linear, [nn.Linear], "x", 1)), "norm": NORM}
    ),
    "Encoder.forward": Call(
        lambda **given: encoder()(**given),
        {
            "x": HIDDEN,
            "mask": SELF_MASK,
            "causal": FLAG,
            "cache": made(SelfAttentionCache(1), SelfAttentionCache).or_none(),
        },
    ),
    "Encoder.new_cache": Call(lambda: encoder().new_cache(), {}),
    "DecoderLayer": Call(
        DecoderLayer,
        {
            "self_attention": ATTENTION,
            "cross_attention": ATTENTION,
            "feed_forward": IDENTITY,
            "residual": RESIDUAL,
        },
    ),
    "DecoderLayer.forward": Call(
        lambda **given: decoder(PreNorm).layers[0](**given),
        {
            "x": HIDDEN,
            "memory": MEMORY,
            "mask": SELF_MASK,
            "memory_mask": CROSS.or_none(),
            "causal": FLAG,
            "cache": CACHE,
        },
    ),
    "DecoderLayer.project_memory": Call(
        lambda **given: layer_of(decoder(PreNorm)).project_memory(**given),
        {"memory": MEMORY, "memory_mask": CROSS.or_none()},
    ),
    "Decoder": Call(
        Decoder, {"layers": Argument([], (nn.Linear, [nn.Linear], "x", 1)), "norm": NORM}
    ),
    "Decoder.forward": Call(
        lambda **given: decoder(PreNorm)(**given),
        {
            "x": HIDDEN,
            "memory": MEMORY,
            "mask": SELF_MASK,
            "memory_mask": CROSS.or_none(),
            "causal": FLAG,
            "cache": made(decoder_cache(), DecoderCache).or_none(),
        },
    ),
    "Decoder.new_cache": Call(
        lambda **given: decoder().new_cache(**given),
        {"memory": MEMORY, "memory_mask": CROSS.or_none()},
    ),
    "EncoderDecoder": Call(
        EncoderDecoder, {"encoder": made(encoder(), Encoder), "decoder": made(decoder(), Decoder)}
    ),
    "EncoderDecoder.forward": Call(
        lambda **given: EncoderDecoder(encoder(), decoder(PreNorm))(**given),
        {
            "source": vectors(B, S, D, half=False),
            "target": HIDDEN,
            "source_mask": CROSS.or_none(),
            "target_mask": SELF_MASK,
            "memory_mask": CROSS.or_none(),
            "causal": FLAG,
        },
        {"source_mask": "memory_mask|mask", "target_mask": "mask"},
    ),
    "build_encoder": Call(build_encoder, STACK),
    "build_decoder": Call(build_decoder, {**STACK, "cross_attention": STACK["attention"]}),
    "linear_cross_entropy": Call(
        linear_cross_entropy,
        {
            "hidden": vectors(B, D),
            "weight": vectors(9, D),
            "target": ids(B),
            "ignore_index": INTEGER.or_none(),
            "label_smoothing": probability(0.1),
            "reduction": Argument("sum", ("none", "max", None, 1, True)),
        },
    ),
    "noam_rate": Call(noam_rate, {"step": size(1), "d_model": size(D), "warmup_steps": size(9)}),
    "noam_schedule": Call(
        noam_schedule,
        {
            "optimizer": made(optimizer(), torch.optim.SGD),
            "d_model": size(D),
            "warmup_steps": size(9),
        },
    ),
    "KeyValueCache": Call(KeyValueCache, {}),
    "KeyValueCache.append": Call(
        lambda **given: cache().append(**given), {"keys": CACHED, "values": CACHED}
    ),
    "KeyValueCache.read": Call(lambda: cache().read(), {}),
    "KeyValueCache.reserve": Call(
        lambda count, first: KeyValueCache().reserve(count, first=first),
        {
            "count": size(1),
            "first": Argument(
                torch.zeros(1, 2, 2, 4, 8),
                (torch.zeros(1, 2, 4, 8), [0.0]),
            ),
        },
    ),
    "KeyValueCache.crop": Call(
        lambda length: cache().crop(length), {"length": Argument(1, (-1, 1.0, "1", True, None))}
    ),
    "KeyValueCache.reorder": Call(reorder, {"rows": ROWS}),
    "SelfAttentionCache": Call(SelfAttentionCache, {"num_layers": size(1)}),
    "SelfAttentionCache.reorder": Call(
        lambda rows: SelfAttentionCache(1).reorder(rows), {"rows": ROWS}
    ),
    "DecoderCache": Call(
        DecoderCache,
        {
            "memory": Argument(
                [cache()], (cache(), [KeyValueCache], [CACHED_KEYS], CACHED_KEYS, None, "x", 1)
            ),
            "memory_mask": Argument(None, ([[True]], "x", True, torch.zeros(B, 1, 1, S))),
        },
    ),
    "DecoderCache.reorder": Call(lambda rows: decoder_cache().reorder(rows), {"rows": ROWS}),
    "RotaryPositionalEncoding": Call(
        RotaryPositionalEncoding,
        {
            "d_k": size(4),
            "base": number(100.0),
            "scaling": Argument(torch.sqrt, ("linear", 2.0, 1)).or_none(),
        },
    ),
    "PositionInterpolation": Call(PositionInterpolation, {"factor": number(2.0)}),
    "Llama3Scaling": Call(
        Llama3Scaling,
        {"factor": number(2.0), "length": size(10), "low": number(1.0), "high": number(4.0)},
    ),
    "RotaryPositionalEncoding.transform_queries": Call(
        lambda **given: RotaryPositionalEncoding(D // H).transform_queries(**given),
        {"queries": vectors(B, H, L, D // H, weights=False), "start": INTEGER},
    ),
    "RotaryPositionalEncoding.transform_keys": Call(
        lambda **given: RotaryPositionalEncoding(D // H).transform_keys(**given),
        {"keys": vectors(B, H, S, D // H, weights=False), "start": INTEGER},
    ),
    "ALiBi": Call(ALiBi, {"num_heads": size(H)}),
    "ALiBi.attention_weights": Call(lambda **given: ALiBi(H).attention_weights(**given), WEIGHTS),
    "SlidingWindowAttention": Call(SlidingWindowAttention, {"window": size(2)}),
    "SlidingWindowAttention.forward": Call(
        lambda **given: SlidingWindowAttention(2)(**given), ATTENTION_INPUTS
    ),
    "SlidingWindowAttention.attention_weights": Call(
        lambda **given: SlidingWindowAttention(2).attention_weights(**given), WEIGHTS
    ),
    "alibi_slopes": Call(alibi_slopes, {"num_heads": size(H)}),
    "RelativeBias": Call(
        RelativeBias,
        {
            "num_heads": size(H),
            "num_buckets": Argument(32, (*size(32).invalid, 2, 5)),
            "max_distance": Argument(128, (*size(128).invalid, 8)),
            "bidirectional": Argument(True, FLAG.invalid),
            "scale": number(1.0).or_none(),
        },
    ),
    "RelativeBias.buckets": Call(
        lambda **given: RelativeBias(H).buckets(**given),
        {
            "distance": Argument(
                torch.arange(-3, 4), ([0], 0, None, "x", torch.zeros(2), torch.ones(2).bool())
            )
        },
    ),
    "RelativeBias.attention_weights": Call(
        lambda **given: RelativeBias(H).attention_weights(**given), WEIGHTS
    ),
    "QueryKeyNorm": Call(
        QueryKeyNorm,
        {
            "d_k": size(4),
            "norm": Argument(nn.RMSNorm, ("rms", nn.RMSNorm(4), None, 1, lambda width: width)),
        },
    ),
    "QueryKeyNorm.transform_queries": Call(
        lambda **given: QueryKeyNorm(D // H).transform_queries(**given),
        {"queries": vectors(B, H, L, D // H, half=False), "start": INTEGER},
    ),
    "QueryKeyNorm.transform_keys": Call(
        lambda **given: QueryKeyNorm(D // H).transform_keys(**given),
        {"keys": vectors(B, H, S, D // H, half=False), "start": INTEGER},
    ),
    "GroupedQueryAttention": Call(
        GroupedQueryAttention, {**HEADS_OF_LAYER, "num_key_value_heads": size(1)}
    ),
    "GroupedQueryAttention.forward": Call(
        lambda **given: GroupedQueryAttention(D, H, 1)(**given), {**LAYER_ATTENTION, "cache": CACHE}
    ),
    "LoraLinear": Call(
        lambda linear, **options: LoraLinear(copy.deepcopy(linear), **options),
        {
            "linear": made(nn.Linear(D, 4), nn.Linear),
            "rank": Argument(2, (*size(2).invalid, 5)),
            "alpha": ALPHA,
        },
    ),
    "LoraLinear.forward": Call(
        lambda x: LoraLinear(nn.Linear(D, D), rank=2)(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "LoraLinear.merged": Call(lambda: LoraLinear(nn.Linear(D, D), rank=2).merged(), {}),
    "add_lora": Call(
        lambda model, **options: add_lora(copy.deepcopy(model), **options),
        {
            "model": Argument(attention(), (MultiHeadAttention, "x", None, 1, adapted())),
            "rank": Argument(2, (*size(2).invalid, D + 1)),
            "alpha": ALPHA,
            "modules": Argument(
                ["query_projection"],
                ("query_projection", None, 1, [], ["x"], [1], ["transforms"], [""], nn.Linear),
            ),
        },
    ),
    "merge_lora": Call(
        lambda model: merge_lora(copy.deepcopy(model)),
        {"model": Argument(adapted(), (MultiHeadAttention, "x", None, 1, attention()))},
    ),
    "lora_weights": Call(
        lora_weights,
        {"model": Argument(adapted(), (MultiHeadAttention, "x", None, 1, attention()))},
    ),
    "load_lora": Call(
        lambda model, weights: load_lora(copy.deepcopy(model), weights),
        {
            "model": Argument(attention(), (MultiHeadAttention, "x", None, 1, adapted())),
            "weights": Argument(
                LORA,
                (
                    *(None, 1, "x", [LORA], list(LORA.items()), {}, {1: torch.ones(2)}),
                    *({name: each.tolist() for name, each in LORA.items()}, dict),
                    *({name: each.double() for name, each in LORA.items()},),
                ),
            ),
        },
    ),
    "PrepackedLinear": Call(
        PrepackedLinear, {"linear": made(nn.Linear(D, 12), nn.Linear), "relu": FLAG}
    ),
    "PrepackedLinear.forward": Call(
        lambda x, residual: PrepackedLinear(nn.Linear(D, D))(x, residual),
        {
            "x": vectors(B, L, D, any_rank=True),
            "residual": Argument(None, (X.valid.tolist(), "x", X.valid.numpy())),
        },
    ),
    "prepare": Call(
        prepare,
        {
            "model": made(nn.Linear(D, D), nn.Linear),
            "linear": Argument(PrepackedLinear, ("prepared", None, 1)),
            "compiled": FLAG,
            "int8": FLAG,
            "programs": Argument(None, (1, b"folder", ["folder"], Path)),
        },
    ),
    "Int8Linear": Call(Int8Linear, {"linear": made(nn.Linear(D, 12), nn.Linear)}),
    "Int8Linear.forward": Call(
        lambda x: Int8Linear(nn.Linear(D, D))(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "IncrementalDecoder": Call(
        IncrementalDecoder,
        {
            "stack": made(encoder().eval(), Encoder),
            "cache": Argument(
                SelfAttentionCache(1), (SelfAttentionCache, decoder_cache(), cache(), None, "x", 1)
            ),
            "embed": Argument(torch.add, ("embed", None, 1, nn.Embedding)),
            "output": FUNCTION,
        },
    ),
    "IncrementalDecoder.prefill": Call(
        lambda **given: incremental_decoder().prefill(**given),
        {
            "tokens": ids(B, L),
            "lengths": Argument(
                [L] * B,
                (
                    *([0, -1], [L + 1, L], [1.0, L], ["1", L], [True, L], [None, L], [[1], L]),
                    *([L], [L] * (B + 1), [], (), L, "11", {0: 1, 1: 1}, int),
                    *(torch.ones(B), torch.ones(B) > 0, torch.tensor([[L] * B]), torch.tensor(L)),
                    *(torch.tensor([L] * (B + 1)), torch.tensor([L + 1, 0])),
                ),
            ).or_none(),
        },
    ),
    "IncrementalDecoder.replace": Call(
        lambda **given: prefilled_decoder().replace(**given),
        {
            "rows": ROWS,
            "tokens": Argument(torch.ones(1, 2, dtype=torch.int64), ids(1, L + 1).invalid),
        },
    ),
    "left_pad": Call(
        left_pad,
        {
            "prompts": Argument(
                [[1, 2], [], (3,)],
                (None, 1, "ab", ["ab"], [1, 2], [[1.0]], [[True]], [[None]], [None], {0: [1]}, int),
            )
        },
    ),
    "greedy_search": Call(greedy_search, {"model": MODEL, **SEARCH}),
    "sample": Call(
        sample,
        {
            "model": MODEL,
            **SEARCH,
            "temperature": Argument(1.0, (*number(1.0).invalid, 0.0)),
            "top_k": size(2).or_none(),
            "top_p": Argument(None, (*number(1.0).or_none().invalid, 0.0, 1.5)),
            "generator": Argument(
                [torch.Generator() for _ in range(B)],
                (torch.Generator, {}, "x", 1, [], [torch.Generator()], [1] * B, [GENERATOR] * B),
            ),
        },
    ),
    "beam_search": Call(
        beam_search,
        {
            "model": MODEL,
            **SEARCH,
            "beam_size": size(2),
            "n_best": size(1),
            "length_penalty": Argument(0.6, (*number(0.6).invalid, -0.1, 10.5, [0.6], nn.GELU)),
            "lookahead": Argument(None, (-1, 1.0, "never", True)),
        },
    ),
    "check_soundness": Call(check_soundness, SOUNDNESS),
    "assert_sound": Call(assert_sound, SOUNDNESS),
    "check_labels": Call(
        check_labels,
        {
            "step": Argument(
                lambda tokens: (torch.eye(9)[tokens], tokens.flip(1)),
                ("shift", nn.Module, None, 1, lambda tokens: tokens, lambda tokens: (tokens, 1)),
            ),
            "tokens": Argument(
                torch.tensor([[1, 2, 3], [4, 0, 0]]),
                (None, [[1]], torch.ones(B, L), torch.ones(L, dtype=torch.long)),
            ),
            "padding_id": INTEGER.or_none(),
            "tolerance": TOLERANCE,
        },
    ),
    "check_loss": Call(
        check_loss,
        {
            "function": Argument(lambda parts: parts[0][0].sum(), ("mean", nn.Module, None, 1)),
            "logits": Argument(
                torch.randn(B, L, 9),
                (
                    *(None, [1.0], torch.randn(B, 9), torch.randn(B, S, 9)),
                    torch.ones(B, L, 9, dtype=torch.long),
                ),
            ),
            "target": Argument(
                torch.tensor([[1, 2, 3], [4, 0, 0]]),
                (
                    *(None, [[1]], torch.ones(B, L), torch.ones(B, S, dtype=torch.long)),
                    *(torch.zeros(B, L, dtype=torch.long), torch.ones(B, L, dtype=torch.long)),
                ),
            ),
            "padding_id": INTEGER,
            "tolerance": TOLERANCE,
        },
    ),
    "head_patterns": Call(
        head_patterns,
        {
            "weights": vectors(H, L, S, width=False, weights=False),
            "keys": Argument(["a"] * S, ("a" * S, 1, ["a"], torch.ones(S))),
            "mask": Argument(
                torch.zeros(L, S, dtype=torch.bool),
                ("causal", True, torch.ones(L, S), torch.zeros(S, dtype=torch.bool)),
            ),
            "self_attention": FLAG,
        },
    ),
    "check_search": Call(
        check_search, {"search": Argument(greedy_search, ("beam", nn.Module, None, 1))}
    ),
    "check_equivalence": Call(
        check_equivalence,
        {
            "a": FUNCTION,
            "b": FUNCTION,
            "inputs": Argument([torch.ones(2)], (torch.ones(2),)),
            "tolerance": TOLERANCE,
        },
    ),
}
TESTED_ELSEWHERE = {  # the arguments of these have tests of their own
    *("check_cache", "check_causal", "check_padding", "ablate", "record_attention"),
    *("record_projections", "Projections", "logit_lens"),
    *(
        "explain_mask",
        "trace_shapes",
        "MaskExplanation",
        "Report",
        "Soundness",
        "Trace",
        "HeadPattern",
    ),
    *("from_torch", "to_torch", "assert_equivalent", "load_weights"),
    *(
        "Arithmetic",
        "AttentionMaps",
        "DecodingSteps",
        "Explorer",
        "explore",
        "save_explorer",
        "plot_attention",
        "plot_heads",
        "reproduces",
    ),
    *("Exhibit", "Examination", "examine", "exhibits"),
    "compile_steps",  # which takes minutes
    *("AttentionFunction", "StepModel", "TopKStepModel"),  # protocols
    *("Generation", "ExplicitAttention", "NonFiniteLogitsError"),
    # For subclasses to define: ExplicitAttention calls them with arguments that it has checked.
    *(
        f"{name}.attention_scores"
        for name in ("ExplicitAttention", "AdditiveAttention", "RelativeBias")
    ),
    *("ALiBi.biases", "RelativeBias.biases"),
    # Parts of the forward pass of a layer, which is called with what has been checked.
    *("MultiHeadAttention.project_heads", "MultiHeadAttention.split_heads"),
    *("MultiHeadAttention.merge_heads", "MultiHeadAttention.transform_queries"),
    *("MultiHeadAttention.transform_keys", "KeyValueCache.write", "KeyValueCache.advance"),
    "KeyValueCache.hold",
    # For subclasses to define; theirs are in the table.
    *("QueryKeyTransform.transform_queries", "QueryKeyTransform.transform_keys"),
    *("QueryKeyTransform", "Residual.forward"),
}


CLASSES = nn.Module, KeyValueCache, SelfAttentionCache, DecoderCache  # their methods count too


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """List the public functions, classes and methods of the package."""
    found: Any
    for name, found in PUBLIC.items():
        if name not in TESTED_ELSEWHERE:
            yield name, found
        if isinstance(found, type) and issubclass(found, CLASSES):
            for method, function in vars(found).items():
                is_public = not method.startswith("_") and method != "extra_repr"
                if is_public and inspect.isfunction(function):
                    yield f"{name}.{method}", function


def test_every_public_argument_is_in_the_table() -> None:
    found = {
        name: {each for each in inspect.signature(call).parameters if each != "self"}
        for name, call in public_calls()
        if name not in TESTED_ELSEWHERE
    }
    assert found.keys() <= CALLS.keys()
    for name, arguments in found.items():
        assert arguments == CALLS[name].arguments.keys(), name


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_valid_arguments_are_accepted(call: Call) -> None:
    call.run()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        pytest.param(call, argument, id=f"{name}-{argument}")
        for name, call in CALLS.items()
        for argument in call.arguments
    ],
)
def test_an_invalid_argument_is_refused_by_name_and_by_our_own_code(
    call: Call, argument: str
) -> None:
    name = (call.aliases or {}).get(argument, argument)
    message_of_ours = re.compile(rf"^[\w, \[\]]*\b({argument}|{name})\b[\w, \[\]]* must ")
    for invalid in call.arguments[argument].invalid:
        with pytest.raises((TypeError, ValueError)) as caught:
            call.run(**{argument: invalid})
        message, file = str(caught.value), traceback.extract_tb(caught.tb)[-1].filename
        assert message_of_ours.search(message), f"{invalid!r} got {message!r}"
        assert HOME in Path(file).parents, f"{invalid!r} was refused in {file}"


def test_a_wrong_dtype_is_refused_before_torch_multiplies() -> None:
    stack, x = encoder(), X.valid
    for other in (torch.float64, torch.int64):
        with pytest.raises(TypeError, match=rf"^x must .*, got dtype={other}$"):
            stack(x.to(other))
    for other in (torch.float16, torch.bfloat16):  # which torch's norms accept
        message = rf"^query must have the dtype of the weights, torch.float32, got dtype={other}$"
        with pytest.raises(TypeError, match=message):
            stack(x.to(other))
    with pytest.raises(
        ValueError, match=r"^x must be on the device of the weights, cpu, got .*=me"
    ):
        stack(x.to("meta"))
    with pytest.raises(
        ValueError, match=r"^x must be on the device of the weights, meta, got .*=cp"
    ):
        stack.to("meta")(x)


def test_autocast_accepts_what_it_casts_and_nothing_else() -> None:
    stack, x = encoder(PreNorm).eval(), torch.randn(B, L, D)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = stack(x)
        torch.testing.assert_close(
            stack(x.bfloat16()), expected, rtol=0.1, atol=0.1, check_dtype=False
        )
        FeedForward(D, 12)(x.half())
        LearnedPositionalEncoding(D, max_length=9)(x.bfloat16())
        with pytest.raises(
            TypeError, match=r"^x must have the dtype of the weights, torch.float32"
        ):
            stack(x.double())


def test_a_hook_may_convert_the_input() -> None:
    def cast(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(x.float() for x in inputs)

    block, x = FeedForward(D, 12), torch.randn(B, L, D)
    with pytest.raises(TypeError, match=r"^x must have the dtype"):
        block(x.double())
    block.up_projection.register_forward_pre_hook(cast)
    torch.testing.assert_close(block(x.double()), block(x))
    with torch.device("meta"):  # weights that are loaded when they are needed
        offloaded = FeedForward(D, 12)
    weights = {name: weight.to("meta") for name, weight in block.up_projection.named_parameters()}

    def forward_with_loaded_weights(x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, block.up_projection.weight, block.up_projection.bias)

    assert weights.keys() == {"weight", "bias"}
    offloaded.up_projection.forward = forward_with_loaded_weights  # type: ignore[method-assign, assignment]
    offloaded.down_projection = block.down_projection
    torch.testing.assert_close(offloaded(x), block(x))


def test_a_norm_in_full_precision_accepts_half_precision() -> None:
    residual = PreNorm(D, dropout=0.0, norm=nn.LayerNorm(D))
    x = torch.randn(B, L, D).bfloat16()
    assert residual(x, lambda x: x).dtype == torch.bfloat16


def test_a_check_never_computes_a_weight() -> None:
    layer = MultiHeadAttention(D, H)
    nn.utils.parametrizations.spectral_norm(layer.query_projection)
    computed = []
    norm: Any = layer.query_projection.parametrizations
    norm.weight[0].register_forward_hook(lambda *_: computed.append(1))
    x = torch.randn(B, L, D)
    layer(x, x, x)
    assert len(computed) == 1  # by the projection itself


@pytest.mark.parametrize(
    "attention_function",
    [Uniform(), lambda query, key, value, **options: query],
    ids=["module", "function"],
)
def test_a_layer_checks_masks_for_any_attention_function(attention_function: Any) -> None:
    layer, x = MultiHeadAttention(D, H, attention_function=attention_function), X.valid
    layer(x, x, x, mask=SELF.valid)
    for invalid in mask(L, L).invalid:
        for call in (
            layer,
            lambda *inputs, **options: layer.attention_weights(*inputs[:2], **options),
        ):
            with pytest.raises((TypeError, ValueError), match=r"^mask must "):
                call(x, x, x, mask=invalid)
    with pytest.raises(TypeError, match=r"^causal must be True or False, got causal='no'$"):
        layer(x, x, x, causal="no")


@pytest.mark.parametrize(
    ("name", "invalid"),
    [
        *(("model", each) for each in (nn.Linear(D, D), nn.Linear, None, "x")),
        *(("batch_size", each) for each in size(1).invalid),
        *(("beam_size", each) for each in size(1).invalid),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_compiled(name: str, invalid: Any) -> None:
    valid: dict[str, Any] = {
        "model": prepare(encoder(), compiled=True),
        "batch_size": 1,
        "beam_size": 1,
    }
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        compile_steps(**valid | {name: invalid})


def test_an_invalid_call_appends_nothing_to_a_cache() -> None:
    layer, cache, x = MultiHeadAttention(D, H), KeyValueCache(), X.valid
    calls: list[dict[str, Any]] = [
        {"mask": torch.zeros(L, L)},
        {"mask": torch.zeros(L, L + 1, dtype=torch.bool)},
        {"causal": "no"},
    ]
    with torch.no_grad():
        for invalid in calls:
            with pytest.raises((TypeError, ValueError), match=r"^(mask|causal) must"):
                layer(x, x, x, cache=cache, **invalid)
        with pytest.raises(TypeError, match=r"^value must have the dtype"):
            layer(x, x, x.double(), cache=cache)
    assert cache.length == 0


def test_an_end_id_outside_the_vocabulary_is_refused_at_the_first_step() -> None:
    class CountsSteps(Model):
        steps = 0

        def step(self, tokens: Tensor) -> Tensor:
            self.steps += 1
            return super().step(tokens)

    searches: list[tuple[Any, dict[str, Any]]] = [
        (greedy_search, {}),
        (sample, {}),
        (beam_search, {"beam_size": 2}),
    ]
    for search, options in searches:
        model, start = CountsSteps(), torch.tensor([1, 2])
        message = r"^end_id must be below the vocabulary size 10, got end_id=10$"
        with pytest.raises(ValueError, match=message):
            search(model, start, end_id=10, max_length=5, **options)
        assert model.steps == 1
        search(CountsSteps(), start, end_id=9, max_length=5, **options)
        found = search(CountsSteps(), start, end_id=None, max_length=5, **options)
        for each in found:
            each = each if isinstance(each, list) else [each]
            assert [(len(text.tokens), text.finished) for text in each] == [(5, False)]


def test_the_error_for_a_name_of_a_function_names_the_function() -> None:
    message = (
        "activation must be a function or a module, got activation='gelu'; "
        "pass torch.nn.functional.gelu"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        FeedForward(D, 12, activation="gelu")  # type: ignore[arg-type]


def test_the_output_of_a_sublayer_is_never_broadcast() -> None:
    class MeanPooling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(1, keepdim=True)

    layer = EncoderLayer(attention(), MeanPooling(), residual=lambda: PreNorm(D))
    message = r"^sublayer must keep shape \(2, 3, 8\), got \(2, 1, 8\)$"
    with pytest.raises(ValueError, match=message):
        layer(X.valid)


def test_tensors_on_the_meta_device_are_accepted() -> None:
    x, stack = X.valid.to("meta"), EncoderDecoder(encoder(), decoder()).to("meta")
    assert stack(x, x, source_mask=CROSS.valid[..., 1:].to("meta")).is_meta
    assert linear_cross_entropy(x[0], torch.empty(9, D, device="meta"), x[0, :, 0].long()).is_meta
