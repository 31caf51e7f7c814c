"""What a learner gets wrong: each mistake raises an error that says what to change.

Messages are ours where torch would go on silently, or would say something else; where torch or
Python itself is clear, theirs are expected here.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    DecoderLayer,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    SelfAttentionCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    add_lora,
    attention_weights,
    build_decoder,
    build_encoder,
    build_language_model,
    build_seq2seq,
    fused_attention,
    greedy_search,
    padding_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.generation import IncrementalDecoder

STACK: dict[str, Any] = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
X, MEMORY, Q = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 4, 5, 8)
IDS = torch.ones(2, 5, dtype=torch.int64)
MASK = torch.zeros(2, 1, 1, 5, dtype=torch.bool)
ATTENTION, EMBEDDING = MultiHeadAttention(8, 2), TokenEmbedding(10, 8)
ENCODER, DECODER = build_encoder(**STACK), build_decoder(**STACK)
BOTH = EncoderDecoder(ENCODER, DECODER)
MODEL = build_language_model(10, **STACK).eval()
TRANSLATOR = build_seq2seq(10, 12, **STACK).eval()
LEARNED = LearnedPositionalEncoding(8, max_length=9)
POSITIONS = SinusoidalPositionalEncoding(8, max_length=9)
POLARITY = "mask must be bool, where True hides a key, got dtype=torch."
SHAPES = "must have shape (L, S) = (5, 5) or (B|1, H|1, L|1, S) = (2|1, 2|1, 5|1, 5), got "


def layer(**parts: Any) -> EncoderLayer:
    own: dict[str, Any] = {
        "self_attention": ATTENTION,
        "feed_forward": nn.Identity(),
        "residual": PreNorm,
    }
    return EncoderLayer(**own | parts)


def cross_attention(attention: MultiHeadAttention) -> DecoderLayer:
    return DecoderLayer(ATTENTION, attention, nn.Identity(), residual=lambda: PreNorm(8))


def attend(function: Any) -> Tensor:
    return MultiHeadAttention(8, 2, attention_function=function)(X, X, X)


def generate(search: Any = greedy_search, prompts: Any = ([1],), **options: Any) -> object:
    return MODEL.generate(prompts, search, **{"max_length": 2, "end_id": None} | options)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    # Sizes and other numbers.
    (
        lambda: MultiHeadAttention(10, 3),
        "d_model must be divisible by num_heads, got d_model=10 and num_heads=3",
    ),
    (
        lambda: MultiHeadAttention(16, 4, num_key_value_heads=3),
        "num_heads must be divisible by num_key_value_heads, got num_heads=4 and num_key_value_",
    ),
    (lambda: FeedForward(8, 0), "d_ff must be positive, got d_ff=0"),
    (
        lambda: TokenEmbedding("10", 8),  # type: ignore[arg-type]
        "vocabulary_size must be an int, got vocabulary_size='10'",
    ),
    (lambda: FeedForward(8, 12, dropout=10), "dropout must be in [0, 1), got dropout=10"),
    (lambda: PreNorm(8, dropout=torch.nan), "dropout must be finite, got dropout=nan"),
    (
        lambda: FeedForward(8, 12, bias="no"),  # type: ignore[arg-type]
        "bias must be True or False, got bias='no'",
    ),
    (lambda: RotaryPositionalEncoding(5), "d_k must be even, got d_k=5"),
    (lambda: add_lora(ENCODER, rank=99), "rank must be at most 8, the size of the layer, got "),
    # A class for an instance, an instance for a class, a name for a function.
    (
        lambda: FeedForward(8, 12, activation=nn.GELU),  # type: ignore[arg-type]
        "activation must be a function or a module, got the class GELU",
    ),
    (
        lambda: FeedForward(8, 12, activation="gelu"),  # type: ignore[arg-type]
        "activation must be a function or a module, got activation='gelu'; "
        "pass torch.nn.functional.gelu",
    ),
    (
        lambda: PreNorm(8, norm=nn.LayerNorm),  # type: ignore[arg-type]
        "norm must be an instance of Module, got the class LayerNorm",
    ),
    (
        lambda: layer(residual=PreNorm(8)),
        "residual must be a class, or a function that returns a new module, got PreNorm",
    ),
    (
        lambda: layer(residual=nn.Identity),
        "residual must be an instance of Residual, got Identity",
    ),
    (
        lambda: attend("flash"),
        "attention_function must be a function or a module, got attention_function='flash'",
    ),
    (
        lambda: attend(F.scaled_dot_product_attention),  # whose mask has the opposite rule
        "attention_function must accept mask, causal, dropout by name, got <built-in function",
    ),
    (
        lambda: cross_attention(MultiHeadAttention(8, 2, transforms=[RotaryPositionalEncoding(4)])),
        "cross_attention must use no positions, got RotaryPositionalEncoding(",
    ),
    # Shapes.
    (
        lambda: ATTENTION(X[..., :6], X, X),
        "query must have shape (B, L, 8), got (2, 5, 6)",
    ),
    (lambda: ATTENTION(X, X[..., :6], X), "key must have shape (B, S, 8), got (2, 5, 6)"),
    (lambda: ATTENTION(X[0], X[0], X[0]), "query must have shape (B, L, 8), got (5, 8)"),
    (lambda: ATTENTION(X, X[:1], X[:1]), "query and key must agree in batch size B, got 2 and 1"),
    (lambda: ATTENTION(X, MEMORY, X), "key and value must agree in length S, got 7 and 5"),
    (lambda: ENCODER(X[0]), "query must have shape (B, L, 8), got (5, 8)"),
    (lambda: BOTH(MEMORY[:1], X), "query and key must agree in batch size B, got 2 and 1"),
    (lambda: fused_attention(X, X, X), "query must have shape (B, H, L, d_k), got (2, 5, 8)"),
    (
        lambda: build_encoder(**STACK, residual=PreNorm)(X[..., :6]),
        "Given normalized_shape=[8], expected input with shape [*, 8], but got input of size[2, 5",
    ),
    (
        lambda: FeedForward(8, 12)(X[..., :6]),
        "mat1 and mat2 shapes cannot be multiplied (10x6 and 8x12)",
    ),
    (lambda: LEARNED(X[..., :1]), "x must have shape (B, L, 8), got (2, 5, 1)"),
    (
        lambda: PreNorm(8)(X, lambda x: x[:, :1]),
        "sublayer must keep shape (2, 5, 8), got (2, 1, 8)",
    ),
    (
        lambda: PreNorm(8)(X, lambda x: (x, x)),
        "the output of sublayer must be a tensor, got tuple",
    ),
    (
        lambda: attend(lambda query, key, value, **options: query.transpose(1, 2)),
        "attention_function must return an output of shape (B, H, L, d_v) = (2, 2, 5, 4), got (2",
    ),
    # Tensors of another kind.
    (
        lambda: ATTENTION(X.numpy(), X, X),
        "query must be a tensor, got ndarray; torch.as_tensor makes one",
    ),
    (lambda: BOTH(None, X), "query must be a tensor, got query=None"),
    (lambda: ENCODER(IDS), "query must be a floating-point tensor, got dtype=torch.int64"),
    (lambda: MODEL(X), "tokens must be integer ids, got dtype=torch.float32"),
    (lambda: EMBEDDING(IDS[0]), "tokens must have shape (B, L), got (5,)"),
    (
        lambda: LEARNED(X.half()),  # torch would return float32
        "x must have the dtype of the weights, torch.float32, got dtype=torch.float16",
    ),
    (lambda: POSITIONS(X.long()), "x must be a floating-point tensor, got dtype=torch.int64"),
    (
        lambda: ATTENTION(X.double(), X, X),
        "mat1 and mat2 must have the same dtype, but got Double and Float",
    ),
    (
        lambda: attention_weights(Q.half(), Q),  # which would be converted
        "query and key must have one dtype, got torch.float16 and torch.float32",
    ),
    # Masks.
    (lambda: ENCODER(X, mask=MASK.float()), f"{POLARITY}float32; a comparison gives a boolean "),
    (lambda: ENCODER(X, mask=[[True]]), "mask must be a tensor, got list; torch.as_tensor makes"),
    (lambda: ENCODER(X, mask="causal"), "mask must be a tensor, got mask='causal'"),
    (lambda: ENCODER(X, mask=MASK[:, 0, 0]), f"mask {SHAPES}(2, 5); padding_mask(tokens) and "),
    (lambda: ATTENTION(X, X, X, causal="no"), "causal must be True or False, got causal='no'"),
    (
        lambda: BOTH(X, X, source_mask=torch.zeros(5, 5, dtype=torch.bool)),
        "memory_mask must be given with a source_mask that is not the same for every query, ",
    ),
    # Arguments of other names or places.
    (
        lambda: ENCODER(X, src_key_padding_mask=MASK),
        "Encoder.forward() got an unexpected keyword argument 'src_key_padding_mask'",
    ),
    (
        lambda: ENCODER(X, MASK),
        "Encoder.forward() takes 2 positional arguments but 3 were given",
    ),
    (lambda: BOTH(X), "EncoderDecoder.forward() missing 1 required positional argument: 'target'"),
    (
        lambda: ATTENTION(X),
        "key and value must both be passed, or a cache that holds them",
    ),
    (
        lambda: FeedForward(8),  # type: ignore[call-arg]
        "FeedForward.__init__() missing 1 required positional argument: 'd_ff'",
    ),
    (
        lambda: DECODER(X),
        "memory must be given with its memory_mask, or instead a cache that holds both",
    ),
    # Positions and caches.
    (
        lambda: POSITIONS(torch.zeros(1, 10, 8)),
        "positions must stay below max_length, got offset=0 + length=10 > max_length=9",
    ),
    (
        lambda: ENCODER(X, cache=SelfAttentionCache(2)),
        "cache must be of this stack with 1 layers, got one of 2",
    ),
    (
        lambda: ENCODER(X, cache=SelfAttentionCache(1)),
        "a cache stores no gradients; decode inside `with torch.no_grad():`",
    ),
    (
        lambda: IncrementalDecoder(ENCODER, X, embed=torch.add, output=torch.relu),  # type: ignore[arg-type]
        "cache must be an instance of SelfAttentionCache or DecoderCache, got Tensor",
    ),
    # Tokens and generation.
    (
        lambda: EMBEDDING(10 * IDS),
        "token ids must be in 0..9 (vocabulary_size=10), got id 10 at position 0 of sequence 0",
    ),
    (
        lambda: TRANSLATOR.loss(IDS, 2 * IDS),
        "target must begin with begin_id=1 in every row",
    ),
    (lambda: generate("greedy"), "search must be a function such as greedy_search, beam_search or"),
    (lambda: generate(end_id=99), "end_id must be below the vocabulary size 10, got end_id=99"),
    (
        lambda: greedy_search(MODEL, IDS[:, 0], end_id=None, max_length=2),  # type: ignore[arg-type]
        "model must be an object with a method step, got LanguageModel; call its method generate",
    ),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[text[:40] for _, text in MISTAKES])
def test_a_mistake_of_a_learner_raises_an_error_that_says_what_to_change(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, RuntimeError)) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("attention_function", [scaled_dot_product_attention, fused_attention])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (Q, Q[:, :, :4], "key and value must agree in length S, got 5 and 4"),
        (Q[:, :1], Q, "key and value must agree in the number of heads G, got 1 and 4"),
        (Q.double(), Q, "query and key must have one dtype, got torch.float32 and torch.float64"),
        (
            Q[:, :3],
            Q[:, :3],
            "query and key must share heads evenly, got 4 and 3",
        ),
    ],
)
def test_attention_reports_inputs_that_do_not_fit(
    attention_function: Any, key: Tensor, value: Tensor, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        attention_function(Q, key, value)


ACCEPT_A_MASK: list[Callable[[Tensor], Any]] = [
    lambda mask: scaled_dot_product_attention(Q, Q, Q, mask=mask),
    lambda mask: MultiHeadAttention(8, 4)(X, X, X, mask=mask),
    lambda mask: build_decoder(**STACK | {"num_heads": 4})(X, X, memory_mask=mask),
]


@pytest.mark.parametrize("call", ACCEPT_A_MASK, ids=["function", "layer", "memory"])
def test_a_mask_is_refused_with_the_accepted_shapes(call: Callable[[Tensor], Any]) -> None:
    for shape in (
        *[(), (5,), (1, 5), (5, 4), (2, 5, 5), (8, 5, 5), (2, 4, 5, 5, 5)],
        *[(3, 1, 1, 5), (2, 3, 5, 5), (1, 1, 4, 5), (2, 4, 5, 1)],
    ):
        message = (
            "mask must have shape (L, S) = (5, 5) or (B|1, H|1, L|1, S) = (2|1, 4|1, 5|1, 5), "
            f"got {shape}; padding_mask(tokens) and causal_mask(L, S) build these shapes"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(torch.zeros(shape, dtype=torch.bool))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_and_the_smallest_number_of_64_bits_are_ids_and_scales(number: int) -> None:
    tokens = torch.tensor([[1, number]])
    assert padding_mask(tokens, number).flatten().tolist() == [False, True]
    query, key, value = torch.randn(3, 1, 1, 2, 4).unbind()
    explicit, _ = scaled_dot_product_attention(query, key, value, scale=number)
    torch.testing.assert_close(fused_attention(query, key, value, scale=number), explicit)


def test_a_method_of_a_class_says_that_its_module_is_missing() -> None:
    with pytest.raises(TypeError, match=r"missing .* required positional arguments: 'self' and 'q"):
        cast(Any, MultiHeadAttention).forward()
