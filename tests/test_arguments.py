"""What every argument of every public name keeps: a wrong kind is refused by name, by our own code.

One table lists the arguments of all that is public, each with its kind; a kind knows what is wrong.
A name or an argument that is new and not in the table fails the first test.
"""

import inspect
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
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    QueryKeyTransform,
    Residual,
    RotaryPositionalEncoding,
    SelfAttentionCache,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
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
    noam_rate,
    noam_schedule,
    padding_mask,
    sample,
    scaled_dot_product_attention,
    sinusoidal_table,
    sliding_window_mask,
)
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.inference import PrepackedLinear, compile_steps, prepare

HOME = Path(transformer_blocks.__file__).parent


class Kind(NamedTuple):
    """An argument: a value that is right, and values that are not."""

    right: Any
    wrong: tuple[Any, ...]

    def or_none(self) -> "Kind":
        """The same, where None is right too, and the usual value."""
        return Kind(None, tuple(each for each in self.wrong if each is not None))


def vectors(
    *shape: int,
    any_rank: bool = False,
    width: bool = True,
    weights: bool = True,
    half: bool = True,
) -> Kind:
    """Real numbers in float32.

    Args:
        shape: What is right.
        any_rank: Whether other leading dimensions are right too.
        width: Whether the last dimension is certain.
        weights: Whether dtype and device are, as the block has weights or other inputs.
        half: Whether half precision is wrong; a norm of torch's takes it.
    """
    right = torch.ones(shape)
    wrong = [right.numpy(), right.tolist(), None, "x", Tensor, 1.0, right.long(), right.bool()]
    wrong += [right[0]] if not any_rank else []
    wrong += [right[..., :-1]] if width else []
    wrong += [right.double(), right.to("meta")] if weights else []
    wrong += [right.half()] if weights and half else []
    return Kind(right, tuple(wrong))


def ids(*shape: int, dtype: torch.dtype = torch.int64) -> Kind:
    right = torch.ones(shape, dtype=dtype)
    others = right.numpy(), right.tolist(), None, "x", 1, right.float(), right.bool(), right[None]
    return Kind(right, others)


def mask(*shape: int) -> Kind:
    right = torch.zeros(shape, dtype=torch.bool)
    wrong = (
        right.numpy(),
        right.tolist(),
        "causal",
        True,
        right.float(),
        right.long(),
        right[..., 1:],
    )
    return Kind(right, (*wrong, right[None], right.to("meta")))


def size(right: int) -> Kind:
    return Kind(right, (0, -1, 2.0, str(right), True, None, torch.ones(3), int))


def number(right: float) -> Kind:
    return Kind(right, (str(right), True, None, [right], torch.tensor([right]), float))


def probability(right: float) -> Kind:
    return Kind(right, (*number(right).wrong, -0.1, 1.5, float("nan")))


def made(right: object, kind: type) -> Kind:
    """An instance of a class."""
    return Kind(right, (kind, [right], {}, "x", None, 1))


FLAG = Kind(False, ("no", 0, 1, None, np.True_, bool))
INTEGER = Kind(0, (1.5, "0", True, None, torch.ones(3), int))
IDENTITY = Kind(nn.Identity(), (nn.Identity, "relu", None, 1, torch.ones(3)))
FUNCTION = Kind(torch.relu, ("gelu", nn.GELU, None, 1, [torch.relu]))
ATTENTION_FUNCTION = Kind(fused_attention, ("fused", ALiBi, None, 1, torch.ones(3)))
TRANSFORM = QueryKeyTransform()
TRANSFORMS = Kind((), (TRANSFORM, [QueryKeyTransform], [torch.relu], None, "rotary", 1))
ANYTHING = Kind(None, ())  # for Python or torch to say, such as a device


class Call(NamedTuple):
    """How something is called, with what.

    Attributes:
        function: What is called, by keywords.
        arguments: Each with its kind.
        aliases: Other names under which an argument may be refused.
    """

    function: Callable[..., Any]
    arguments: dict[str, Kind]
    aliases: dict[str, str] | None = None

    def run(self, **others: Any) -> Any:
        """Call it with what is right, but for some arguments."""
        given = {name: kind.right for name, kind in self.arguments.items()} | others
        with torch.no_grad():
            return self.function(**given)


B, L, S, D, H = 2, 3, 4, 8, 2
X, MEMORY, STREAM = vectors(B, L, D), vectors(B, S, D), vectors(B, L, D, half=False)
QUERY, KEY = vectors(B, H, L, D // H), vectors(B, H, S, D // H)
SELF_MASK = mask(L, L).or_none()
SELF, CROSS = mask(L, L), mask(B, 1, 1, S)
# A kernel knows no weights: another dtype in all its inputs is right.
VALUE = vectors(B, H, S, D // H, width=False)  # of any width
HEADS = {"query": QUERY, "key": KEY, "value": VALUE}
OPTIONS = {"mask": mask(L, S).or_none(), "causal": FLAG, "scale": number(1.0).or_none()}
MIXES = {**HEADS, **OPTIONS, "dropout": probability(0.0)}
WEIGHS = {"query": QUERY, "key": KEY, **OPTIONS}
STACK = {
    "num_layers": size(1),
    "d_model": size(D),
    "num_heads": size(H),
    "d_ff": size(12),
    "dropout": probability(0.1),
    "attention_dropout": probability(0.0),
    "activation": FUNCTION,
    "residual": Kind(PreNorm, ("pre", PreNorm(D), nn.Identity(), None, 1)),
    "attention": Kind(None, (MultiHeadAttention(D, H), "attention", 1, dict, lambda: nn.Linear)),
    "feed_forward": Kind(None, (nn.Identity(), "gated", 1, dict, lambda: None)),
}
SEARCH = {
    "start": ids(B),
    "end_id": Kind(0, (-1, 10, 10**9, 1.0, "0", True)),
    "max_length": size(2),
}
KEPT = torch.ones(B, H, S, D // H)
CACHED = vectors(B, H, S, D // H)
ROWS = Kind(torch.tensor([0]), ([0], None, "x", 1, torch.tensor([0.0]), torch.tensor([[0]])))


class Counter:
    """A model that writes ids of ten, with a choice."""

    def step(self, tokens: Tensor) -> Tensor:
        return torch.zeros(len(tokens), 10)

    def reorder(self, rows: Tensor) -> None: ...


MODEL = made(Counter(), Counter)


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


def cache(*, filled: bool = True) -> KeyValueCache:
    kept = KeyValueCache()
    if filled:
        kept.append(KEPT, KEPT)
    return kept


def select(rows: Tensor) -> None:
    for kept in (cache(filled=False), cache()):
        kept.reorder(rows)


def decoder_cache() -> DecoderCache:
    with torch.no_grad():
        return decoder().new_cache(MEMORY.right)


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


PAST = made(KeyValueCache(), KeyValueCache).or_none()
NORM = made(nn.LayerNorm(D), nn.LayerNorm).or_none()
ATTENTION = made(attention(), MultiHeadAttention)
PLACES = {"x": X, "offset": INTEGER}
ATTENDS = {"query": X, "key": MEMORY, "value": MEMORY, "mask": CROSS.or_none(), "causal": FLAG}
LOOKS = {"query": X, "key": MEMORY, "mask": CROSS.or_none(), "causal": FLAG}
HEADED = {
    "d_model": size(D),
    "num_heads": size(H),
    "key_width": size(D).or_none(),
    "value_width": size(D).or_none(),
    "bias": FLAG,
    "dropout": probability(0.0),
    "attention_function": ATTENTION_FUNCTION,
    "transforms": TRANSFORMS,
}
WIDE = {
    "d_model": size(D),
    "d_ff": size(12),
    "activation": FUNCTION,
    "dropout": probability(0.0),
    "bias": FLAG,
}
CONNECTS = {"d_model": size(D), "dropout": probability(0.1), "norm": NORM}
SUBLAYER = Kind(torch.tanh, ("tanh", nn.Tanh, None, 1, lambda x: x[:, :1], lambda x: [x]))
RESIDUAL = Kind(lambda: PreNorm(D), ("pre", PreNorm(D), None, 1, nn.Identity, dict))

CALLS: dict[str, Call] = {
    "TokenEmbedding": Call(
        TokenEmbedding, {"vocabulary_size": size(9), "d_model": size(D), "check_ids": FLAG}
    ),
    "TokenEmbedding.forward": Call(
        lambda tokens: TokenEmbedding(9, D)(tokens),
        {"tokens": Kind(ids(B, L).right, (*ids(B, L).wrong, ids(B, L).right.to("meta")))},
    ),
    "SinusoidalPositionalEncoding": Call(
        SinusoidalPositionalEncoding, {"d_model": size(D), "max_length": size(9)}
    ),
    "SinusoidalPositionalEncoding.forward": Call(
        lambda x, **options: SinusoidalPositionalEncoding(D)(x, **options),
        {"x": vectors(B, L, D, weights=False), "offset": INTEGER},  # any dtype is right
    ),
    "LearnedPositionalEncoding": Call(
        LearnedPositionalEncoding, {"d_model": size(D), "max_length": size(9)}
    ),
    "LearnedPositionalEncoding.forward": Call(
        lambda x, **options: LearnedPositionalEncoding(D, max_length=9)(x, **options), PLACES
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
            "mask": Kind(SELF.right, ([[True]], None, "x", SELF.right.long(), SELF.right[0])),
            "queries": Kind(None, (["a"], [1, 2, 3], 3)),
            "keys": Kind(None, (["a"], [1, 2, 3], 3)),
        },
    ),
    "attention_weights": Call(attention_weights, WEIGHS),
    "scaled_dot_product_attention": Call(scaled_dot_product_attention, MIXES),
    "fused_attention": Call(fused_attention, MIXES),
    "ExplicitAttention.forward": Call(lambda **given: Uniform()(**given), MIXES),
    "ExplicitAttention.attention_weights": Call(
        lambda **given: Uniform().attention_weights(**given), WEIGHS
    ),
    "AdditiveAttention": Call(AdditiveAttention, {"d_k": size(D), "num_heads": size(H)}),
    "AdditiveAttention.attention_weights": Call(
        lambda **given: AdditiveAttention(D // H, H).attention_weights(**given), WEIGHS
    ),
    "SingleHeadAttention": Call(
        SingleHeadAttention,
        {"d_model": size(D), "scale": number(1.0).or_none(), "bias": FLAG},
    ),
    "SingleHeadAttention.forward": Call(lambda **given: SingleHeadAttention(D)(**given), ATTENDS),
    "SingleHeadAttention.attention_weights": Call(
        lambda **given: SingleHeadAttention(D).attention_weights(**given), LOOKS
    ),
    "MultiHeadAttention": Call(MultiHeadAttention, HEADED),
    "MultiHeadAttention.forward": Call(
        lambda **given: attention()(**given), {**ATTENDS, "cache": PAST}
    ),
    "MultiHeadAttention.attention_weights": Call(
        lambda **given: attention().attention_weights(**given), {**LOOKS, "cache": PAST}
    ),
    "MultiHeadAttention.project": Call(
        lambda **given: attention().project(**given), {"key": MEMORY, "value": MEMORY}
    ),
    "MultiHeadAttention.register_weights_hook": Call(
        lambda hook: attention().register_weights_hook(hook),
        {"hook": Kind(print, ("print", None, 1, list))},
    ),
    "MultiHeadAttention.attend": Call(
        lambda queries, keys, values, **options: attention().attend(
            queries, keys, values, **options
        ),
        {
            "queries": QUERY,
            "keys": KEY,
            "values": VALUE,
            "mask": mask(L, S).or_none(),
            "causal": FLAG,
        },
        {"queries": "query", "keys": "key", "values": "value"},
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
    "FeedForward": Call(FeedForward, WIDE),
    "FeedForward.forward": Call(
        lambda x: FeedForward(D, 12)(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "GatedFeedForward": Call(GatedFeedForward, WIDE),
    "GatedFeedForward.forward": Call(
        lambda x: GatedFeedForward(D, 12)(x), {"x": vectors(B, L, D, any_rank=True)}
    ),
    "Residual": Call(Residual, CONNECTS),
    "PostNorm": Call(PostNorm, CONNECTS),
    "PostNorm.forward": Call(
        lambda x, sublayer: PostNorm(D)(x, sublayer),
        {"x": STREAM, "sublayer": SUBLAYER},
    ),
    "PreNorm": Call(PreNorm, CONNECTS),
    "PreNorm.forward": Call(
        lambda x, sublayer: PreNorm(D)(x, sublayer), {"x": STREAM, "sublayer": SUBLAYER}
    ),
    "EncoderLayer": Call(
        EncoderLayer,
        {"self_attention": ATTENTION, "feed_forward": IDENTITY, "residual": RESIDUAL},
    ),
    "EncoderLayer.forward": Call(
        lambda **given: encoder().layers[0](**given),
        {"x": STREAM, "mask": SELF_MASK, "causal": FLAG, "cache": PAST},
    ),
    "Encoder": Call(Encoder, {"layers": Kind([], (nn.Linear, [nn.Linear], "x", 1)), "norm": NORM}),
    "Encoder.forward": Call(
        lambda **given: encoder()(**given),
        {
            "x": STREAM,
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
            "x": STREAM,
            "memory": MEMORY,
            "mask": SELF_MASK,
            "memory_mask": CROSS.or_none(),
            "causal": FLAG,
            "cache": PAST,
        },
    ),
    "Decoder": Call(Decoder, {"layers": Kind([], (nn.Linear, [nn.Linear], "x", 1)), "norm": NORM}),
    "Decoder.forward": Call(
        lambda **given: decoder(PreNorm)(**given),
        {
            "x": STREAM,
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
            "target": STREAM,
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
            "label_smoothing": probability(0.1),
            "reduction": Kind("sum", ("none", "max", None, 1, True)),
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
    "KeyValueCache.reserve": Call(lambda count: cache().reserve(count), {"count": size(1)}),
    "KeyValueCache.crop": Call(
        lambda length: cache().crop(length), {"length": Kind(1, (-1, 1.0, "1", True, None))}
    ),
    "KeyValueCache.reorder": Call(select, {"rows": ROWS}),
    "SelfAttentionCache": Call(SelfAttentionCache, {"num_layers": size(1)}),
    "SelfAttentionCache.reorder": Call(
        lambda rows: SelfAttentionCache(1).reorder(rows), {"rows": ROWS}
    ),
    "DecoderCache": Call(
        DecoderCache,
        {
            "memory": Kind([cache()], (cache(), [KeyValueCache], [KEPT], KEPT, None, "x", 1)),
            "memory_mask": Kind(None, ([[True]], "x", True, torch.zeros(B, 1, 1, S))),
        },
    ),
    "DecoderCache.reorder": Call(lambda rows: decoder_cache().reorder(rows), {"rows": ROWS}),
    "RotaryPositionalEncoding": Call(
        RotaryPositionalEncoding,
        {"d_k": size(4), "base": number(100.0)},
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
    "ALiBi.attention_weights": Call(lambda **given: ALiBi(H).attention_weights(**given), WEIGHS),
    "alibi_slopes": Call(alibi_slopes, {"num_heads": size(H)}),
    "QueryKeyNorm": Call(
        QueryKeyNorm,
        {
            "d_k": size(4),
            "norm": Kind(nn.RMSNorm, ("rms", nn.RMSNorm(4), None, 1, lambda width: width)),
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
        GroupedQueryAttention, {**HEADED, "num_key_value_heads": size(1)}
    ),
    "GroupedQueryAttention.forward": Call(
        lambda **given: GroupedQueryAttention(D, H, 1)(**given), {**ATTENDS, "cache": PAST}
    ),
    "PrepackedLinear": Call(
        PrepackedLinear, {"linear": made(nn.Linear(D, 12), nn.Linear), "relu": FLAG}
    ),
    "PrepackedLinear.forward": Call(
        lambda x, added: PrepackedLinear(nn.Linear(D, D))(x, added),
        {
            "x": vectors(B, L, D, any_rank=True),
            "added": Kind(None, (X.right.tolist(), "x", X.right.numpy())),
        },
    ),
    "prepare": Call(
        prepare,
        {
            "model": made(nn.Linear(D, D), nn.Linear),
            "linear": Kind(PrepackedLinear, ("prepared", None, 1)),
            "compiled": FLAG,
        },
    ),
    "IncrementalDecoder": Call(
        IncrementalDecoder,
        {
            "stack": made(encoder(), Encoder),
            "cache": Kind(
                SelfAttentionCache(1), (SelfAttentionCache, decoder_cache(), cache(), None, "x", 1)
            ),
            "embed": Kind(torch.add, ("embed", None, 1, nn.Embedding)),
            "output": FUNCTION,
        },
    ),
    "greedy_search": Call(greedy_search, {"model": MODEL, **SEARCH}),
    "sample": Call(
        sample,
        {
            "model": MODEL,
            **SEARCH,
            "temperature": number(1.0),
            "top_k": size(2).or_none(),
            "top_p": probability(0.5).or_none(),
            "generator": made(torch.Generator(), torch.Generator).or_none(),
        },
    ),
    "beam_search": Call(
        beam_search,
        {
            "model": MODEL,
            **SEARCH,
            "beam_size": size(2),
            "n_best": size(1),
            "length_penalty": number(0.6),
            "lookahead": Kind(None, (-1, 1.0, "never", True)),
        },
    ),
}
ELSEWHERE = {  # what is checked by tests of its own
    *("check_cache", "check_causal", "check_padding", "ablate", "record_attention"),
    *("explain_mask", "trace_shapes", "MaskExplanation", "Report", "Trace"),
    *("from_torch", "to_torch", "assert_equivalent", "load_weights"),
    *("AttentionMaps", "Writing", "Explorer", "save_explorer", "plot_attention", "plot_heads"),
    "compile_steps",  # which takes minutes
    *("AttentionFunction", "StepModel", "Generation", "ExplicitAttention"),  # nothing to call
    # For subclasses to define: ExplicitAttention calls them with arguments that it has checked.
    *(f"{name}.attention_scores" for name in ("ExplicitAttention", "AdditiveAttention", "ALiBi")),
    # For subclasses to define; theirs are in the table.
    *("QueryKeyTransform.transform_queries", "QueryKeyTransform.transform_keys"),
    *("QueryKeyTransform", "Residual.forward"),
}


KINDS = nn.Module, KeyValueCache, SelfAttentionCache, DecoderCache  # whose methods are called


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """List all that can be called by the names of the package: functions, classes, methods."""
    found: Any
    for name, found in PUBLIC.items():
        if name not in ELSEWHERE:
            yield name, found
        if isinstance(found, type) and issubclass(found, KINDS):
            for method, function in vars(found).items():
                is_public = not method.startswith("_") and method != "extra_repr"
                if is_public and inspect.isfunction(function):
                    yield f"{name}.{method}", function


def test_every_public_argument_is_in_the_table() -> None:
    found = {
        name: {each for each in inspect.signature(call).parameters if each != "self"}
        for name, call in public_calls()
        if name not in ELSEWHERE
    }
    assert found.keys() <= CALLS.keys()
    for name, arguments in found.items():
        assert arguments == CALLS[name].arguments.keys(), name


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_right_is_taken(call: Call) -> None:
    call.run()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        pytest.param(call, argument, id=f"{name}-{argument}")
        for name, call in CALLS.items()
        for argument in call.arguments
    ],
)
def test_a_wrong_argument_is_refused_by_name_and_by_our_own_code(call: Call, argument: str) -> None:
    name = (call.aliases or {}).get(argument, argument)
    ours = re.compile(rf"^[\w, \[\]]*\b({argument}|{name})\b[\w, \[\]]* must ")
    for wrong in call.arguments[argument].wrong:
        with pytest.raises((TypeError, ValueError)) as caught:
            call.run(**{argument: wrong})
        message, place = str(caught.value), traceback.extract_tb(caught.tb)[-1].filename
        assert ours.search(message), f"{wrong!r} got {message!r}"
        assert HOME in Path(place).parents, f"{wrong!r} was refused in {place}"


def test_a_dtype_is_named_before_torch_names_its_matrices() -> None:
    stack, x = encoder(), X.right
    for other in (torch.float64, torch.int64):
        with pytest.raises(TypeError, match=rf"^x must .*, got dtype={other}$"):
            stack(x.to(other))
    for other in (torch.float16, torch.bfloat16):  # which torch's norms take
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


def test_autocast_takes_what_it_casts_and_no_more() -> None:
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


def test_a_hook_may_convert_what_comes_in() -> None:
    def cast(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(x.float() for x in inputs)

    block, x = FeedForward(D, 12), torch.randn(B, L, D)
    with pytest.raises(TypeError, match=r"^x must have the dtype"):
        block(x.double())
    block.up_projection.register_forward_pre_hook(cast)
    torch.testing.assert_close(block(x.double()), block(x))
    with torch.device("meta"):  # weights that are fetched when they are needed
        offloaded = FeedForward(D, 12)
    weights = {name: weight.to("meta") for name, weight in block.up_projection.named_parameters()}

    def fetched(x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, block.up_projection.weight, block.up_projection.bias)

    assert weights.keys() == {"weight", "bias"}
    offloaded.up_projection.forward = fetched  # type: ignore[method-assign, assignment]
    offloaded.down_projection = block.down_projection
    torch.testing.assert_close(offloaded(x), block(x))


def test_a_norm_of_full_precision_serves_a_model_of_half() -> None:
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
def test_a_kernel_of_ones_own_need_not_check_masks(attention_function: Any) -> None:
    layer, x = MultiHeadAttention(D, H, attention_function=attention_function), X.right
    layer(x, x, x, mask=SELF.right)
    for wrong in mask(L, L).wrong:
        for call in (
            layer,
            lambda *inputs, **options: layer.attention_weights(*inputs[:2], **options),
        ):
            with pytest.raises((TypeError, ValueError), match=r"^mask must "):
                call(x, x, x, mask=wrong)
    with pytest.raises(TypeError, match=r"^causal must be True or False, got causal='no'$"):
        layer(x, x, x, causal="no")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("model", each) for each in (nn.Linear(D, D), nn.Linear, None, "x")),
        *(("batch_size", each) for each in size(1).wrong),
        *(("beam_size", each) for each in size(1).wrong),
    ],
)
def test_wrong_steps_to_compile_are_refused_before_anything_is_compiled(
    name: str, wrong: Any
) -> None:
    model = prepare(encoder(), compiled=True)
    right: dict[str, Any] = {"model": model, "batch_size": 1, "beam_size": 1}
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        compile_steps(**right | {name: wrong})


def test_a_wrong_call_adds_nothing_to_a_cache() -> None:
    layer, kept, x = MultiHeadAttention(D, H), KeyValueCache(), X.right
    wrongs: list[dict[str, Any]] = [
        {"mask": torch.zeros(L, L)},
        {"mask": torch.zeros(L, L + 1, dtype=torch.bool)},
        {"causal": "no"},
    ]
    with torch.no_grad():
        for wrong in wrongs:
            with pytest.raises((TypeError, ValueError), match=r"^(mask|causal) must"):
                layer(x, x, x, cache=kept, **wrong)
        with pytest.raises(TypeError, match=r"^value must have the dtype"):
            layer(x, x, x.double(), cache=kept)
    assert kept.length == 0


def test_an_end_id_that_the_model_cannot_write_is_refused_at_the_first_step() -> None:
    class Counts(Counter):
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
        model, start = Counts(), torch.tensor([1, 2])
        message = r"^end_id must be below the vocabulary's 10, got end_id=10$"
        with pytest.raises(ValueError, match=message):
            search(model, start, end_id=10, max_length=5, **options)
        assert model.steps == 1
        search(Counts(), start, end_id=9, max_length=5, **options)
        found = search(Counts(), start, end_id=None, max_length=5, **options)
        for each in found:
            each = each if isinstance(each, list) else [each]
            assert [(len(text.tokens), text.finished) for text in each] == [(5, False)]


def test_a_name_for_a_function_is_answered_with_the_function() -> None:
    message = (
        "activation must be a function or a module, got activation='gelu'; "
        "pass torch.nn.functional.gelu"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        FeedForward(D, 12, activation="gelu")  # type: ignore[arg-type]


def test_what_a_sublayer_adds_is_never_broadcast() -> None:
    class Pools(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(1, keepdim=True)

    layer = EncoderLayer(attention(), Pools(), residual=lambda: PreNorm(D))
    message = r"^sublayer must keep shape \(2, 3, 8\), got \(2, 1, 8\)$"
    with pytest.raises(ValueError, match=message):
        layer(X.right)


def test_everything_on_the_meta_device_is_taken() -> None:
    x, stack = X.right.to("meta"), EncoderDecoder(encoder(), decoder()).to("meta")
    assert stack(x, x, source_mask=CROSS.right[..., 1:].to("meta")).is_meta
    assert linear_cross_entropy(x[0], torch.empty(9, D, device="meta"), x[0, :, 0].long()).is_meta
