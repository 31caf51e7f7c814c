"""Laws of every attention function and of every transform, as parts of a layer."""

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    AdditiveAttention,
    ALiBi,
    AttentionFunction,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GatedAttention,
    KeyValueCache,
    LatentAttention,
    MultiHeadAttention,
    PreNorm,
    QueryKeyNorm,
    QueryKeyTransform,
    RelativeBias,
    RotaryPositionalEncoding,
    SinkAttention,
    SlidingWindowAttention,
    YarnScaling,
    attention_weights,
    fused_attention,
    packed_mask,
    padding_mask,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import check_soundness

HEADS, D_K = 4, 4
D_MODEL = HEADS * D_K


def relative_bias(**options: Any) -> RelativeBias:
    """Make biases as large as the dot products, and buckets that are fewer than the distances."""
    made = RelativeBias(HEADS, num_buckets=8, max_distance=5, **options)
    nn.init.normal_(made.weight)
    return made


def sinks(**options: Any) -> SinkAttention:
    made = SinkAttention(HEADS, **options)
    nn.init.normal_(made.sinks)
    return made


FUNCTIONS: dict[str, Callable[[], AttentionFunction]] = {
    "fused": lambda: fused_attention,
    "explicit": lambda: scaled_dot_product_attention,
    "additive": lambda: AdditiveAttention(D_K, HEADS),
    "alibi": lambda: ALiBi(HEADS),
    "relative bias": relative_bias,
    "relative bias, causal": lambda: relative_bias(bidirectional=False),
    "window": lambda: SlidingWindowAttention(4),
    "sinks": sinks,
    "sinks, window": lambda: sinks(window=4),
}


def in_dtype(attention_function: AttentionFunction, dtype: torch.dtype) -> Any:
    """Return an attention function whose parameters, if it has any, are of a dtype."""
    if isinstance(attention_function, nn.Module):
        return copy.deepcopy(attention_function).to(dtype)
    return attention_function


TRANSFORMS: dict[str, Callable[[], list[QueryKeyTransform]]] = {
    "rotary": lambda: [RotaryPositionalEncoding(D_K)],
    "partial rotary": lambda: [
        RotaryPositionalEncoding(D_K, rotated=2, scaling=YarnScaling(4.0, length=8))
    ],
    "norm": lambda: [QueryKeyNorm(D_K)],
    "norm, rotary": lambda: [QueryKeyNorm(D_K), RotaryPositionalEncoding(D_K)],
}


def multi_head(**options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(D_MODEL, HEADS, **options)


def latent(**options: Any) -> LatentAttention:
    rotary = RotaryPositionalEncoding(4, scaling=YarnScaling(4.0, length=8))
    options |= {"latent_size": 6, "value_size": 3, "rotary": rotary, "bias": True}
    return LatentAttention(D_MODEL, HEADS, **options)


def grouped(groups: int = 2, **options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(D_MODEL, HEADS, num_key_value_heads=groups, **options)


LAYERS: dict[str, Callable[[], MultiHeadAttention]] = (
    {
        name: lambda make=make: multi_head(attention_function=make())
        for name, make in FUNCTIONS.items()
    }
    | {name: lambda make=make: multi_head(transforms=make()) for name, make in TRANSFORMS.items()}
    | {
        "large heads": lambda: multi_head(d_k=D_MODEL),
        "grouped": grouped,
        "latent": latent,
        "latent queries, sinks": lambda: latent(query_latent_size=5, attention_function=sinks()),
        "gated": lambda: GatedAttention(D_MODEL, HEADS, num_key_value_heads=2, bias=False),
        "gated, rotary": lambda: GatedAttention(
            D_MODEL, HEADS, transforms=TRANSFORMS["norm, rotary"](), headwise=True
        ),
        "grouped, large heads": lambda: grouped(d_k=D_MODEL),
        "grouped, norm, rotary": lambda: grouped(1, transforms=TRANSFORMS["norm, rotary"]()),
        "grouped, alibi": lambda: grouped(attention_function=ALiBi(HEADS)),
        "grouped, relative bias": lambda: grouped(attention_function=relative_bias()),
    }
)
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


TOKENS = torch.tensor([[5, 6, 7, 8, 9, 4], [4, 3, 2, 0, 0, 0]])
MASK = padding_mask(TOKENS)


def make_encoder(make: Callable[[], MultiHeadAttention]) -> Encoder:
    layers = [
        EncoderLayer(make(), FeedForward(D_MODEL, 24), residual=lambda: PreNorm(D_MODEL))
        for _ in range(2)
    ]
    return Encoder(layers, norm=nn.LayerNorm(D_MODEL)).eval()


@every_layer
def test_a_fully_masked_query_has_zero_weights_and_finite_gradients(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make(), torch.randn(2, 6, D_MODEL, requires_grad=True)
    if attention.output_projection.bias is not None:
        nn.init.zeros_(attention.output_projection.bias)
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[2] = True
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        y = attention(x, x, x, mask=mask)
        y.square().sum().backward()
    assert (y[:, 2] == 0).all()
    assert (attention.attention_weights(x, x, mask=mask)[:, :, 2] == 0).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@every_layer
@torch.no_grad()
def test_the_recorded_weights_are_those_of_the_output(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make().double(), torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    plain = attention(x, x, x, mask=MASK, causal=True)
    with record_attention(attention) as maps:
        y = attention(x, x, x, mask=MASK, causal=True)
    assert torch.equal(y, plain)
    weights = maps[""][0]
    keys, values = attention.project(x, x)
    if isinstance(attention, LatentAttention):
        _, values = attention.expand(keys, values)
    values = values.repeat_interleave(HEADS // values.shape[1], dim=1)
    expected = attention.project_output(weights @ values, x)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("scale", [None, 0.2, 3.0])
@torch.no_grad()
def test_the_weights_are_those_of_the_output_at_every_scale(
    make: Callable[[], AttentionFunction], scale: float | None
) -> None:
    attention_function = in_dtype(make(), torch.float64)
    query, key = torch.randn(2, 2, HEADS, 6, D_K, dtype=torch.float64)
    weights_of: Any = getattr(attention_function, "attention_weights", attention_weights)
    # With unit vectors as values, the outputs are the weights.
    unit_vectors = torch.eye(6, dtype=torch.float64).expand(2, HEADS, 6, 6)
    for options in ({"scale": scale}, {"scale": scale, "causal": True}):
        output = attention_function(query, key, unit_vectors, **options)
        weights = weights_of(query, key, **options)
        if isinstance(output, tuple):  # the weights are those before dropout
            again = attention_function(query, key, unit_vectors, dropout=0.9, **options)
            assert torch.equal(output[1], again[1])
            output = output[0]
        torch.testing.assert_close(weights, output, rtol=0, atol=1e-12)
        if scale is not None:  # another scale gives other weights
            assert not torch.allclose(weights, weights_of(query, key, causal=False))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(2, HEADS + 1, 6, D_K), (2, HEADS, 6, D_K + 1)])
def test_a_function_with_parameters_of_heads_refuses_another_number_or_size_of_them(
    name: str, shape: tuple[int, ...]
) -> None:
    x, is_of_size = torch.randn(shape), shape[1] == HEADS
    accepts = name != "additive" if is_of_size else name in ("fused", "explicit", "window")
    message = rf"^query must have shape \(B, {HEADS}, L, (d_k|{D_K})\), got "
    with nullcontext() if accepts else pytest.raises(ValueError, match=message):
        FUNCTIONS[name]()(x, x, x)


@pytest.mark.parametrize("name", ["alibi", "relative bias", "rotary", "norm, rotary"])
def test_more_queries_than_keys_have_no_positions(name: str) -> None:
    layer, x = LAYERS[name](), torch.randn(1, 5, D_MODEL)
    message = "no more queries than keys, got L=5 and S=4|^start must be at least 0, got start=-1$"
    for call in (lambda *x: layer(*x, x[1]), layer.attention_weights):
        with pytest.raises(ValueError, match=message):
            call(x, x[:, :4])


@every_layer
@torch.no_grad()
def test_what_depends_on_the_order_of_the_keys_suits_no_cross_attention(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, memory = make().double(), torch.randn(2, 7, D_MODEL, dtype=torch.float64)
    x, moved = memory[:, :3].sin(), memory.roll(1, dims=1)
    same = torch.allclose(attention(x, memory, memory), attention(x, moved, moved))
    parts = multi_head(), attention, FeedForward(D_MODEL, 24)
    with nullcontext() if same else pytest.raises(ValueError, match=r"^cross_attention must use "):
        DecoderLayer(*parts, residual=lambda: PreNorm(D_MODEL))


def test_a_function_of_a_user_says_itself_that_it_depends_on_the_order_of_the_keys() -> None:
    def nearest(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return fused_attention(query, key[:, :, -1:], value[:, :, -1:])

    parts = multi_head(), multi_head(attention_function=nearest), FeedForward(D_MODEL, 24)
    DecoderLayer(*parts, residual=lambda: PreNorm(D_MODEL))
    vars(nearest)["uses_positions"] = True
    with pytest.raises(ValueError, match=r"^cross_attention must use no positions, got <function"):
        DecoderLayer(*parts, residual=lambda: PreNorm(D_MODEL))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@every_layer
def test_a_vectorised_layer_computes_what_it_computes_for_each_batch(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention = make().double()
    x = torch.randn(3, 2, 6, D_MODEL, dtype=torch.float64, requires_grad=True)
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1], [3, 3, 3, 3, 3, 3]])

    def attend(x: Tensor, documents: Tensor) -> Tensor:
        return attention(x, x, x, mask=packed_mask(documents[None]), causal=True)

    expected = torch.stack([attend(*each) for each in zip(x, documents, strict=True)])
    found = torch.vmap(attend)(x, documents)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    of_found, of_expected = (torch.autograd.grad(y.cos().sum(), x) for y in (found, expected))
    torch.testing.assert_close(of_found, of_expected, rtol=0, atol=1e-12)
    one = partial(attend, documents=documents[0])
    expected = torch.stack([one(each) for each in x])
    torch.testing.assert_close(torch.vmap(one)(x), expected, rtol=0, atol=1e-12)


@every_layer
@torch.no_grad()
def test_cached_steps_equal_one_full_pass(make: Callable[[], MultiHeadAttention]) -> None:
    encoder = make_encoder(make).double()
    x = torch.randn(2, 12, D_MODEL, dtype=torch.float64)
    expected = encoder(x, causal=True)
    for model in (encoder, prepare(encoder)):
        for sizes in ([1] * 12, [3, 1, 1, 5, 2], [12]):
            cache = model.new_cache()
            steps = [model(part, causal=True, cache=cache) for part in x.split(sizes, dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-12)


@every_layer
@torch.no_grad()
def test_weights_with_a_cache_are_those_of_one_full_pass(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make().double(), torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    expected = attention.attention_weights(x, x, causal=True)
    cache = KeyValueCache()
    for start, end in ((0, 2), (2, 3), (3, 6)):
        part = x[:, start:end]
        with record_attention(attention) as maps:
            attention(part, part, part, causal=True, cache=cache)
        torch.testing.assert_close(maps[""][0], expected[:, :, start:end, :end], rtol=0, atol=1e-12)


@every_layer
def test_causal_attention_depends_on_no_later_and_on_all_earlier_positions(
    make: Callable[[], MultiHeadAttention],
) -> None:
    encoder = make_encoder(make)
    x = torch.randn(2, 6, D_MODEL)
    report = check_soundness(lambda x: encoder(x, causal=True), x, only="causality")
    assert report, report


@every_layer
@torch.no_grad()
def test_padding_on_either_side_changes_no_output(make: Callable[[], MultiHeadAttention]) -> None:
    encoder = make_encoder(make).double()
    x = torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    alone = encoder(x[1:, :3])
    for model in (encoder, prepare(encoder)):
        torch.testing.assert_close(model(x, mask=MASK)[1:, :3], alone, rtol=0, atol=1e-12)
        flipped = model(x.flip(1), mask=MASK.flip(3))[1:, 3:]  # the padding in front
        torch.testing.assert_close(flipped, encoder(x.flip(1)[1:, 3:]), rtol=0, atol=1e-12)


@every_pair(
    {"name": FUNCTIONS, "dtype": [torch.bfloat16, torch.float16], "autocast": [False, True]}
)
@torch.no_grad()
def test_large_scores_in_half_precision_are_as_exact_as_small_ones(
    name: str, dtype: torch.dtype, autocast: bool
) -> None:
    attention_function = in_dtype(FUNCTIONS[name](), dtype)
    wide = in_dtype(attention_function, torch.float64)
    query, key, value = torch.randn(3, 2, HEADS, 40, D_K).to(dtype).unbind()
    mask = torch.rand(2, 1, 40, 40) < 0.3
    for scale in (0.5, 5.0, 50.0):
        options: dict[str, Any] = {"mask": mask, "scale": scale}
        with torch.autocast("cpu", dtype, enabled=autocast):
            found = attention_function(query, key, value, **options)
        exact = wide(query.double(), key.double(), value.double(), **options)
        if not isinstance(found, tuple):
            found, exact = (found,), (exact,)
        limit = 2 * torch.finfo(dtype).eps * float(value.abs().max())
        for low, high in zip(found, exact, strict=True):
            assert low.dtype == dtype
            torch.testing.assert_close(low.double(), high, rtol=0, atol=limit)
