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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.public import PUBLIC
from torch import Tensor, nn

import transformer_blocks
from transformer_blocks import (
    ALiBi,
    Decoder,
    DecoderCache,
    Encoder,
    EncoderDecoder,
    ExplicitAttention,
    FeedForward,
    KeyValueCache,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    QueryKeyTransform,
    SelfAttentionCache,
    TokenEmbedding,
    add_lora,
    beam_search,
    build_decoder,
    build_encoder,
    fused_attention,
    greedy_search,
    sample,
)
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.generation import IncrementalDecoder

HOME = Path(transformer_blocks.__file__).parent


class Argument(NamedTuple):
    """A valid value of an argument, and invalid values."""

    valid: Any
    invalid: tuple[Any, ...]

    def or_none(self) -> "Argument":
        """The same argument, where None is valid too, and the default."""
        return Argument(None, tuple(each for each in self.invalid if each is not None))

    def but(self, *invalid: Any) -> "Argument":
        """The same argument with more invalid values."""
        return Argument(self.valid, (*self.invalid, *invalid))


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


def ids(*shape: int) -> Argument:
    valid = torch.ones(shape, dtype=torch.int64)
    others = valid.numpy(), valid.tolist(), None, "x", 1, valid.float(), valid.bool(), valid[None]
    return Argument(valid, others)


def mask(*shape: int) -> Argument:
    """A boolean mask, or None."""
    valid = torch.zeros(shape, dtype=torch.bool)
    invalid = valid.numpy(), valid.tolist(), "causal", True, valid.float(), valid.long()
    return Argument(None, (*invalid, valid[..., 1:], valid[None], valid.to("meta")))


def size(valid: int) -> Argument:
    return Argument(valid, (0, -1, 2.0, str(valid), True, None, torch.ones(3), int))


def number(valid: float) -> Argument:
    others = str(valid), True, None, [valid], torch.tensor([valid]), float
    return Argument(valid, (*others, math.nan, math.inf, -math.inf))


def made(valid: object, kind: type) -> Argument:
    """An instance of a class."""
    return Argument(valid, (kind, [valid], {}, "x", None, 1))


B, L, S, D, H = 2, 3, 4, 8, 2
X, MEMORY, HIDDEN = vectors(B, L, D), vectors(B, S, D), vectors(B, L, D, half=False)
KEY = vectors(B, H, S, D // H)
FLAG = Argument(False, ("no", 0, 1, None, np.True_, bool))
INTEGER = Argument(0, (1.5, "0", True, None, torch.ones(3), int))
PROBABILITY = number(0.1).but(-0.1, 1.5)
FUNCTION = Argument(torch.relu, ("gelu", nn.GELU, None, 1, [torch.relu]))
NORM = made(nn.LayerNorm(D), nn.LayerNorm).or_none()
RESIDUAL = Argument(PreNorm, ("pre", PreNorm(D), nn.Identity(), None, 1))


class Model:
    """A model with a vocabulary of ten tokens, which counts its steps."""

    steps = 0

    def step(self, tokens: Tensor) -> Tensor:
        self.steps += 1
        return torch.zeros(len(tokens), 10)

    def reorder(self, rows: Tensor) -> None: ...


class Uniform(ExplicitAttention):
    """An attention function with equal scores, which checks nothing itself."""

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        return torch.zeros(*query.shape[:3], key.shape[2])


def encoder(**options: Any) -> Encoder:
    return build_encoder(num_layers=1, d_model=D, num_heads=H, d_ff=12, **options)


def decoder() -> Decoder:
    return build_decoder(num_layers=1, d_model=D, num_heads=H, d_ff=12)


def cache() -> KeyValueCache:
    made = KeyValueCache()
    made.append(KEY.valid, KEY.valid)
    return made


@torch.no_grad()
def decoder_cache() -> DecoderCache:
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
    layer = MultiHeadAttention(D, H)
    add_lora(layer, rank=2)
    return layer


OFFSETS = torch.zeros(B, dtype=torch.int64)
ARGUMENTS: dict[str, Argument] = {  # of all calls, where OF_CALLS has no other
    "d_model": size(D),
    "d_k": size(D // H),
    **{name: size(2) for name in ("num_heads", "window", "beam_size")},
    **{name: size(1) for name in ("num_layers", "step", "n_best", "num_key_value_heads")},
    **{
        name: size(9)
        for name in ("vocabulary_size", "source_size", "target_size", "max_length", "warmup_steps")
    },
    "rank": size(2).but(D + 1),
    "d_ff": size(12),
    "length": size(3),
    "query_length": size(L),
    **{name: size(S).or_none() for name in ("key_length", "key_width", "value_width")},
    **dict.fromkeys(("p", "label_smoothing"), PROBABILITY),
    **dict.fromkeys(("dropout", "attention_dropout"), PROBABILITY.but(1.0)),
    **dict.fromkeys(("bias", "causal", "inplace", "int8"), FLAG),
    **dict.fromkeys(("padding_id", "start"), INTEGER),
    "scale": number(1.0).or_none(),
    "base": number(100.0),
    **{name: number(2.0) for name in ("factor", "low")},
    "high": number(4.0),
    "alpha": number(4).but(0, -1.0).or_none(),
    "tolerance": Argument(None, ("0", True, [1.0], -1.0, math.nan, math.inf)),
    "device": Argument(None, ()),  # checked by torch
    "x": X,
    "source": vectors(B, S, D, half=False),
    "target": HIDDEN,
    "memory": MEMORY,
    **dict.fromkeys(("mask", "target_mask"), mask(L, L)),
    **dict.fromkeys(("memory_mask", "source_mask"), mask(B, 1, 1, S)),
    "query": vectors(B, H, L, D // H),
    **dict.fromkeys(("key", "keys", "values"), KEY),
    "value": vectors(B, H, S, D // H, width=False),  # of any size
    "begin_id": Argument(1, INTEGER.but(-1).invalid),
    "rows": Argument(
        torch.tensor([0]), ([0], None, "x", 1, torch.tensor([0.0]), torch.tensor([[0]]))
    ),
    **dict.fromkeys(("tokens", "documents"), ids(B, L)),
    "lengths": ids(B),
    "key_documents": ids(B, S).or_none(),
    "offset": INTEGER.but(
        *(-1, OFFSETS.tolist(), OFFSETS.float(), OFFSETS.bool()),
        *(OFFSETS[1:], OFFSETS[None], OFFSETS.to("meta")),
    ),
    **dict.fromkeys(("activation", "output", "a", "b"), FUNCTION),
    "attention_function": Argument(fused_attention, ("fused", ALiBi, None, 1, torch.ones(3))),
    "transforms": Argument(
        (), (QueryKeyTransform(), [QueryKeyTransform], [torch.relu], None, "rotary", 1)
    ),
    **dict.fromkeys(("norm", "output_norm", "positions"), NORM),
    "sublayer": Argument(torch.tanh, ("tanh", nn.Tanh, None, 1, lambda x: x[:, :1], list)),
    "residual": Argument(lambda: PreNorm(D), ("pre", PreNorm(D), None, 1, nn.Identity, dict)),
    "cache": made(KeyValueCache(), KeyValueCache).or_none(),
    **dict.fromkeys(
        ("self_attention", "cross_attention"), made(MultiHeadAttention(D, H), MultiHeadAttention)
    ),
    "feed_forward": Argument(nn.Identity(), (nn.Identity, "relu", None, 1, torch.ones(3))),
    "layers": Argument([], (nn.Linear, [nn.Linear], "x", 1)),
    **dict.fromkeys(
        ("embedding", "source_embedding", "target_embedding"),
        made(TokenEmbedding(9, D), TokenEmbedding),
    ),
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
OF_CALLS: dict[str, dict[str, Argument]] = {}


def in_calls(*calls: str, **arguments: Argument) -> None:
    """Give arguments other values in some calls than they have in all others."""
    for name in calls:
        OF_CALLS.setdefault(name, {}).update(arguments)


OF_LAYER = Argument(None, (MultiHeadAttention(D, H), "attention", 1, dict, lambda: nn.Linear))
LABELS = Argument(None, (["a"], [1, 2, 3], 3))
HEADS = MultiHeadAttention(D, H)
TARGET = torch.tensor([[1, 2, 3], [4, 0, 0]])

IDS = ids(B, L)
in_calls("TokenEmbedding.forward", tokens=IDS.but(IDS.valid.to("meta"), IDS.valid.to(torch.int16)))
in_calls("SinusoidalPositionalEncoding.forward", x=vectors(B, L, D, weights=False))
SQUARE = torch.zeros(L, L, dtype=torch.bool)
in_calls(
    "format_mask",
    mask=Argument(SQUARE, ([[True]], None, "x", SQUARE.long(), SQUARE[0])),
    queries=LABELS,
    keys=LABELS,
)
in_calls(
    *("attention_weights", "scaled_dot_product_attention", "fused_attention"),
    *("ExplicitAttention.forward", "ExplicitAttention.attention_weights"),
    *("SlidingWindowAttention.forward", "SlidingWindowAttention.attention_weights"),
    mask=mask(L, S),
)
in_calls(
    *("SingleHeadAttention.forward", "SingleHeadAttention.attention_weights"),
    *("MultiHeadAttention.forward", "MultiHeadAttention.attention_weights"),
    "MultiHeadAttention.project",
    query=X,
    key=MEMORY,
    value=MEMORY,
    mask=mask(B, 1, 1, S),
)
in_calls("MultiHeadAttention", "GroupedQueryAttention", d_k=size(D).or_none())
PROJECTED = Argument(KEY.valid, ())  # by a layer, from what it has checked
in_calls(
    "MultiHeadAttention.attend",
    queries=PROJECTED,
    keys=PROJECTED,
    values=PROJECTED,
    mask=mask(S, S),
    causal=Argument(True, ()),
)
ANY_VECTORS = vectors(B, L, D, any_rank=True, width=False, weights=False)
in_calls("Dropout.forward", input=ANY_VECTORS)
in_calls("apply_dropout", x=ANY_VECTORS)
in_calls(
    *("FeedForward.forward", "GatedFeedForward.forward", "LoraLinear.forward"),
    *("Int8Linear.forward", "PrepackedLinear.forward"),
    x=vectors(B, L, D, any_rank=True),
)
in_calls(
    *("SandwichNorm.forward", "PostNorm.forward", "PreNorm.forward"),
    *("EncoderLayer.forward", "DecoderLayer.forward", "Encoder.forward", "Decoder.forward"),
    x=HIDDEN,
)
in_calls("Encoder.forward", cache=made(SelfAttentionCache(1), SelfAttentionCache).or_none())
in_calls("Decoder.forward", cache=made(decoder_cache(), DecoderCache).or_none())
in_calls(
    *("build_encoder", "build_decoder"),
    residual=RESIDUAL,
    attention=OF_LAYER,
    cross_attention=OF_LAYER,
    feed_forward=Argument(None, (nn.Identity(), "gated", 1, dict, lambda: None)),
)
in_calls("build_language_model", "build_seq2seq", residual=RESIDUAL)
in_calls("build_seq2seq", "Seq2Seq", padding_id=INTEGER.but(-1))
in_calls("build_language_model", "LanguageModel", padding_id=INTEGER.but(-1).or_none())
in_calls("LanguageModel", "Seq2Seq", output=NORM)
in_calls("LanguageModel", decoder=made(encoder(), Encoder))
in_calls("Seq2Seq.forward", "Seq2Seq.loss", source=ids(B, S), target=ids(B, L))
in_calls(
    *("mean_pool", "first_pool", "last_pool"),
    x=vectors(B, L, D, width=False, weights=False),
    mask=mask(L, L).but(torch.zeros(B, 1, 1, L)),
)
in_calls(
    "linear_cross_entropy",
    hidden=vectors(B, D),
    weight=vectors(9, D),
    target=ids(B),
    reduction=Argument("sum", ("none", "max", None, 1, True)),
)
in_calls("KeyValueCache.crop", length=Argument(1, (-1, 1.0, "1", True, None)))
in_calls(
    "DecoderCache",
    memory=Argument([cache()], (cache(), [KeyValueCache], [KEY.valid], KEY.valid, None, "x", 1)),
    memory_mask=Argument(None, ([[True]], "x", True, torch.zeros(B, 1, 1, S))),
)
in_calls("RotaryPositionalEncoding", scaling=Argument(torch.sqrt, ("linear", 2.0, 1)).or_none())
in_calls(
    "RelativeBias",
    num_buckets=size(32).but(2, 5),
    max_distance=size(128).but(8),
    bidirectional=Argument(True, FLAG.invalid),
)
in_calls(
    "QueryKeyNorm",
    norm=Argument(nn.RMSNorm, ("rms", nn.RMSNorm(4), None, 1, lambda width: width)),
)
for kind, options in (("RotaryPositionalEncoding", "weights"), ("QueryKeyNorm", "half")):
    for name, length in (("queries", L), ("keys", S)):
        found = vectors(B, H, length, D // H, **{options: False})
        in_calls(f"{kind}.transform_{name}", **{name: found})
in_calls(
    "add_lora",
    model=Argument(HEADS, (MultiHeadAttention, "x", None, 1, adapted())),
    modules=Argument(
        ["query_projection"],
        ("query_projection", None, 1, [], ["x"], [1], ["transforms"], [""], nn.Linear),
    ),
)
in_calls("merge_lora", model=Argument(adapted(), (MultiHeadAttention, "x", None, 1, HEADS)))
in_calls("prepare", model=made(nn.Linear(D, D), nn.Linear))
in_calls(
    "IncrementalDecoder",
    cache=Argument(
        SelfAttentionCache(1), (SelfAttentionCache, decoder_cache(), cache(), None, "x", 1)
    ),
    embed=Argument(torch.add, ("embed", None, 1, nn.Embedding)),
)
in_calls(
    "IncrementalDecoder.prefill",
    lengths=Argument(
        None,
        (
            *([0, -1], [L + 1, L], [1.0, L], ["1", L], [True, L], [None, L], [[1], L]),
            *([L], [L] * (B + 1), [], (), L, "11", {0: 1, 1: 1}, int),
            *(torch.ones(B), torch.ones(B) > 0, torch.tensor([[L] * B]), torch.tensor(L)),
            *(torch.tensor([L] * (B + 1)), torch.tensor([L + 1, 0])),
        ),
    ),
)
in_calls(
    "IncrementalDecoder.replace",
    tokens=Argument(torch.ones(1, 2, dtype=torch.int64), ids(1, L + 1).invalid),
)
in_calls(
    "left_pad",
    prompts=Argument(
        [[1, 2], [], (3,)],
        (
            *(None, 1, "", ["ab"], [b"ab"], [1, 2], [None], {0: [1]}, int),
            *([[1.0]], [[True]], [[None]], [[1], [2, 1.0]], torch.ones(1, 2)),
        ),
    ),
)
in_calls("greedy_search", "sample", "beam_search", start=ids(B), max_length=size(2))
in_calls(
    "sample",
    temperature=number(1.0).but(0.0),
    top_k=size(2).or_none(),
    top_p=number(1.0).but(0.0, 1.5).or_none(),
    generator=Argument(
        [torch.Generator() for _ in range(B)],
        (
            *(torch.Generator, {}, "x", 1, [], [torch.Generator()], [1] * B),
            [torch.Generator()] * B,
        ),
    ),
)
in_calls(
    "beam_search",
    length_penalty=number(0.6).but(-0.1, 10.5, nn.GELU),
    lookahead=Argument(None, (-1, 1.0, "never", True)),
)
in_calls(
    *("check_soundness", "assert_sound"),
    model=Argument(nn.GRU(D, D, batch_first=True), ("gru", nn.GRU, None, 1)),
    example=Argument(X.valid, (None, 1, "ids", {}, [], torch.tensor(1.0), torch.ones(0, 2))),
    causal=FLAG.or_none(),
    dependence_mask=mask(L, L),
    recursive=FLAG,
    padding_id=INTEGER.or_none(),
    new_step_model=Argument(None, ("steps", 1, [print])),  # a class may be one
)
in_calls(
    "check_labels",
    step=Argument(
        lambda tokens: (torch.eye(9)[tokens], tokens.flip(1)),
        ("shift", nn.Module, None, 1, lambda tokens: tokens, lambda tokens: (tokens, 1)),
    ),
    tokens=Argument(TARGET, (None, [[1]], torch.ones(B, L), torch.ones(L, dtype=torch.long))),
    padding_id=INTEGER.or_none(),
)
in_calls(
    "check_scorer",
    score=Argument(
        lambda tokens: torch.zeros(len(tokens), 5),
        ("sum", nn.Module, None, 1, lambda tokens: tokens, lambda tokens: torch.zeros(4, 5)),
    ),
    tokens=Argument(TARGET[0], (None, [1], TARGET, torch.ones(L))),
    vocabulary_size=size(5),
)
in_calls(
    "check_loss",
    function=Argument(lambda parts: parts[0][0].sum(), ("mean", nn.Module, None, 1)),
    logits=Argument(
        torch.randn(B, L, 9),
        (None, [1.0], torch.randn(B, 9), torch.randn(B, S, 9), torch.ones(B, L, 9).long()),
    ),
    target=Argument(
        TARGET,
        (
            *(None, [[1]], torch.ones(B, L), torch.ones(B, S, dtype=torch.long)),
            *(torch.zeros_like(TARGET), torch.ones_like(TARGET)),
        ),
    ),
)
in_calls("check_search", search=Argument(greedy_search, ("beam", nn.Module, None, 1)))
in_calls("check_equivalence", inputs=Argument([torch.ones(2)], (torch.ones(2),)))

MADE: dict[str, Callable[[], Any]] = {  # objects that a constructor alone does not make
    "ExplicitAttention": Uniform,
    "Encoder": encoder,
    "Decoder": decoder,
    "KeyValueCache": cache,
    "DecoderCache": decoder_cache,
    "IncrementalDecoder": prefilled_decoder,
    "IncrementalDecoder.prefill": incremental_decoder,
}
ALIASES = {"source_mask": "memory_mask|mask", "target_mask": "mask"}  # where it is refused
TESTED_ELSEWHERE = {  # the arguments of these have tests of their own
    *("check_cache", "check_causal", "check_padding", "ablate", "record_attention"),
    *("record_projections", "Projections", "logit_lens", "head_patterns", "HeadPattern"),
    *("explain_mask", "trace_shapes", "MaskExplanation", "Report", "Soundness", "Trace"),
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
    *("ExplicitAttention.attention_scores", "AdditiveAttention.attention_scores"),
    *("RelativeBias.attention_scores", "ALiBi.biases", "RelativeBias.biases"),
    # Parts of the forward pass of a layer, which is called with what has been checked.
    *("MultiHeadAttention.project_heads", "MultiHeadAttention.split_heads"),
    *("MultiHeadAttention.merge_heads", "MultiHeadAttention.transform_queries"),
    *("MultiHeadAttention.transform_keys", "KeyValueCache.write", "KeyValueCache.advance"),
    *("IncrementalDecoder.step", "IncrementalDecoder.reorder"),
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


def call_method(owner: str, method: str, **given: Any) -> Any:
    """Call a method of an object, which is made with the valid arguments of its class."""
    make = MADE.get(f"{owner}.{method}") or MADE.get(owner) or CALLS[owner].run
    return getattr(make(), method)(**given)


def public_calls() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """List the public functions, classes and methods: name, what is called, its signature's."""
    found: Any
    for name, found in {**PUBLIC, "apply_dropout": apply_dropout}.items():
        yield name, found, found
        if isinstance(found, type) and issubclass(found, CLASSES):
            for method, function in vars(found).items():
                is_public = not method.startswith("_") and method != "extra_repr"
                if is_public and inspect.isfunction(function):
                    yield f"{name}.{method}", partial(call_method, name, method), function


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_that_a_norm_accepts_is_refused_before_it_is_multiplied(
    dtype: torch.dtype,
) -> None:
    norm = PreNorm(D, dropout=0.0)
    assert norm(X.valid.to(dtype), lambda x: x).dtype == dtype
    message = rf"^query must have the dtype of the weights, torch.float32, got dtype={dtype}$"
    with pytest.raises(TypeError, match=message):
        encoder()(X.valid.to(dtype))


def test_inputs_are_on_the_device_of_the_weights_also_if_it_is_meta() -> None:
    x, stack = X.valid, EncoderDecoder(encoder(), decoder()).to("meta")
    mask = torch.zeros(B, 1, 1, L, dtype=torch.bool, device="meta")
    assert stack(x.to("meta"), x.to("meta"), source_mask=mask).is_meta
    with pytest.raises(ValueError, match=r"^source must be on the device of the weights, meta, "):
        stack(x, x)


def test_autocast_accepts_what_it_casts_and_nothing_else() -> None:
    layer, x, memory = MultiHeadAttention(D, H), torch.randn(B, L, D), torch.randn(B, S, D)
    expected = layer(x, memory, memory)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, memory.bfloat16(), memory.half())
        FeedForward(D, 12)(x.half())
        LearnedPositionalEncoding(D, max_length=9)(x.bfloat16())
        with pytest.raises(TypeError, match=r"^query must have the dtype of the weights, torch.fl"):
            layer(x.double(), memory, memory)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


class CastingLinear(nn.Linear):
    """A linear layer that converts its input to the dtype of its weights."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.to(self.weight.dtype))


class Around(nn.Module):
    """A linear layer inside another module, which has no attribute for its sizes."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, input: Tensor) -> Tensor:
        return self.linear(input.to(self.linear.weight.dtype))


def with_hook(linear: nn.Linear) -> nn.Module:
    linear.register_forward_pre_hook(lambda _, inputs: tuple(x.float() for x in inputs))
    return linear


def of_subclass(linear: nn.Linear) -> nn.Module:
    other = CastingLinear(linear.in_features, linear.out_features)
    other.load_state_dict(linear.state_dict())
    return other


def offloaded(linear: nn.Linear) -> Any:
    """Replace a layer's forward by one with weights that are loaded when they are needed."""
    loaded, empty = Around(copy.deepcopy(linear)), linear.to("meta")
    empty.forward = loaded.forward  # type: ignore[method-assign]
    return empty


@pytest.mark.parametrize("convert", [with_hook, of_subclass, Around, offloaded])
def test_a_part_that_may_convert_its_input_receives_any_dtype(
    convert: Callable[[nn.Linear], Any],
) -> None:
    block, x = FeedForward(D, 12), torch.randn(B, L, D)
    expected = block(x)
    with pytest.raises(TypeError, match=r"^x must have the dtype"):
        block(x.double())
    block.up_projection = convert(block.up_projection)
    torch.testing.assert_close(block(x.double()), expected)


def test_a_check_never_computes_a_weight() -> None:
    layer = MultiHeadAttention(D, H)
    nn.utils.parametrizations.spectral_norm(layer.query_projection)
    computed = []
    norm: Any = layer.query_projection.parametrizations
    norm.weight[0].register_forward_hook(lambda *_: computed.append(1))
    layer(X.valid, X.valid, X.valid)
    assert len(computed) == 1  # by the projection itself


@pytest.mark.parametrize(
    "attention_function",
    [Uniform(), lambda query, key, value, **options: query],
    ids=["module", "function"],
)
def test_a_layer_checks_masks_for_any_attention_function(attention_function: Any) -> None:
    layer, x = MultiHeadAttention(D, H, attention_function=attention_function), X.valid
    layer(x, x, x, mask=SQUARE)
    for invalid in mask(L, L).invalid:
        with pytest.raises((TypeError, ValueError), match=r"^mask must "):
            layer(x, x, x, mask=invalid)
    with pytest.raises(TypeError, match=r"^causal must be True or False, got causal='no'$"):
        layer(x, x, x, causal="no")


@pytest.mark.parametrize("search", [greedy_search, sample, partial(beam_search, beam_size=2)])
def test_an_end_id_outside_the_vocabulary_is_refused_at_the_first_step(search: Any) -> None:
    model, start = Model(), torch.tensor([1, 2])
    message = r"^end_id must be below the vocabulary size 10, got end_id=10$"
    with pytest.raises(ValueError, match=message):
        search(model, start, end_id=10, max_length=5)
    assert model.steps == 1
    search(model, start, end_id=9, max_length=5)
