"""What a learner gets wrong: each mistake raises an error that says what to change.

Messages are ours where torch would go on silently, or would say something else; where torch or
Python itself is clear, theirs are expected here.
"""

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
    (lambda: FeedForward(8, 12, dropout=10), "dropout must be in [0, 1), got dropout=10"),
    # A class for an instance, an instance for a class, a name for a function.
    (
        lambda: FeedForward(8, 12, activation="gelu"),  # type: ignore[arg-type]
        "activation must be a function or a module, got activation='gelu'; "
        "pass torch.nn.functional.gelu",
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
        lambda: attend(F.scaled_dot_product_attention),  # whose mask has the opposite rule
        "scaled_dot_product_attention() got an unexpected keyword argument 'mask'",
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
    (lambda: ATTENTION(X, X[:1], X[:1]), "query and key must agree in batch size B, got 2 and 1"),
    (lambda: ATTENTION(X, MEMORY, X), "key and value must agree in length S, got 7 and 5"),
    (lambda: fused_attention(X, X, X), "query must have shape (B, H, L, d_k), got (2, 5, 8)"),
    (
        lambda: build_encoder(**STACK, residual=PreNorm)(X[..., :6]),
        "Given normalized_shape=[8], expected input with shape [*, 8], but got input of size[2, 5",
    ),
    (
        lambda: FeedForward(8, 12)(X[..., :6]),
        "mat1 and mat2 shapes cannot be multiplied (10x6 and 8x12)",
    ),
    (
        lambda: PreNorm(8)(X, lambda x: x[:, :1]),
        "sublayer must keep shape (2, 5, 8), got (2, 1, 8)",
    ),
    # Tensors of another kind.
    (
        lambda: ATTENTION(X.numpy(), X, X),
        "query must be a tensor, got ndarray; torch.as_tensor makes one",
    ),
    (lambda: ENCODER(IDS), "query must be a floating-point tensor, got dtype=torch.int64"),
    (lambda: MODEL(X), "tokens must be integer ids, got dtype=torch.float32"),
    (
        lambda: LEARNED(X.half()),  # torch would return float32
        "x must have the dtype of the weights, torch.float32, got dtype=torch.float16",
    ),
    (
        lambda: ATTENTION(X.double(), X, X),
        "mat1 and mat2 must have the same dtype, but got Double and Float",
    ),
    (
        lambda: attention_weights(Q.half(), Q),  # which would be converted
        "query and key must have one dtype, got torch.float16 and torch.float32",
    ),
    (
        lambda: fused_attention(Q, Q[:, :3], Q[:, :3]),
        "query and key must share heads evenly, got 4 and 3",
    ),
    # Masks.
    (lambda: ENCODER(X, mask=MASK.float()), f"{POLARITY}float32; a comparison gives a boolean "),
    (lambda: ENCODER(X, mask=MASK[:, 0, 0]), f"mask {SHAPES}(2, 5); padding_mask(tokens) and "),
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
        lambda: DECODER(X),
        "memory must be given with its memory_mask, or instead a cache that holds both",
    ),
    # Positions and caches.
    (
        lambda: POSITIONS(torch.zeros(1, 10, 8)),
        "positions must stay below max_length, got offset=0 + length=10 > max_length=9",
    ),
    (
        lambda: ENCODER(X, cache=SelfAttentionCache(1)),
        "a cache stores no gradients; decode inside `with torch.no_grad():`",
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
    (lambda: generate(end_id=10), "end_id must be below the vocabulary size 10, got end_id=10"),
    (
        lambda: MODEL.start([[1]])[0].prefill(IDS, lengths=[6, 5]),
        "lengths must be in 0..5, the length of tokens, got [6]",
    ),
    (
        lambda: MODEL.start([[1]])[0].prefill(IDS, lengths=[5, -1]),
        "lengths must be in 0..5, the length of tokens, got [-1]",
    ),
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
