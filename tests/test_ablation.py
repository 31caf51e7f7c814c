"""Ablation takes out what it says and nothing else, and puts everything back."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    AdditiveAttention,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    attention_weights,
    build_decoder,
    build_encoder,
    fused_attention,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import ablate

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
KERNELS: list[Any] = [
    fused_attention,
    scaled_dot_product_attention,
    AdditiveAttention(4, 4),
]


@pytest.mark.parametrize("attention_function", KERNELS, ids=["fused", "formula", "additive"])
def test_silent_heads_hand_over_nothing(attention_function: Any) -> None:
    attention = MultiHeadAttention(16, 4, attention_function=attention_function).eval()
    x = torch.randn(2, 5, 16)
    keys, values = attention.project(x, x)
    queries = attention.query_projection(x).unflatten(-1, (4, 4)).transpose(1, 2)
    mixed = attention.attend(queries, keys, values).clone()
    mixed[:, [1, 3]] = 0.0
    expected = attention.output_projection(mixed.transpose(1, 2).flatten(2))
    with ablate(attention, heads={"": [1, 3]}), record_attention(attention) as maps:
        torch.testing.assert_close(attention(x, x, x), expected)
    with record_attention(attention) as whole:
        attention(x, x, x)
    assert torch.equal(maps[""][0], whole[""][0])  # it still looks, but finds nothing


def test_a_silent_module_answers_with_zeros() -> None:
    decoder = build_decoder(**SIZES, residual=PreNorm).eval()
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    names = [f"layers.{layer}.cross_attention" for layer in (0, 1)]
    with ablate(decoder, silent=names):
        assert torch.equal(decoder(x, memory), decoder(x, torch.randn(2, 5, 16)))
    assert not torch.allclose(decoder(x, memory), decoder(x, torch.randn(2, 5, 16)))


@pytest.mark.parametrize("kind", [PreNorm, PostNorm])
def test_a_residual_loses_its_input(kind: type[PreNorm] | type[PostNorm]) -> None:
    residual, x = kind(16).eval(), torch.randn(2, 3, 16)
    feed_forward = FeedForward(16, 32)
    expected = feed_forward(residual.norm(x)) if kind is PreNorm else residual.norm(feed_forward(x))
    with ablate(residual, residuals=[""]):
        assert torch.equal(residual(x, feed_forward), expected)
    assert not torch.equal(residual(x, feed_forward), expected)


def test_without_positions_the_order_is_lost() -> None:
    model = nn.Sequential(SinusoidalPositionalEncoding(16), build_encoder(**SIZES)).eval()
    x, order = torch.randn(1, 6, 16), torch.tensor([3, 1, 5, 0, 2, 4])
    with ablate(model, positions=True):
        torch.testing.assert_close(model(x[:, order]), model(x)[:, order])
        assert torch.equal(model[0](x), x)
    assert not torch.allclose(model(x[:, order]), model(x)[:, order], atol=1e-3)


def test_without_the_scale_scores_are_not_divided() -> None:
    x = torch.randn(1, 5, 16)
    many, single = MultiHeadAttention(16, 4).eval(), SingleHeadAttention(16).eval()
    model = nn.ModuleList([many, single])
    with ablate(model, scale=True), record_attention(model) as maps:
        outputs = many(x, x, x), single(x, x, x)
    queries = many.query_projection(x).unflatten(-1, (4, 4)).transpose(1, 2)
    keys, values = many.project(x, x)
    weights = attention_weights(queries, keys, scale=1.0)
    expected = many.output_projection((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(outputs[0], expected)
    torch.testing.assert_close(maps["0"][0], weights)
    torch.testing.assert_close(
        maps["1"][0],
        attention_weights(
            single.query_projection(x)[:, None], single.key_projection(x)[:, None], scale=1.0
        ),
    )
    assert not torch.allclose(outputs[1], single(x, x, x))
    assert single.scale is None


def everything(model: nn.Module) -> dict[str, Any]:
    """Everything that a module holds, by name."""
    return {
        f"{name}.{key}": dict(value) if isinstance(value, dict) else value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("attention_function", KERNELS, ids=["fused", "formula", "additive"])
def test_everything_is_put_back_exactly(attention_function: Any, fails: bool) -> None:
    model = nn.ModuleDict(
        {
            "positions": SinusoidalPositionalEncoding(16),
            "encoder": build_encoder(**SIZES, attention_function=attention_function),
        }
    ).eval()
    x = torch.randn(2, 5, 16)
    before, expected = everything(model), model["encoder"](x)
    layer = "encoder.layers.0"
    parts: dict[str, Any] = {
        "heads": {f"{layer}.self_attention": [0], "encoder.layers.1.self_attention": [1, 2]},
        "silent": [f"{layer}.feed_forward"],
        "residuals": [f"{layer}.self_attention_residual"],
        "positions": True,
        "scale": not isinstance(attention_function, AdditiveAttention),  # which has none
    }
    try:
        with ablate(model, **parts), ablate(model, **parts):
            assert not torch.allclose(model["encoder"](x), expected)
            if fails:
                raise KeyError("inside")
    except KeyError:
        assert fails
    after = everything(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        same = (
            torch.equal(value, after[name]) if isinstance(value, Tensor) else value == after[name]
        )
        assert same, name
    assert torch.equal(model["encoder"](x), expected)


@torch.no_grad()
def test_writing_by_steps_is_ablated_as_the_whole_is() -> None:
    decoder = build_decoder(**SIZES).eval()
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    parts: dict[str, Any] = {
        "heads": {"layers.1.self_attention": [2], "layers.0.cross_attention": [0]},
        "residuals": ["layers.0.feed_forward_residual"],
        "scale": True,
    }
    with ablate(decoder, **parts):
        whole = decoder(x, memory)
        cache = decoder.new_cache(memory)
        steps = [decoder(part, cache=cache) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"heads": {"x": [0]}}, ValueError, r"^model must have a module of that name, got 'x'$"),
        (
            {"heads": {"layers.0.self_attention": [4]}},
            ValueError,
            r"^heads of 'layers\.0\.self_attention' must be in 0\.\.3, got 4$",
        ),
        (
            {"heads": {"layers.0": [0]}},
            TypeError,
            r"^'layers\.0' must be MultiHeadAttention, got EncoderLayer$",
        ),
        (
            {"residuals": ["layers.0.feed_forward"]},
            TypeError,
            r"^'layers\.0\.feed_forward' must be PreNorm or PostNorm, got FeedForward$",
        ),
        ({"positions": True}, ValueError, r"^model must have a positional encoding, got none in"),
    ],
)
def test_what_is_not_there_cannot_be_taken_out(
    parts: dict[str, Any], error: type[Exception], message: str
) -> None:
    encoder = build_encoder(**SIZES)
    before = everything(encoder)
    with pytest.raises(error, match=message), ablate(encoder, silent=["layers.1"], **parts):
        raise AssertionError("the block must not begin")
    assert everything(encoder).keys() == before.keys()
    assert not encoder.layers[1]._forward_hooks


def test_a_model_without_attention_has_no_scale_and_a_packed_one_is_refused() -> None:
    with (
        pytest.raises(
            ValueError, match=r"^model must have an attention layer, got none in Linear$"
        ),
        ablate(nn.Linear(3, 3), scale=True),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"^model must not be prepared; ablate the one that was"),
        ablate(prepare(build_encoder(**SIZES)), scale=True),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"^model must not be prepared; ablate the one that was"),
        ablate(prepare(build_decoder(**SIZES), linear=lambda part: part), scale=True),
    ):
        pass
    additive = MultiHeadAttention(16, 4, attention_function=AdditiveAttention(4, 4))
    before = everything(additive)
    with (
        pytest.raises(ValueError, match=r"^additive attention must be left as it is: it has no"),
        ablate(additive, scale=True, silent=[""]),
    ):
        pass
    assert everything(additive).keys() == before.keys()
    assert not additive._forward_hooks


def test_a_module_that_returns_no_tensor_cannot_be_silent() -> None:
    recurrent = nn.LSTM(4, 4)
    with (
        pytest.raises(
            TypeError, match=r"^a silent module must return a tensor, got tuple from LSTM"
        ),
        ablate(recurrent, silent=[""]),
    ):
        recurrent(torch.randn(2, 1, 4))


def test_a_copy_that_is_made_within_computes_with_its_own_weights() -> None:
    residual, x = PreNorm(16).eval(), torch.randn(2, 3, 16)
    with ablate(residual, residuals=[""]):
        copied = copy.deepcopy(residual)
    nn.init.zeros_(copied.norm.get_parameter("weight"))
    assert torch.equal(copied(x, lambda x: x), torch.zeros_like(x))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"heads": [1.5]}, r"^heads must map names of attention layers to collections of head num"),
        ({"heads": {"": [1.5]}}, r"^heads of '' must be integers, got 1\.5$"),
        ({"heads": {"": [True]}}, r"^heads of '' must be integers, got True$"),
        ({"heads": {"": 1}}, r"^heads of '' must be a collection, got 1$"),
        ({"silent": "layers.0"}, r"^silent must be a collection of module names, got 'layers\.0'$"),
        ({"residuals": None}, r"^residuals must be a collection of module names, got None$"),
        ({"scale": "no"}, r"^scale must be True or False, got scale='no'$"),
        ({"positions": 0}, r"^positions must be True or False, got positions=0$"),
    ],
)
def test_arguments_of_another_kind_are_refused(parts: dict[str, Any], message: str) -> None:
    attention = MultiHeadAttention(16, 4)
    with pytest.raises(TypeError, match=message), ablate(attention, **parts):
        raise AssertionError("the block must not begin")
