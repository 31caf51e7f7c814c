"""Bad input raises an error of the right type that names the argument, the rule and the value."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_blocks import (
    ALiBi,
    EncoderDecoder,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    attention_weights,
    build_decoder,
    build_encoder,
    causal_mask,
    format_mask,
    fused_attention,
    greedy_search,
    noam_rate,
    noam_schedule,
    padding_mask,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare

SGD = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
STACK: dict[str, Any] = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}


class NeverCalled:
    """A model whose methods must not be called."""

    def step(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def reorder(self, rows: Tensor) -> None:
        raise NotImplementedError


def greedy(**sizes: Any) -> Any:
    return greedy_search(NeverCalled(), torch.tensor([1]), end_id=0, **sizes)


SIZED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (TokenEmbedding, {"vocabulary_size": 10, "d_model": 8}),
    (SinusoidalPositionalEncoding, {"d_model": 8, "max_length": 9}),
    (LearnedPositionalEncoding, {"d_model": 8, "max_length": 9}),
    (causal_mask, {"query_length": 3, "key_length": 4}),
    (SingleHeadAttention, {"d_model": 8}),
    (MultiHeadAttention, {"d_model": 8, "num_heads": 2, "key_width": 6, "value_width": 6}),
    (FeedForward, {"d_model": 8, "d_ff": 12}),
    (PostNorm, {"d_model": 8}),
    (PreNorm, {"d_model": 8}),
    (build_encoder, STACK),
    (build_decoder, STACK),
    (noam_rate, {"step": 1, "d_model": 8, "warmup_steps": 10}),
    (lambda **sizes: noam_schedule(SGD, **sizes), {"d_model": 8, "warmup_steps": 10}),
    (greedy, {"max_length": 3}),
]
EVERY_SIZE = [
    pytest.param(make, sizes, name, id=f"{getattr(make, '__name__', '')}-{name}")
    for make, sizes in SIZED
    for name in sizes
]


@pytest.mark.parametrize(("make", "sizes", "name"), EVERY_SIZE)
def test_a_size_is_a_positive_integer(
    make: Callable[..., Any], sizes: dict[str, Any], name: str
) -> None:
    for bad in (0, -1):
        with pytest.raises(ValueError, match=rf"^{name} must be positive, got {name}={bad}$"):
            make(**sizes | {name: bad})
    for other in (2.0, "8", True, math.nan):
        with pytest.raises(TypeError, match=rf"^{name} must be an int, got {name}={other!r}$"):
            make(**sizes | {name: other})


HAVE_DROPOUT: list[tuple[Callable[..., Any], dict[str, Any], list[str]]] = [
    (MultiHeadAttention, {"d_model": 8, "num_heads": 2}, ["dropout"]),
    (FeedForward, {"d_model": 8, "d_ff": 12}, ["dropout"]),
    (PostNorm, {"d_model": 8}, ["dropout"]),
    (PreNorm, {"d_model": 8}, ["dropout"]),
    (build_encoder, STACK, ["dropout", "attention_dropout"]),
    (build_decoder, STACK, ["dropout", "attention_dropout"]),
    (
        fused_attention,
        dict.fromkeys(("query", "key", "value"), torch.ones(1, 1, 1, 1)),
        ["dropout"],
    ),
    (
        scaled_dot_product_attention,
        dict.fromkeys(("query", "key", "value"), torch.ones(1, 1, 1, 1)),
        ["dropout"],
    ),
]


@pytest.mark.parametrize(
    ("make", "arguments", "name"),
    [(make, arguments, name) for make, arguments, names in HAVE_DROPOUT for name in names],
)
def test_a_dropout_probability_is_at_least_zero_and_below_one(
    make: Callable[..., Any], arguments: dict[str, Any], name: str
) -> None:
    for bad in (-0.1, 1.0, 1.5, math.nan, math.inf):
        message = rf"^{name} must be in \[0, 1\), got {name}={bad}$"
        with pytest.raises(ValueError, match=message):
            make(**arguments, **{name: bad})
    for other in ("0.1", None, True):
        with pytest.raises(TypeError, match=rf"^{name} must be a number, got {name}={other!r}$"):
            make(**arguments, **{name: other})
    make(**arguments, **{name: 0})


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


Q = zeros(2, 4, 5, 8)
IMPLEMENTATIONS = [scaled_dot_product_attention, fused_attention]
both_implementations = pytest.mark.parametrize("attention_function", IMPLEMENTATIONS)


@both_implementations
@pytest.mark.parametrize(
    ("key", "value", "kind", "message"),
    [
        (
            zeros(2, 4, 5, 6),
            zeros(2, 4, 5, 8),
            ValueError,
            "query and key must agree in size d_k, got 8 and 6",
        ),
        (
            zeros(2, 4, 5, 8),
            zeros(2, 4, 6, 8),
            ValueError,
            "key and value must agree in length S, got 5 and 6",
        ),
        (
            zeros(3, 4, 5, 8),
            zeros(3, 4, 5, 8),
            ValueError,
            "query and key must agree in batch size B, got 2 and 3",
        ),
        (
            zeros(2, 1, 5, 8),
            zeros(2, 4, 5, 8),
            ValueError,
            "key and value must agree in the number of heads G, got 1 and 4",
        ),
        (
            zeros(5, 8),
            zeros(2, 4, 5, 8),
            ValueError,
            "key must have shape (B, G, S, d_k), got (5, 8)",
        ),
        (
            zeros(2, 4, 5, 8, dtype=torch.float64),
            zeros(2, 4, 5, 8),
            TypeError,
            "query and key must have one dtype, got torch.float32 and torch.float64",
        ),
    ],
    ids=["width", "length", "batch", "heads", "two dimensions", "dtype"],
)
def test_attention_reports_inputs_that_do_not_fit(
    attention_function: Any, key: Tensor, value: Tensor, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        attention_function(Q, key, value)


X = zeros(2, 5, 8)


@pytest.mark.parametrize(
    ("query", "key", "value", "kind", "message"),
    [
        (X, zeros(2, 5, 6), X, ValueError, "key must have shape (B, S, 8), got (2, 5, 6)"),
        (X, X, zeros(2, 5, 6), ValueError, "value must have shape (B, S, 8), got (2, 5, 6)"),
        (zeros(5, 8), X, X, ValueError, "query must have shape (B, L, 8), got (5, 8)"),
        (
            X,
            X,
            zeros(2, 6, 8),
            ValueError,
            "key and value must agree in length S, got 5 and 6",
        ),
        (X, zeros(3, 5, 8), zeros(3, 5, 8), ValueError, "must agree in batch size B, got 2 and 3"),
        (
            X,
            X.double(),
            X,
            TypeError,
            "key must have the dtype of the weights, torch.float32, got dtype=torch.float64",
        ),
    ],
    ids=["key width", "value width", "two dimensions", "length", "batch", "dtype"],
)
@pytest.mark.parametrize(
    "layer", [SingleHeadAttention(8), MultiHeadAttention(8, 2)], ids=["single", "multi"]
)
def test_a_layer_reports_inputs_that_do_not_fit(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        layer(query, key, value)


@pytest.mark.parametrize(
    "make",
    [MultiHeadAttention, lambda d, h: build_encoder(**STACK | {"d_model": d, "num_heads": h})],
)
def test_num_heads_must_divide_d_model(make: Any) -> None:
    message = "d_model must be divisible by num_heads, got d_model=10 and num_heads=3"
    with pytest.raises(ValueError, match=f"^{message}$"):
        make(10, 3)


def decode(**masks: Tensor) -> Tensor:
    return build_decoder(**STACK | {"num_heads": 4})(X, X, **masks)


ACCEPT_A_MASK: dict[str, Callable[[Tensor], Any]] = {
    "explicit": lambda mask: scaled_dot_product_attention(Q, Q, Q, mask=mask),
    "fused": lambda mask: fused_attention(Q, Q, Q, mask=mask),
    "fused causal": lambda mask: fused_attention(Q, Q, Q, mask=mask, causal=True),
    "weights": lambda mask: attention_weights(Q, Q, mask=mask),
    "layer": lambda mask: MultiHeadAttention(8, 4)(X, X, X, mask=mask),
    "encoder": lambda mask: build_encoder(**STACK | {"num_heads": 4})(X, mask=mask),
    "decoder": lambda mask: decode(mask=mask),
    "memory": lambda mask: decode(memory_mask=mask),
}
every_caller = pytest.mark.parametrize("call", ACCEPT_A_MASK.values(), ids=ACCEPT_A_MASK)


@every_caller
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32], ids=str)
def test_a_mask_that_is_not_boolean_is_refused_with_the_mask_rule(
    call: Callable[[Tensor], Any], dtype: torch.dtype
) -> None:
    message = (
        rf"^(memory_)?mask must be bool, where True hides a key, got dtype={dtype}; a comparison "
    )
    with pytest.raises(TypeError, match=message):
        call(zeros(5, 5, dtype=dtype))


@every_caller
@pytest.mark.parametrize(
    "shape",
    [
        *[(), (5,), (1, 5), (5, 4), (2, 5, 5), (8, 5, 5), (1, 2, 4, 5, 5)],
        *[(3, 1, 1, 5), (2, 3, 5, 5), (1, 1, 4, 5), (2, 4, 5, 1)],
    ],
    ids=str,
)
def test_a_mask_that_does_not_fit_is_refused_with_the_accepted_shapes(
    call: Callable[[Tensor], Any], shape: tuple[int, ...]
) -> None:
    message = (
        "must have shape (L, S) = (5, 5) or (B|1, H|1, L|1, S) = (2|1, 4|1, 5|1, 5), "
        f"got {shape}; padding_mask(tokens) and causal_mask(L, S) build these shapes"
    )
    with pytest.raises(ValueError, match=f"^(memory_)?mask {re.escape(message)}$"):
        call(zeros(*shape, dtype=torch.bool))


@pytest.mark.parametrize(
    "kind", [SinusoidalPositionalEncoding, LearnedPositionalEncoding], ids=["sinusoidal", "learned"]
)
def test_positions_with_an_offset_stay_below_max_length(kind: Any) -> None:
    positions = kind(8, max_length=9)
    for length, offset in ((10, 0), (5, 5), (1, 9), (1, 10**9)):
        message = (
            f"positions must stay below max_length, "
            f"got offset={offset} + length={length} > max_length=9"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            positions(zeros(1, length, 8), offset=offset)
    with pytest.raises(ValueError, match=r"^offset must be at least 0, got offset=-1$"):
        positions(zeros(1, 2, 8), offset=-1)
    with pytest.raises(ValueError, match=r"^x must have shape \(B, L, 8\), got \(1, 2, 6\)$"):
        positions(zeros(1, 2, 6))
    positions(zeros(1, 4, 8), offset=5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: TokenEmbedding(10, 8)(zeros(2, 3)),
            TypeError,
            "tokens must be int32 or int64 ids, got dtype=torch.float32",
        ),
        (
            lambda: TokenEmbedding(10, 8)(zeros(2, 3, dtype=torch.bool)),
            TypeError,
            "tokens must be int32 or int64 ids, got dtype=torch.bool",
        ),
        (
            lambda: TokenEmbedding(10, 8)(zeros(3, dtype=torch.int64)),
            ValueError,
            "tokens must have shape (B, L), got (3,)",
        ),
        (
            lambda: padding_mask(zeros(2, 3)),
            TypeError,
            "tokens must be integer ids, got dtype=torch.float32",
        ),
        (
            lambda: padding_mask(zeros(2, 3, dtype=torch.bool)),
            TypeError,
            "tokens must be integer ids, got dtype=torch.bool",
        ),
        (
            lambda: padding_mask(zeros(3, dtype=torch.int64)),
            ValueError,
            "tokens must have shape (B, S), got (3,)",
        ),
        (
            lambda: format_mask(zeros(3, 3)),
            TypeError,
            "mask must be bool, where True hides a key, got dtype=torch.float32; a comparison "
            "gives a boolean mask, for example `mask == 0` if 0 marks masked keys",
        ),
        (
            lambda: format_mask(zeros(2, 3, 3, dtype=torch.bool)),
            ValueError,
            "mask must have shape (L, S) or (B, H, L, S), got (2, 3, 3)",
        ),
        (
            lambda: format_mask(causal_mask(3), queries=["a", "b"]),
            ValueError,
            "queries and keys must match the mask's shape (3, 3), got 2 and 3 labels",
        ),
    ],
)
def test_tokens_and_formatted_masks_of_the_wrong_type_are_refused(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()


def test_recording_hides_no_error_of_the_model() -> None:
    layer = MultiHeadAttention(8, 2)
    with record_attention(layer), pytest.raises(TypeError, match="mask must be bool"):
        layer(X, X, X, mask=zeros(5, 5))
    with pytest.raises(TypeError, match="mask must be bool"):
        layer(X, X, X, mask=zeros(5, 5))


def test_start_tokens_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"start must have shape \(N,\), got \(2, 1\)"):
        greedy_search(NeverCalled(), torch.tensor([[1], [1]]), end_id=0, max_length=3)


def test_positional_encodings_are_not_added_to_integers() -> None:
    positions = SinusoidalPositionalEncoding(8)
    with pytest.raises(
        TypeError, match=r"x must be a floating-point tensor, got dtype=torch\.int64"
    ):
        positions(torch.zeros(1, 3, 8, dtype=torch.int64))


@pytest.mark.parametrize("build", [build_encoder, build_decoder])
def test_a_residual_instance_is_no_factory(build: Callable[..., Any]) -> None:
    message = r"^residual must return a new PreNorm at each call, got a PreNorm instance$"
    with pytest.raises(TypeError, match=message):
        build(**STACK, residual=PreNorm(8))
    layer = type(build(**STACK).layers[0])
    attentions = [MultiHeadAttention(8, 2) for _ in range(1 + (build is build_decoder))]
    with pytest.raises(TypeError, match=message):
        layer(*attentions, FeedForward(8, 12), residual=PreNorm(8))


@pytest.mark.parametrize(
    ("attention_function", "message"),
    [
        (ALiBi, "attention_function must be an instance, got the class ALiBi"),
        (
            "fused",
            "attention_function must be a function or a module, got attention_function='fused'",
        ),
    ],
)
def test_an_attention_function_must_be_callable(attention_function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        MultiHeadAttention(8, 2, attention_function=attention_function)


@pytest.mark.parametrize(
    "reduce",
    [
        lambda value: value.mean(2, keepdim=True),  # (B, H, 1, d_k), which broadcasts
        lambda value: value[:, :1],
        lambda value: value[:1],
        lambda value: value[..., :1],
        lambda value: value[0],
        lambda value: value.transpose(1, 2),
    ],
)
@pytest.mark.parametrize("as_pair", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_an_output_of_an_attention_function_has_one_vector_for_each_query_and_head(
    reduce: Callable[[Tensor], Tensor], as_pair: bool, prepared: bool
) -> None:
    def attention_function(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Any:
        return (reduce(value), query) if as_pair else reduce(value)

    model = build_encoder(
        num_layers=1,
        d_model=8,
        d_ff=12,
        attention=lambda: MultiHeadAttention(8, 2, attention_function=attention_function),
    )
    model = prepare(model) if prepared else model
    rule = (
        r"^attention_function must return an output of shape "
        r"\(B, H, L, d_k\) = \(3, 2, 5, 4\), got \("
    )
    with pytest.raises(ValueError, match=rule), torch.no_grad():
        model(torch.randn(3, 5, 8))


INPUT, HIDDEN = torch.randn(2, 6, 8), torch.zeros(2, 6, dtype=torch.bool)
AN_ENCODER, A_DECODER = build_encoder(**STACK), build_decoder(**STACK)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: AN_ENCODER(INPUT, src_key_padding_mask=HIDDEN),
            "arguments of Encoder.forward must be x, m",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(INPUT, INPUT, INPUT, attn_mask=HIDDEN),
            "arguments of MultiHeadAtt",
        ),
        (
            lambda: A_DECODER(INPUT, INPUT, tgt_mask=HIDDEN),
            "arguments of Decoder.forward must be x, memory, m",
        ),
        (
            lambda: EncoderDecoder(AN_ENCODER, A_DECODER)(INPUT),
            "target must be passed to EncoderDecoder.forw",
        ),
        (
            lambda: AN_ENCODER(INPUT, HIDDEN),
            "mask, causal, cache must be passed to Encoder.forward by name",
        ),
        (
            lambda: AN_ENCODER.layers[0](INPUT, HIDDEN),
            "mask, causal, cache must be passed to EncoderLayer",
        ),
        (A_DECODER.new_cache, "memory must be passed to Decoder.new_cache"),
    ],
)
def test_arguments_of_other_names_or_places_are_answered_by_ours(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}") as caught:
        call()
    assert str(caught.value).endswith("True hides a key") or message.startswith(
        ("memory", "target")
    )
