"""Laws that hold for any weights of a Transformer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    Encoder,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    SingleHeadAttention,
    build_decoder,
    build_encoder,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare

F64 = torch.float64
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12, "dropout": 0.0}
FUNCTIONS = [fused_attention, scaled_dot_product_attention]
both_implementations = pytest.mark.parametrize("attention_function", FUNCTIONS)
both_orders = pytest.mark.parametrize("residual", [PostNorm, PreNorm])
Model = Callable[[Tensor, Tensor | None], Tensor]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64)


def causal_layer(layer: nn.Module) -> Model:
    layer.double()
    return lambda x, mask: layer(x, x, x, mask=mask, causal=True)


def explicit_attention() -> MultiHeadAttention:
    return MultiHeadAttention(8, 2, attention_function=scaled_dot_product_attention)


def causal_encoder(**options: Any) -> Model:
    encoder = build_encoder(**SIZES, **options).double()
    return lambda x, mask: encoder(x, mask=mask, causal=True)


def decoder_with_memory(**options: Any) -> Model:
    decoder, memory = build_decoder(**SIZES, **options).double(), randn(2, 3, 8)
    return lambda x, mask: decoder(x, memory, mask=mask)


CAUSAL_MODELS: dict[str, Callable[[], Model]] = {
    "single head": lambda: causal_layer(SingleHeadAttention(8)),
    "multi head": lambda: causal_layer(MultiHeadAttention(8, 2)),
    "encoder": causal_encoder,
    "explicit pre-norm encoder": lambda: causal_encoder(
        residual=PreNorm, attention=explicit_attention
    ),
    "decoder": decoder_with_memory,
    "explicit pre-norm decoder": lambda: decoder_with_memory(
        residual=PreNorm, attention=explicit_attention
    ),
}
every_causal_model = pytest.mark.parametrize("make", CAUSAL_MODELS.values(), ids=CAUSAL_MODELS)
MASKS = [None, padding_mask(torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]]))]


@every_causal_model
@pytest.mark.parametrize("mask", MASKS, ids=["no mask", "padding"])
def test_future_tokens_cannot_change_past_outputs(
    make: Callable[[], Model], mask: Tensor | None
) -> None:
    model, x = make(), randn(2, 5, 8)
    before = model(x, mask)
    for position in range(5):
        changed = x.clone()
        changed[:, position] += randn(2, 8)
        after = model(changed, mask)
        assert torch.equal(before[:, :position], after[:, :position])
        assert not torch.equal(before[0, position:], after[0, position:])


def build_both(attention_function: Any, **options: Any) -> tuple[Encoder, Decoder]:
    """Build an encoder and a decoder whose layers have this attention function."""
    models = build_encoder(**SIZES, **options).double(), build_decoder(**SIZES, **options).double()
    for module in (*models[0].modules(), *models[1].modules()):
        if isinstance(module, MultiHeadAttention):
            module.attention_function = attention_function
    return models


def translate(
    encoder: nn.Module, decoder: nn.Module, source: Tensor, target: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    memory = encoder(source, mask=mask)
    return memory, decoder(target, memory, memory_mask=mask)


@both_implementations
@both_orders
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), more=st.integers(0, 3))
def test_neither_the_content_nor_the_amount_of_padding_changes_an_output(
    attention_function: Any, residual: type[Residual], lengths: list[int], more: int
) -> None:
    encoder, decoder = build_both(attention_function, residual=residual)
    batch, longest = len(lengths), max(lengths) + more
    source, target = randn(batch, longest, 8), randn(batch, 3, 8)
    is_token = torch.arange(longest) < torch.tensor(lengths)[:, None]
    mask = padding_mask(is_token.int())
    memory, output = translate(encoder, decoder, source, target, mask)

    changed = torch.where(is_token[..., None], source, 1e3 * randn(batch, longest, 8))
    other_memory, other_output = translate(encoder, decoder, changed, target, mask)
    assert torch.equal(memory[is_token], other_memory[is_token])
    assert torch.equal(output, other_output)

    for row, length in enumerate(lengths):
        alone = source[row : row + 1, :length], target[row : row + 1]
        own_memory, own_output = translate(encoder, decoder, *alone, None)
        torch.testing.assert_close(own_memory[0], memory[row, :length], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(own_output[0], output[row], rtol=1e-12, atol=1e-12)


@both_orders
@torch.no_grad()
def test_nan_in_padding_shows_in_its_own_sequence_only(residual: type[Residual]) -> None:
    mask = padding_mask(torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]))
    x = randn(3, 4, 8)
    x[0, 3] = torch.nan
    fused, explicit = (build_both(each, residual=residual)[0].eval() for each in FUNCTIONS)
    for encoder in (fused, explicit, prepare(fused), prepare(explicit)):
        encoded = encoder(x, mask=mask)
        assert encoded[1:].isfinite().all()
        assert encoded[0].isnan().all()


def test_sequences_of_a_batch_are_independent() -> None:
    encoder, decoder = build_both(fused_attention)
    source, target = randn(3, 4, 8).requires_grad_(), randn(3, 5, 8).requires_grad_()
    _, output = translate(encoder, decoder, source, target, None)
    output[1].cos().sum().backward()
    for x in (source, target):
        assert x.grad is not None
        assert (x.grad[[0, 2]] == 0.0).all()
        assert (x.grad[1] != 0.0).all()


@both_orders
def test_without_positions_an_encoder_is_permutation_equivariant(residual: type[Residual]) -> None:
    encoder, _ = build_both(fused_attention, residual=residual)
    x, order = randn(2, 4, 8), [2, 0, 3, 1]
    torch.testing.assert_close(encoder(x)[:, order], encoder(x[:, order]))


@every_pair(
    {
        "dtype": [F64, torch.float32, torch.bfloat16, torch.float16],
        "attention_function": FUNCTIONS,
        "residual": [PostNorm, PreNorm],
    }
)
def test_a_sequence_of_padding_alone_makes_no_output_or_gradient_infinite(
    attention_function: Any, residual: type[Residual], dtype: torch.dtype
) -> None:
    encoder, decoder = build_both(attention_function, attention_dropout=0.5, residual=residual)
    encoder, decoder = encoder.to(dtype), decoder.to(dtype)
    mask = padding_mask(torch.tensor([[1, 1, 0], [0, 0, 0]]))
    source, target = torch.randn(2, 2, 3, 8, dtype=dtype)
    with torch.autograd.set_detect_anomaly(True):
        _, output = translate(encoder, decoder, source, target, mask)
        output.float().square().sum().backward()
    assert output.isfinite().all()
    for model in (encoder, decoder):
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("build", [build_encoder, build_decoder])
def test_sublayers_of_zero_leave_a_pre_norm_input_unchanged_and_normalise_a_post_norm_one(
    build: Any,
) -> None:
    x, memory = 5.0 * randn(2, 3, 8) + 2.0, randn(2, 4, 8)
    outputs = []
    for residual in (PreNorm, PostNorm):
        model = build(**SIZES, residual=residual).double()
        for name, parameter in model.named_parameters():
            if "output_projection" in name or "down_projection" in name:
                nn.init.zeros_(parameter)
        model.norm = None
        outputs.append(model(x) if build is build_encoder else model(x, memory))
    assert torch.equal(outputs[0], x)
    deviation = x.std(-1, keepdim=True, unbiased=False)
    normalised = (x - x.mean(-1, keepdim=True)) / deviation
    torch.testing.assert_close(outputs[1], normalised, rtol=0, atol=1e-3)
