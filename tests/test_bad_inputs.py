"""Bad input raises an error of the right type that names the argument, the rule and the value."""

import re
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    EncoderDecoder,
    FeedForward,
    GroupedQueryAttention,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    build_decoder,
    build_encoder,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)

STACK: dict[str, Any] = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"d_ff": 0}, "d_ff must be positive, got d_ff=0"),
    ({"d_ff": 2.0}, "d_ff must be an int, got d_ff=2.0"),
    ({"dropout": 1.0}, "dropout must be in [0, 1), got dropout=1.0"),
    ({"dropout": None}, "dropout must be a number, got dropout=None"),
    ({"bias": "no"}, "bias must be True or False, got bias='no'"),
    ({"activation": nn.GELU}, "activation must be an instance, got the class GELU"),
    (
        {"activation": "gelu"},
        "activation must be a function or a module, got activation='gelu'; "
        "pass torch.nn.functional.gelu",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MESSAGES)
def test_a_message_names_the_argument_the_rule_and_the_value(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        FeedForward(**{"d_model": 8, "d_ff": 12} | arguments)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


Q, X = zeros(2, 4, 5, 8), zeros(2, 5, 8)


@pytest.mark.parametrize("attention_function", [scaled_dot_product_attention, fused_attention])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (zeros(2, 4, 5, 6), Q, "query and key must agree in size d_k, got 8 and 6"),
        (Q, zeros(2, 4, 6, 8), "key and value must agree in length S, got 5 and 6"),
        (zeros(3, 4, 5, 8), Q, "query and key must agree in batch size B, got 2 and 3"),
        (zeros(2, 1, 5, 8), Q, "key and value must agree in the number of heads G, got 1 and 4"),
        (zeros(5, 8), Q, "key must have shape (B, G, S, d_k), got (5, 8)"),
        (Q.double(), Q, "query and key must have one dtype, got torch.float32 and torch.float64"),
        (
            zeros(2, 3, 5, 8),
            zeros(2, 3, 5, 8),
            "query and key must agree in the number of heads, or that of query must be a multiple "
            "of that of key, got 4 and 3",
        ),
    ],
)
def test_attention_reports_inputs_that_do_not_fit(
    attention_function: Any, key: Tensor, value: Tensor, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        attention_function(Q, key, value)


def test_numbers_of_heads_that_do_not_divide_are_refused() -> None:
    message = "d_model must be divisible by num_heads, got d_model=10 and num_heads=3"
    with pytest.raises(ValueError, match=f"^{message}$"):
        MultiHeadAttention(10, 3)
    message = "num_heads must be divisible by num_key_value_heads, got num_heads=4 and num_k"
    with pytest.raises(ValueError, match=f"^{message}"):
        GroupedQueryAttention(16, 4, 3)


ACCEPT_A_MASK: list[Callable[[Tensor], Any]] = [
    lambda mask: scaled_dot_product_attention(Q, Q, Q, mask=mask),
    lambda mask: MultiHeadAttention(8, 4)(X, X, X, mask=mask),
    lambda mask: build_decoder(**STACK | {"num_heads": 4})(X, X, memory_mask=mask),
]


@pytest.mark.parametrize("call", ACCEPT_A_MASK, ids=["function", "layer", "memory"])
def test_a_mask_is_refused_with_the_mask_rule_or_the_accepted_shapes(
    call: Callable[[Tensor], Any],
) -> None:
    message = r"^(memory_)?mask must be bool, where True hides a key, got dtype=torch.int64; a comp"
    with pytest.raises(TypeError, match=message):
        call(zeros(5, 5, dtype=torch.int64))
    for shape in (
        *[(), (5,), (1, 5), (5, 4), (2, 5, 5), (8, 5, 5), (2, 4, 5, 5, 5)],
        *[(3, 1, 1, 5), (2, 3, 5, 5), (1, 1, 4, 5), (2, 4, 5, 1)],
    ):
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
    positions(zeros(1, 4, 8), offset=5)


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


@pytest.mark.parametrize("number", [10**30, -(2**63) - 1, 2**63, 10**400])
@pytest.mark.parametrize(
    "call",
    [
        lambda number: fused_attention(*torch.ones(3, 1, 1, 2, 4), scale=number),
        lambda number: RotaryPositionalEncoding(8, base=number),
        lambda number: padding_mask(torch.tensor([[1, 2]]), number),
    ],
)
def test_a_number_of_more_bits_than_torch_computes_with_is_refused_where_it_is_given(
    call: Callable[[int], object], number: int
) -> None:
    with pytest.raises(ValueError, match=r"^(scale|base|padding_id) must (have|be) at "):
        call(number)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_and_the_smallest_number_of_64_bits_are_ids_and_scales(number: int) -> None:
    tokens = torch.tensor([[1, number]])
    assert padding_mask(tokens, number).flatten().tolist() == [False, True]
    query, key, value = torch.randn(3, 1, 1, 2, 4).unbind()
    explicit, _ = scaled_dot_product_attention(query, key, value, scale=number)
    torch.testing.assert_close(fused_attention(query, key, value, scale=number), explicit)


def test_a_method_of_a_class_says_that_its_module_is_missing() -> None:
    with pytest.raises(TypeError, match=r"missing .* required positional arguments: 'self' and"):
        cast(Any, Decoder).forward()
