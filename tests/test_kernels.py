"""What every kernel keeps, whatever it makes of a query and a key."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    AdditiveAttention,
    ALiBi,
    AttentionFunction,
    Encoder,
    EncoderLayer,
    FeedForward,
    GroupedQueryAttention,
    MultiHeadAttention,
    PreNorm,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    fused_attention,
    padding_mask,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import check_causal
from transformer_blocks.kernels import weights_of

HEADS, WIDTH = 4, 4
D_MODEL = HEADS * WIDTH
KERNELS: dict[str, Callable[[], AttentionFunction]] = {
    "fused": lambda: fused_attention,
    "readable": lambda: scaled_dot_product_attention,
    "additive": lambda: AdditiveAttention(WIDTH, HEADS),
    "rotary": lambda: RotaryPositionalEncoding(WIDTH),
    "alibi": lambda: ALiBi(HEADS),
    "norm": lambda: QueryKeyNorm(WIDTH),
    "norm, then rotary": lambda: QueryKeyNorm(
        WIDTH, attention_function=RotaryPositionalEncoding(WIDTH)
    ),
}
LAYERS: dict[str, Callable[[], MultiHeadAttention]] = {
    name: lambda make=make: MultiHeadAttention(D_MODEL, HEADS, attention_function=make())
    for name, make in KERNELS.items()
} | {
    "grouped": lambda: GroupedQueryAttention(D_MODEL, HEADS, 2),
    "grouped, rotary": lambda: GroupedQueryAttention(
        D_MODEL, HEADS, 1, attention_function=RotaryPositionalEncoding(WIDTH)
    ),
}
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
def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make(), torch.randn(2, 6, D_MODEL, requires_grad=True)
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
def test_the_recorded_weights_are_those_that_mix(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make().double(), torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    plain = attention(x, x, x, mask=MASK, causal=True)
    with record_attention(attention) as maps:
        y = attention(x, x, x, mask=MASK, causal=True)
    assert torch.equal(y, plain)
    weights = maps[""][0]
    _, values = attention.project(x, x)
    values = values.repeat_interleave(HEADS // values.shape[1], dim=1)
    expected = attention.output_projection((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("scale", [None, 0.2, 3.0])
@torch.no_grad()
def test_the_weights_of_a_kernel_are_those_that_it_mixes_with_at_every_scale(
    make: Callable[[], AttentionFunction], scale: float | None
) -> None:
    attention_function: Any = make()
    query, key = torch.randn(2, 2, HEADS, 6, WIDTH, dtype=torch.float64)
    attention_function = (
        attention_function.double()
        if isinstance(attention_function, nn.Module)
        else attention_function
    )
    unit_vectors = torch.eye(6, dtype=torch.float64).expand(2, HEADS, 6, 6)  # mix to the weights
    for options in ({"scale": scale}, {"scale": scale, "causal": True}):
        mixed = attention_function(query, key, unit_vectors, **options)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        weights = weights_of(attention_function)(query, key, **options)
        torch.testing.assert_close(weights, mixed, rtol=0, atol=1e-12)
        if scale is not None:  # which changes them
            assert not torch.allclose(
                weights, weights_of(attention_function)(query, key, causal=False)
            )


@every_layer
@torch.no_grad()
def test_steps_with_a_cache_give_what_one_pass_gives(
    make: Callable[[], MultiHeadAttention],
) -> None:
    encoder = make_encoder(make).double()
    x = torch.randn(2, 12, D_MODEL, dtype=torch.float64)
    whole = encoder(x, causal=True)
    for model in (encoder, prepare(encoder)):
        cache = model.new_cache()
        steps = [model(part, causal=True, cache=cache) for part in x.split([3, 1, 1, 5, 2], dim=1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-12)


@every_layer
def test_nobody_sees_later_words_and_all_see_earlier_ones(
    make: Callable[[], MultiHeadAttention],
) -> None:
    encoder = make_encoder(make)
    report = check_causal(lambda x: encoder(x, causal=True), torch.randn(2, 6, D_MODEL))
    assert report, report


@every_layer
@torch.no_grad()
def test_padding_changes_nothing_on_either_side(make: Callable[[], MultiHeadAttention]) -> None:
    encoder = make_encoder(make).double()
    x = torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    alone = encoder(x[1:, :3])
    for model in (encoder, prepare(encoder)):
        torch.testing.assert_close(model(x, mask=MASK)[1:, :3], alone, rtol=0, atol=1e-12)
        flipped = model(x.flip(1), mask=MASK.flip(3))[1:, 3:]  # the padding in front
        torch.testing.assert_close(flipped, encoder(x.flip(1)[1:, 3:]), rtol=0, atol=1e-12)


@every_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_low_precision_is_near_and_kept(
    make: Callable[[], MultiHeadAttention], dtype: torch.dtype
) -> None:
    attention, x = make(), torch.randn(2, 6, D_MODEL)
    expected = attention(x, x, x, mask=MASK)
    low = copy.deepcopy(attention).to(dtype)
    found = low(*(x.to(dtype),) * 3, mask=MASK)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["fused", "readable", "additive", "alibi"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_large_scores_are_as_exact_in_half_precision_as_small_ones(
    name: str, dtype: torch.dtype, autocast: bool
) -> None:
    attention_function: Any = KERNELS[name]()
    if isinstance(attention_function, nn.Module):
        attention_function = attention_function.to(dtype)
    query, key, value = torch.randn(3, 2, HEADS, 40, WIDTH).to(dtype).unbind()
    mask = torch.rand(2, 1, 40, 40) < 0.3
    for scale in (0.5, 5.0, 50.0):
        options: dict[str, Any] = {"mask": mask, "scale": scale}
        with torch.autocast("cpu", dtype, enabled=autocast):
            found = attention_function(query, key, value, **options)
        wide = (
            copy.deepcopy(attention_function).double()
            if isinstance(attention_function, nn.Module)
            else attention_function
        )
        exact = wide(query.double(), key.double(), value.double(), **options)
        if name == "fused":
            found, exact = (found,), (exact,)
        limit = 2 * torch.finfo(dtype).eps * float(value.abs().max())
        for low, high in zip(found, exact, strict=True):
            assert low.dtype == dtype
            torch.testing.assert_close(low.double(), high, rtol=0, atol=limit)


@every_layer
def test_a_copy_with_the_saved_weights_is_the_same(
    make: Callable[[], MultiHeadAttention],
) -> None:
    attention, x = make(), torch.randn(2, 6, D_MODEL)
    again = make()
    again.load_state_dict(attention.state_dict())
    assert torch.equal(again(x, x, x), attention(x, x, x))


@every_layer
def test_gradients_are_right(make: Callable[[], MultiHeadAttention]) -> None:
    attention = make().double()
    x = torch.randn(1, 3, D_MODEL, dtype=torch.float64, requires_grad=True)

    def attend(x: Tensor) -> Tensor:
        return attention(x, x, x, causal=True)

    assert torch.autograd.gradcheck(attend, x, fast_mode=True)
