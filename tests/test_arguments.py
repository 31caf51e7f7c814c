"""Every argument of every public name is checked: our own code refuses invalid ones by name.

Arguments of the same name have the same valid and invalid values (``ARGUMENTS``); ``OF_CALLS`` has
those that are different. A new argument that is in neither of them fails.
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
    Dropout,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    ExplicitAttention,
    FeedForward,
    GatedFeedForward,
    KeyValueCache,
    LearnedPositionalEncoding,
    LoraLinear,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    QueryKeyTransform,
    RelativeBias,
    RotaryPositionalEncoding,
    SandwichNorm,
    SelfAttentionCache,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    SlidingWindowAttention,
    TokenEmbedding,
    add_lora,
    beam_search,
    build_decoder,
    build_encoder,
    build_language_model,
    build_seq2seq,
    fused_attention,
    greedy_search,
    linear_cross_entropy,
    sample,
)
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.inference import Int8Linear, PrepackedLinear

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
    invalid = valid.numpy(), valid.tolist(), "causal", True, valid.float(), valid.long()
    return Argument(valid, (*invalid, valid[..., 1:], valid[None], valid.to("meta")))


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
FUNCTION = Argument(torch.relu, ("gelu", nn.GELU, None, 1, [torch.relu]))


B, L, S, D, H = 2, 3, 4, 8, 2
X, MEMORY, HIDDEN = vectors(B, L, D), vectors(B, S, D), vectors(B, L, D, half=False)
KEY = vectors(B, H, S, D // H)
SELF, CROSS = mask(L, L), mask(B, 1, 1, S)
CACHED_KEYS = torch.ones(B, H, S, D // H)
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


def cache() -> KeyValueCache:
    made = KeyValueCache()
    made.append(CACHED_KEYS, CACHED_KEYS)
    return made


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


ROW_OFFSETS = torch.zeros(B, dtype=torch.int64)
GENERATOR = torch.Generator()
TOLERANCE = Argument(None, ("0", True, [1.0], -1.0, math.nan, math.inf))
NORM = made(nn.LayerNorm(D), nn.LayerNorm).or_none()
ATTENTION = made(attention(), MultiHeadAttention)
EMBEDDING = made(TokenEmbedding(9, D), TokenEmbedding)
OF_LAYER = Argument(None, (MultiHeadAttention(D, H), "attention", 1, dict, lambda: nn.Linear))
LAYERS = Argument([], (nn.Linear, [nn.Linear], "x", 1))
LABELS = Argument(None, (["a"], [1, 2, 3], 3))
TARGET = torch.tensor([[1, 2, 3], [4, 0, 0]])
BUILT_RESIDUAL = Argument(PreNorm, ("pre", PreNorm(D), nn.Identity(), None, 1))

ARGUMENTS: dict[str, Argument] = {  # of all calls, where OF_CALLS has no other
    **{name: size(D) for name in ("d_model", "d_k")},
    **{name: size(2) for name in ("num_heads", "window", "beam_size", "rank")},
    **{name: size(1) for name in ("num_layers", "step", "n_best", "count", "num_key_value_heads")},
    **{
        name: size(9)
        for name in ("vocabulary_size", "source_size", "target_size", "max_length", "warmup_steps")
    },
    "d_ff": size(12),
    "length": size(3),
    "query_length": size(L),
    **{name: size(S).or_none() for name in ("key_length", "key_width", "value_width")},
    **{name: probability(0.1) for name in ("p", "label_smoothing")},
    **{
        name: Argument(0.1, (*probability(0.1).invalid, 1.0))
        for name in ("dropout", "attention_dropout")
    },
    **dict.fromkeys(("bias", "causal", "inplace", "relu"), FLAG),
    **dict.fromkeys(("int8", "self_attention"), FLAG),
    **dict.fromkeys(("padding_id", "start"), INTEGER),
    "scale": number(1.0).or_none(),
    "base": number(100.0),
    **{name: number(2.0) for name in ("factor", "low")},
    "high": number(4.0),
    "alpha": Argument(4, (*number(1.0).invalid, 0, -1.0)).or_none(),
    "tolerance": TOLERANCE,
    "device": Argument(None, ()),  # checked by torch
    "x": X,
    "source": vectors(B, S, D, half=False),
    "target": HIDDEN,
    "memory": MEMORY,
    "mask": SELF.or_none(),
    **{name: CROSS.or_none() for name in ("memory_mask", "source_mask")},
    "target_mask": SELF.or_none(),
    "query": vectors(B, H, L, D // H),
    "key": KEY,
    "value": vectors(B, H, S, D // H, width=False),  # of any size
    "keys": KEY,
    "values": KEY,
    "begin_id": Argument(1, (*INTEGER.invalid, -1)),
    "rows": ROWS,
    "tokens": ids(B, L),
    "lengths": ids(B),
    "documents": ids(B, L),
    "key_documents": ids(B, S).or_none(),
    "offset": Argument(
        0,
        (
            *(*INTEGER.invalid, -1, ROW_OFFSETS.tolist(), ROW_OFFSETS.float(), ROW_OFFSETS.bool()),
            *(ROW_OFFSETS[1:], ROW_OFFSETS[None], ROW_OFFSETS.to("meta")),
        ),
    ),
    **dict.fromkeys(("activation", "output", "a", "b"), FUNCTION),
    "attention_function": Argument(fused_attention, ("fused", ALiBi, None, 1, torch.ones(3))),
    "transforms": Argument(
        (), (QueryKeyTransform(), [QueryKeyTransform], [torch.relu], None, "rotary", 1)
    ),
    **dict.fromkeys(("norm", "output_norm"), NORM),
    "sublayer": Argument(torch.tanh, ("tanh", nn.Tanh, None, 1, lambda x: x[:, :1], list)),
    "residual": Argument(lambda: PreNorm(D), ("pre", PreNorm(D), None, 1, nn.Identity, dict)),
    "cache": made(KeyValueCache(), KeyValueCache).or_none(),
    **dict.fromkeys(("self_attention", "cross_attention"), ATTENTION),
    "feed_forward": Argument(nn.Identity(), (nn.Identity, "relu", None, 1, torch.ones(3))),
    "layers": LAYERS,
    "encoder": made(encoder(), Encoder),
    "decoder": made(decoder(), Decoder),
    "optimizer": made(
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0), torch.optim.SGD
    ),
    "linear": made(nn.Linear(D, 12), nn.Linear),
    "stack": made(encoder().eval(), Encoder),
    "model": made(Model(), Model),
    "end_id": Argument(0, (-1, 10, 10**9, 1.0, "0", True, [0, 10], [-1], [1.0], b"0")),
}
BUILT = {
    "residual": BUILT_RESIDUAL,
    **dict.fromkeys(("attention", "cross_attention"), OF_LAYER),
    "feed_forward": Argument(None, (nn.Identity(), "gated", 1, dict, lambda: None)),
}
NO_PADDING = Argument(None, (1.5, "0", True, -1))
OF_MODELS = {
    **dict.fromkeys(("embedding", "source_embedding", "target_embedding"), EMBEDDING),
    **dict.fromkeys(("positions", "output"), NORM),
    "padding_id": Argument(0, (*INTEGER.invalid, -1)),
}
OF_ATTENTION = {"mask": mask(L, S).or_none()}
OF_HEADS = {"d_k": size(D).or_none()}
FORWARD = {"query": X, "key": MEMORY, "value": MEMORY, "mask": CROSS.or_none()}
SEARCH = {"start": ids(B), "max_length": size(2)}
STEPS = {"x": HIDDEN, "memory": MEMORY}
SOUNDNESS = {
    "model": Argument(nn.GRU(D, D, batch_first=True), ("gru", nn.GRU, None, 1)),
    "example": Argument(X.valid, (None, 1, "ids", {}, [], torch.tensor(1.0), torch.ones(0, 2))),
    "causal": Argument(None, ("no", 0, 1, np.True_, bool)),
    "padding_id": Argument(None, (1.5, "0", True, torch.ones(3), int)),
    "new_step_model": Argument(None, ("steps", 1, [print])),  # a class may be one
}
ADAPTED = {"model": Argument(adapted(), (MultiHeadAttention, "x", None, 1, attention()))}
NOT_ADAPTED = {"model": Argument(attention(), (MultiHeadAttention, "x", None, 1, adapted()))}
ANY_VECTORS = vectors(B, L, D, any_rank=True, width=False, weights=False)
ROTATED = {
    "queries": vectors(B, H, L, D // H, weights=False),
    "keys": vectors(B, H, S, D // H, weights=False),
}
NORMALISED = {
    "queries": vectors(B, H, L, D // H, half=False),
    "keys": vectors(B, H, S, D // H, half=False),
}
OF_CALLS: dict[str, dict[str, Argument]] = {
    "TokenEmbedding.forward": {
        "tokens": Argument(ids(B, L).valid, (*ids(B, L).invalid, ids(B, L).valid.to("meta")))
    },
    "SinusoidalPositionalEncoding.forward": {"x": vectors(B, L, D, weights=False)},
    "format_mask": {
        "mask": Argument(SELF.valid, ([[True]], None, "x", SELF.valid.long(), SELF.valid[0])),
        **dict.fromkeys(("queries", "keys"), LABELS),
    },
    **dict.fromkeys(
        (
            *("attention_weights", "scaled_dot_product_attention", "fused_attention"),
            *("ExplicitAttention.forward", "ExplicitAttention.attention_weights"),
            *("SlidingWindowAttention.forward", "SlidingWindowAttention.attention_weights"),
        ),
        OF_ATTENTION,
    ),
    **{
        f"{layer}.{method}": FORWARD
        for layer in ("SingleHeadAttention", "MultiHeadAttention")
        for method in ("forward", "attention_weights", "project")
    },
    "MultiHeadAttention": OF_HEADS,
    "GroupedQueryAttention": OF_HEADS,
    "MultiHeadAttention.attend": {  # a layer projects them from what it has checked
        **{name: Argument(KEY.valid, ()) for name in ("queries", "keys", "values")},
        "mask": mask(S, S).or_none(),
        "causal": Argument(True, ()),
    },
    "Dropout.forward": {"input": ANY_VECTORS},
    "apply_dropout": {"x": ANY_VECTORS},
    **{
        f"{name}.forward": {"x": vectors(B, L, D, any_rank=True)}
        for name in (
            "FeedForward",
            "GatedFeedForward",
            "Int8Linear",
            "LoraLinear",
            "PrepackedLinear",
        )
    },
    **{f"{name}.forward": STEPS for name in ("SandwichNorm", "PostNorm", "PreNorm")},
    **{f"{name}.forward": STEPS for name in ("EncoderLayer", "DecoderLayer")},
    "Encoder.forward": STEPS | {"cache": made(SelfAttentionCache(1), SelfAttentionCache).or_none()},
    "Decoder.forward": STEPS | {"cache": made(decoder_cache(), DecoderCache).or_none()},
    "build_language_model": {"residual": BUILT_RESIDUAL, "padding_id": NO_PADDING},
    "build_seq2seq": {"residual": BUILT_RESIDUAL, "padding_id": OF_MODELS["padding_id"]},
    **{
        f"{name}_pool": {
            "x": vectors(B, L, D, width=False, weights=False),
            "mask": Argument(None, (torch.zeros(B, 1, 1, L), *SELF.invalid)),
        }
        for name in ("mean", "first", "last")
    },
    "build_encoder": BUILT,
    "build_decoder": BUILT,
    "linear_cross_entropy": {
        "hidden": vectors(B, D),
        "weight": vectors(9, D),
        "target": ids(B),
        "reduction": Argument("sum", ("none", "max", None, 1, True)),
    },
    "KeyValueCache.reserve": {
        "first": Argument(torch.zeros(1, 2, 2, 4, 8), (torch.zeros(1, 2, 4, 8), [0.0]))
    },
    **{
        f"{name}.crop": {"length": Argument(1, (-1, 1.0, "1", True, None))}
        for name in ("KeyValueCache", "SelfAttentionCache", "DecoderCache")
    },
    "DecoderCache": {
        "memory": Argument(
            [cache()], (cache(), [KeyValueCache], [CACHED_KEYS], CACHED_KEYS, None, "x", 1)
        ),
        "memory_mask": Argument(None, ([[True]], "x", True, torch.zeros(B, 1, 1, S))),
    },
    "RotaryPositionalEncoding": {"scaling": Argument(torch.sqrt, ("linear", 2.0, 1)).or_none()},
    "RotaryPositionalEncoding.transform_queries": ROTATED,
    "RotaryPositionalEncoding.transform_keys": ROTATED,
    "RelativeBias": {
        "num_buckets": Argument(32, (*size(32).invalid, 2, 5)),
        "max_distance": Argument(128, (*size(128).invalid, 8)),
        "bidirectional": Argument(True, FLAG.invalid),
    },
    "QueryKeyNorm": {
        "norm": Argument(nn.RMSNorm, ("rms", nn.RMSNorm(4), None, 1, lambda width: width))
    },
    "QueryKeyNorm.transform_queries": NORMALISED,
    "QueryKeyNorm.transform_keys": NORMALISED,
    "LoraLinear": {"rank": Argument(2, (*size(2).invalid, D + 1))},
    "add_lora": NOT_ADAPTED
    | {
        "rank": Argument(2, (*size(2).invalid, D + 1)),
        "modules": Argument(
            ["query_projection"],
            ("query_projection", None, 1, [], ["x"], [1], ["transforms"], [""], nn.Linear),
        ),
    },
    "merge_lora": ADAPTED,
    "prepare": {
        "model": made(nn.Linear(D, D), nn.Linear),
        "linear": Argument(PrepackedLinear, ("prepared", None, 1)),
    },
    "IncrementalDecoder": {
        "cache": Argument(
            SelfAttentionCache(1), (SelfAttentionCache, decoder_cache(), cache(), None, "x", 1)
        ),
        "embed": Argument(torch.add, ("embed", None, 1, nn.Embedding)),
    },
    "IncrementalDecoder.prefill": {
        "lengths": Argument(
            [L] * B,
            (
                *([0, -1], [L + 1, L], [1.0, L], ["1", L], [True, L], [None, L], [[1], L]),
                *([L], [L] * (B + 1), [], (), L, "11", {0: 1, 1: 1}, int),
                *(torch.ones(B), torch.ones(B) > 0, torch.tensor([[L] * B]), torch.tensor(L)),
                *(torch.tensor([L] * (B + 1)), torch.tensor([L + 1, 0])),
            ),
        ).or_none()
    },
    "IncrementalDecoder.replace": {
        "tokens": Argument(torch.ones(1, 2, dtype=torch.int64), ids(1, L + 1).invalid)
    },
    **dict.fromkeys(("LanguageModel", "Seq2Seq"), OF_MODELS),
    "LanguageModel": OF_MODELS
    | {
        "decoder": made(encoder(), Encoder),
        "padding_id": NO_PADDING,
    },
    **{
        f"Seq2Seq.{method}": {"source": ids(B, S), "target": ids(B, L)}
        for method in ("forward", "loss")
    },
    "left_pad": {
        "prompts": Argument(
            [[1, 2], [], (3,)],
            (
                *(None, 1, "", ["ab"], [b"ab"], [1, 2], [None], {0: [1]}, int),
                *([[1.0]], [[True]], [[None]], [[1], [2, 1.0]], torch.ones(1, 2)),
            ),
        )
    },
    "greedy_search": SEARCH,
    "sample": SEARCH
    | {
        "temperature": Argument(1.0, (*number(1.0).invalid, 0.0)),
        "top_k": size(2).or_none(),
        "top_p": Argument(None, (*number(1.0).or_none().invalid, 0.0, 1.5)),
        "generator": Argument(
            [torch.Generator() for _ in range(B)],
            (torch.Generator, {}, "x", 1, [], [torch.Generator()], [1] * B, [GENERATOR] * B),
        ),
    },
    "beam_search": SEARCH
    | {
        "length_penalty": Argument(0.6, (*number(0.6).invalid, -0.1, 10.5, [0.6], nn.GELU)),
        "lookahead": Argument(None, (-1, 1.0, "never", True)),
    },
    "check_soundness": SOUNDNESS,
    "assert_sound": SOUNDNESS,
    "check_labels": {
        "step": Argument(
            lambda tokens: (torch.eye(9)[tokens], tokens.flip(1)),
            ("shift", nn.Module, None, 1, lambda tokens: tokens, lambda tokens: (tokens, 1)),
        ),
        "tokens": Argument(
            TARGET, (None, [[1]], torch.ones(B, L), torch.ones(L, dtype=torch.long))
        ),
        "padding_id": INTEGER.or_none(),
    },
    "check_scorer": {
        "score": Argument(
            lambda tokens: torch.zeros(len(tokens), 5),
            ("sum", nn.Module, None, 1, lambda tokens: tokens, lambda tokens: torch.zeros(4, 5)),
        ),
        "tokens": Argument(TARGET[0], (None, [1], TARGET, torch.ones(L))),
        "vocabulary_size": size(5),
    },
    "check_loss": {
        "function": Argument(lambda parts: parts[0][0].sum(), ("mean", nn.Module, None, 1)),
        "logits": Argument(
            torch.randn(B, L, 9),
            (None, [1.0], torch.randn(B, 9), torch.randn(B, S, 9), torch.ones(B, L, 9).long()),
        ),
        "target": Argument(
            TARGET,
            (
                *(None, [[1]], torch.ones(B, L), torch.ones(B, S, dtype=torch.long)),
                *(torch.zeros_like(TARGET), torch.ones_like(TARGET)),
            ),
        ),
    },
    "head_patterns": {
        "weights": vectors(H, L, S, width=False, weights=False),
        "keys": Argument(["a"] * S, ("a" * S, 1, ["a"], torch.ones(S))),
        "mask": Argument(
            torch.zeros(L, S, dtype=torch.bool),
            ("causal", True, torch.ones(L, S), torch.zeros(S, dtype=torch.bool)),
        ),
        "self_attention": FLAG,
    },
    "check_search": {"search": Argument(greedy_search, ("beam", nn.Module, None, 1))},
    "check_equivalence": {"inputs": Argument([torch.ones(2)], (torch.ones(2),))},
}
MADE: dict[str, Callable[[], Any]] = {  # an object for the methods of each class
    "TokenEmbedding": lambda: TokenEmbedding(9, D),
    "SinusoidalPositionalEncoding": lambda: SinusoidalPositionalEncoding(D),
    "LearnedPositionalEncoding": lambda: LearnedPositionalEncoding(D, max_length=9),
    "ExplicitAttention": Uniform,
    "SlidingWindowAttention": lambda: SlidingWindowAttention(2),
    "AdditiveAttention": lambda: AdditiveAttention(D // H, H),
    "SingleHeadAttention": lambda: SingleHeadAttention(D),
    "MultiHeadAttention": attention,
    "Dropout": lambda: Dropout(0.5),
    "FeedForward": lambda: FeedForward(D, 12),
    "GatedFeedForward": lambda: GatedFeedForward(D, 12),
    "SandwichNorm": lambda: SandwichNorm(D),
    "PostNorm": lambda: PostNorm(D),
    "PreNorm": lambda: PreNorm(D),
    "EncoderLayer": lambda: encoder().layers[0],
    "Encoder": encoder,
    "DecoderLayer": lambda: decoder(PreNorm).layers[0],
    "Decoder": lambda: decoder(PreNorm),
    "LanguageModel": lambda: build_language_model(9, d_model=D, num_heads=H, d_ff=12),
    "Seq2Seq": lambda: build_seq2seq(9, 9, d_model=D, num_heads=H, d_ff=12),
    "EncoderDecoder": lambda: EncoderDecoder(encoder(), decoder(PreNorm)),
    "KeyValueCache": cache,
    "KeyValueCache.reserve": KeyValueCache,
    "SelfAttentionCache": lambda: SelfAttentionCache(1),
    "DecoderCache": decoder_cache,
    "RotaryPositionalEncoding": lambda: RotaryPositionalEncoding(D // H),
    "RelativeBias": lambda: RelativeBias(H),
    "QueryKeyNorm": lambda: QueryKeyNorm(D // H),
    "LoraLinear": lambda: LoraLinear(nn.Linear(D, D), rank=2),
    "PrepackedLinear": lambda: PrepackedLinear(nn.Linear(D, D)),
    "Int8Linear": lambda: Int8Linear(nn.Linear(D, D)),
    "IncrementalDecoder": prefilled_decoder,
    "IncrementalDecoder.prefill": incremental_decoder,
}
ALIASES = {"source_mask": "memory_mask|mask", "target_mask": "mask"}  # where it is refused
STEP_METHODS = "step", "step_top_k", "reorder"
TESTED_ELSEWHERE = {  # the arguments of these have tests of their own
    *("check_cache", "check_causal", "check_padding", "ablate", "record_attention"),
    *("record_projections", "Projections", "logit_lens"),
    *("explain_mask", "trace_shapes", "MaskExplanation", "Report", "Soundness", "Trace"),
    "HeadPattern",
    *("from_torch", "to_torch", "load_weights"),
    *("assert_equivalent", "first_difference", "Difference", "Pair"),
    *("Arithmetic", "AttentionMaps", "DecodingSteps", "LiveModel", "Explorer", "explore"),
    *("plot_attention", "plot_heads", "reproduces"),
    *("Exhibit", "Examination", "examine", "exhibits"),
    *("LanguageModel.start", "Seq2Seq.start", "Seq2Seq.begin"),  # tested in test_models
    # Parts of the forward pass of a model.
    *("LanguageModel.embed", "LanguageModel.hidden"),
    *("Seq2Seq.embed", "Seq2Seq.embed_source", "Seq2Seq.hidden", "Seq2Seq.encode"),
    *("save_program", "load_program", "Program"),  # tested in test_inference_program
    *("AttentionFunction", "StepModel"),  # protocols
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
    *(f"IncrementalDecoder.{name}" for name in STEP_METHODS),
    # For subclasses to define; theirs are in the table.
    *("QueryKeyTransform.transform_queries", "QueryKeyTransform.transform_keys"),
    *("QueryKeyTransform", "Residual.forward"),
}


CLASSES = nn.Module, KeyValueCache, SelfAttentionCache, DecoderCache, IncrementalDecoder


class Call(NamedTuple):
    """A function and its arguments by name."""

    function: Callable[..., Any]
    arguments: dict[str, Argument]

    def run(self, **others: Any) -> Any:
        """Call it with valid values, except for some arguments."""
        given = {name: each.valid for name, each in self.arguments.items()}
        models = {name: each for name, each in given.items() if isinstance(each, nn.Module)}
        with torch.no_grad():
            return self.function(**given | copy.deepcopy(models) | others)


def public_calls() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """List the public functions, classes and methods: name, what is called, its signature's."""
    found: Any
    for name, found in {**PUBLIC, "apply_dropout": apply_dropout}.items():
        yield name, found, found
        if isinstance(found, type) and issubclass(found, CLASSES):
            for method, function in vars(found).items():
                is_public = not method.startswith("_") and method != "extra_repr"
                if is_public and inspect.isfunction(function):

                    def call(owner: str = name, method: str = method, **given: Any) -> Any:
                        make = MADE.get(f"{owner}.{method}", MADE[owner])
                        return getattr(make(), method)(**given)

                    yield f"{name}.{method}", call, function


CALLS = {
    name: Call(
        call,
        {
            each: OF_CALLS.get(name, {}).get(each) or ARGUMENTS[each]
            for each in inspect.signature(signed).parameters
            if each != "self"
        },
    )
    for name, call, signed in public_calls()
    if name not in TESTED_ELSEWHERE
}


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
    name = ALIASES.get(argument, argument)
    message_of_ours = re.compile(rf"^[\w., '\[\]]*\b({argument}|{name})\b[\w., '\[\]]* must ")
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
