"""Packing: the copy computes what the model does, and the model stays as it is."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import PrepackedLinear, prepare
from transformer_blocks.inference.layers import FusedQKVAttention, InferenceDecoderLayer
from transformer_blocks.inference.linear import PrepackedFeedForward

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 2e-5}
LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (3, 7), (0, 2)])
@torch.no_grad()
def test_a_packed_stack_computes_the_same(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    encoder = build_encoder(**SIZES).to(dtype).eval()
    decoder = build_decoder(**SIZES, residual=PreNorm).to(dtype).eval()
    x, y = torch.randn(*shape, 16, dtype=dtype), torch.randn(shape[0], 4, 16, dtype=dtype)
    limits: dict[str, Any] = {"rtol": 0, "atol": LIMITS[dtype]}
    torch.testing.assert_close(prepare(encoder)(x, causal=True), encoder(x, causal=True), **limits)
    torch.testing.assert_close(prepare(decoder)(y, x), decoder(y, x), **limits)


@pytest.mark.parametrize("part", [FusedQKVAttention, PrepackedFeedForward, InferenceDecoderLayer])
def test_a_usual_decoder_gets_every_fast_part(part: type[nn.Module]) -> None:
    kinds = [type(module) for module in prepare(build_decoder(**SIZES)).modules()]
    assert kinds.count(part) == SIZES["num_layers"]


@torch.no_grad()
def test_a_packed_decoder_steps_and_shows_its_weights_as_the_model_does() -> None:
    decoder = build_decoder(**SIZES).eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    prepared = prepare(decoder)
    cache = prepared.new_cache(memory)
    with record_attention(prepared) as steps:
        parts = [prepared(part, cache=cache) for part in x.split(1, dim=1)]
    with record_attention(decoder) as whole:
        expected = decoder(x, memory)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=0, atol=1e-5)
    assert steps.keys() == whole.keys()
    for name, (table,) in whole.items():
        torch.testing.assert_close(steps[name][-1][:, :, 0], table[:, :, -1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("chosen", ["self_attention", "cross_attention"])
@torch.no_grad()
def test_a_step_shows_the_weights_of_one_kind_of_attention_alone(chosen: str) -> None:
    decoder = build_decoder(**SIZES).eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 4, 16)
    prepared = prepare(decoder)
    cache = prepared.new_cache(memory)
    with record_attention(prepared, only=lambda name: name.endswith(chosen)) as steps:
        for part in x.split(1, dim=1):
            prepared(part, cache=cache)
    with record_attention(decoder) as whole:
        decoder(x, memory)
    assert [len(weights) for weights in steps.values()] == [4] * SIZES["num_layers"]
    for name, weights in steps.items():
        torch.testing.assert_close(weights[-1][:, :, 0], whole[name][0][:, :, -1], **CLOSE)


@pytest.fixture(params=["small", "large"])
def any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call every product small, which is multiplied as usual, then every product large."""
    limit = 10**6 if request.param == "small" else 0
    monkeypatch.setattr("transformer_blocks.inference.linear.SMALL_PRODUCT", limit)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [(16, 48), (48, 16), (16, 16)])
@torch.no_grad()
def test_a_linear_map_of_any_form_is_packed(bias: bool, widths: tuple[int, int]) -> None:
    linear = nn.Linear(*widths, bias=bias)
    prepared = PrepackedLinear(linear)
    assert (prepared.in_features, prepared.out_features) == widths
    for shape in ((1,), (3,), (2, 5), (1, 1), (0, 4)):
        x = torch.randn(*shape, widths[0])
        torch.testing.assert_close(prepared(x), linear(x), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("dtype", LIMITS)
@torch.no_grad()
def test_a_residual_and_a_relu_are_part_of_the_product(relu: bool, dtype: torch.dtype) -> None:
    linear = nn.Linear(16, 24, dtype=dtype)
    prepared = PrepackedLinear(linear, relu=relu)
    for shape in ((1, 1), (3, 1), (2, 5), (0, 4)):
        x, added = torch.randn(*shape, 16, dtype=dtype), torch.randn(*shape, 24, dtype=dtype)
        product = linear(x).relu() if relu else linear(x)
        torch.testing.assert_close(prepared(x), product, rtol=0, atol=LIMITS[dtype])
        torch.testing.assert_close(prepared(x, added), added + product, rtol=0, atol=LIMITS[dtype])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf])
@torch.no_grad()
def test_a_packed_relu_keeps_what_is_not_finite(fault: float) -> None:
    linear, x = nn.Linear(16, 24), torch.randn(3, 16)
    linear.weight[5, 7], linear.weight[6, 7] = fault, -fault  # one of two infinities becomes 0
    for rows in (x[:1], x, torch.full_like(x, fault)):
        product = linear(rows).relu()
        assert not product.isfinite().all()
        assert torch.equal(PrepackedLinear(linear, relu=True)(rows).isfinite(), product.isfinite())


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "place", [name for name, _ in build_decoder(**SIZES | {"num_layers": 1}).named_parameters()]
)
@torch.no_grad()
def test_a_weight_that_is_not_finite_shows_in_the_same_outputs_of_every_form_of_a_model(
    place: str, fault: float
) -> None:
    sizes = SIZES | {"num_layers": 1}
    fused = build_decoder(**sizes).eval()
    fused.get_parameter(place).flatten()[5] = fault
    readable = build_decoder(**sizes, attention_function=scaled_dot_product_attention).eval()
    readable.load_state_dict(fused.state_dict())
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    expected = readable(x, memory).isfinite()
    assert not expected.all()
    for model in (fused, prepare(fused), prepare(readable)):
        assert torch.equal(model(x, memory).isfinite(), expected)
        cache, of_readable = model.new_cache(memory), readable.new_cache(memory)
        for word in x.split(1, dim=1):
            step = model(word, cache=cache)
            assert torch.equal(step.isfinite(), readable(word, cache=of_readable).isfinite())


@torch.no_grad()
def test_attention_without_bias_is_joined_too() -> None:
    attention = MultiHeadAttention(16, 4, bias=False)
    joined = FusedQKVAttention(attention, linear=PrepackedLinear)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    expected = attention(x, x, x)
    products: list[str] = []
    for name, part in joined.named_children():
        part.register_forward_hook(lambda *_, name=name: products.append(name))
    torch.testing.assert_close(joined(x, x, x), expected, rtol=0, atol=1e-5)
    assert products == ["fused_projection", "output_projection"]
    looked_up = joined(x, memory, memory)
    torch.testing.assert_close(looked_up, attention(x, memory, memory), rtol=0, atol=1e-5)


def test_the_model_stays_as_it_is_and_what_changes_in_it_later_stays_out_of_the_copy() -> None:
    model = build_encoder(**SIZES, dropout=0.5).train()
    names = [type(module) for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    prepared, x = prepare(model), torch.randn(2, 5, 16)
    assert model.training
    assert [type(module) for module in model.modules()] == names
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        before = prepared(x)
        for weight in model.parameters():
            weight.zero_()
        assert torch.equal(prepared(x), before)  # nothing is dropped, and nothing is shared


def test_only_what_has_a_fast_form_is_exchanged() -> None:
    made: list[nn.Linear] = []

    def linear(part: nn.Linear) -> nn.Module:
        made.append(part)
        return PrepackedLinear(part)

    class Scaled(nn.Linear):
        """A linear map that does something else besides."""

    model = nn.ModuleDict(
        {
            "known": nn.Linear(16, 4),
            "other": Scaled(16, 4),
            "odd": MultiHeadAttention(16, 4, key_width=6),
            "norm": nn.LayerNorm(16),
            "dropout": nn.Dropout(0.5),
        }
    )
    prepared = prepare(model, linear=linear)
    kinds: list[tuple[str, Callable[..., object]]] = [
        ("known", PrepackedLinear),
        ("other", Scaled),
        ("odd", MultiHeadAttention),
        ("norm", nn.LayerNorm),
        ("dropout", nn.Identity),
    ]
    assert [(name, type(part)) for name, part in prepared.named_children()] == kinds
    assert len(made) == 5
    assert isinstance(prepare(nn.Linear(3, 2), linear=linear), PrepackedLinear)


class Halved(nn.Dropout):
    """Does something in eval mode too."""

    def forward(self, input: Tensor) -> Tensor:
        return input / 2


@torch.no_grad()
def test_a_layer_with_parts_of_its_own_keeps_its_step() -> None:
    class Doubled(PostNorm):
        """Adds twice what the sublayer finds."""

        def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
            return self.norm(x + 2 * sublayer(x))

    def with_dropout() -> Residual:
        residual = PostNorm(16)
        residual.add_module("dropout", Halved())
        return residual

    makers: list[Callable[[], Residual]] = [lambda: Doubled(16), with_dropout, lambda: PreNorm(16)]
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 4, 16)
    for make in makers:
        layer = DecoderLayer(
            MultiHeadAttention(16, 4),
            MultiHeadAttention(16, 4),
            FeedForward(16, 24),
            residual=make,
        )
        decoder = Decoder([layer]).eval()
        prepared = prepare(decoder)
        written_out = isinstance(prepared.layers[0], InferenceDecoderLayer)
        assert written_out == (type(make()) is PreNorm)
        cache = prepared.new_cache(memory)
        steps = [prepared(part, cache=cache) for part in x.split(1, dim=1)]
        expected = decoder(x, memory)
        torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_linear_maps_of_ones_own_take_the_steps_too() -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, linear=lambda part: part)
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 4, 16)
    cache = prepared.new_cache(memory)
    steps = [prepared(part, cache=cache) for part in x.split(1, dim=1)]
    expected = decoder(x, memory)
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_an_empty_batch_takes_a_step() -> None:
    prepared = prepare(build_decoder(**SIZES))
    cache = prepared.new_cache(torch.randn(0, 5, 16))
    assert prepared(torch.randn(0, 1, 16), cache=cache).shape == (0, 1, 16)


class Doubling(nn.Linear):
    """A projection that does more than its weights say."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def window(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """A kernel that sees three keys back, if it is told to be causal."""
    queries, keys = query.shape[2], key.shape[2]
    near = causal_mask(queries, keys)
    if options["causal"]:
        near = near | causal_mask(queries, keys).logical_not().tril(keys - queries - 3)
    return fused_attention(query, key, value, **options | {"mask": near, "causal": False})


def double_output(_: nn.Module, __: object, output: Tensor) -> Tensor:
    return 2 * output


def change_projection(layer: DecoderLayer) -> None:
    layer.self_attention.value_projection = Doubling(16, 16)


def remove_one_bias(layer: DecoderLayer) -> None:
    for name in ("key_projection", "value_projection"):
        nn.init.ones_(getattr(layer.self_attention, name).bias)
    layer.self_attention.query_projection.register_parameter("bias", None)


def bend_otherwise(layer: DecoderLayer) -> None:
    cast(FeedForward, layer.feed_forward).activation = torch.tanh


def widen_otherwise(layer: DecoderLayer) -> None:
    layer.feed_forward.up_projection = Doubling(16, 24)


def narrow_otherwise(layer: DecoderLayer) -> None:
    layer.feed_forward.down_projection = Doubling(24, 16)


def halve_hidden(layer: DecoderLayer) -> None:
    layer.feed_forward.dropout = Halved()


def look_back_three(layer: DecoderLayer) -> None:
    layer.self_attention.attention_function = window


def other_heads(layer: DecoderLayer) -> None:
    layer.cross_attention = MultiHeadAttention(16, 8)


def share_residual(layer: DecoderLayer) -> None:
    layer.cross_attention_residual = layer.self_attention_residual


def hook(name: str) -> Callable[[DecoderLayer], None]:
    return lambda layer: cast(None, layer.get_submodule(name).register_forward_hook(double_output))


@pytest.mark.parametrize(
    "change",
    [
        change_projection,
        remove_one_bias,
        look_back_three,
        other_heads,
        bend_otherwise,
        widen_otherwise,
        narrow_otherwise,
        halve_hidden,
        share_residual,
        hook("self_attention.value_projection"),
        hook("self_attention"),
        hook("cross_attention"),
        hook("feed_forward.up_projection"),
        hook("feed_forward.dropout"),
        hook("feed_forward"),
        hook("feed_forward_residual"),
        hook("feed_forward_residual.norm"),
        hook(""),
    ],
)
@torch.no_grad()
def test_what_is_special_about_a_layer_is_kept(change: Callable[[DecoderLayer], None]) -> None:
    decoder = build_decoder(**SIZES).eval()
    change(decoder.get_submodule("layers.0"))  # type: ignore[arg-type]
    prepared = prepare(decoder)
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    expected = decoder(x, memory)
    torch.testing.assert_close(prepared(x, memory), expected, rtol=0, atol=1e-5)
    cache = prepared.new_cache(memory)
    steps = [prepared(part, cache=cache) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gradients", [False, True])
def test_autocast_gives_what_it_gives_the_model(gradients: bool) -> None:
    encoder = build_encoder(**SIZES).eval()
    prepared, x = prepare(encoder), torch.randn(2, 5, 16)
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(prepared(x), encoder(x), rtol=0, atol=0.05)


def test_a_packed_model_is_not_packed_again() -> None:
    prepared = prepare(build_encoder(**SIZES))
    with pytest.raises(
        ValueError, match=r"^model must be one that was trained, got a prepared one$"
    ):
        prepare(prepared)


LENGTHS = torch.tensor([3, 9, 0, 1])
PADDED_MASKS = {
    "at the end": torch.arange(9) >= LENGTHS[:, None],
    "at the beginning": torch.arange(9) < 9 - LENGTHS[:, None],
    "anywhere": torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) < 0.5,
}


@torch.no_grad()
@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", PADDED_MASKS.values(), ids=PADDED_MASKS)
def test_a_packed_encoder_leaves_out_padding_and_nothing_else(
    residual: Any, causal: bool, padding: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=24, residual=residual)
    encoder.eval()
    prepared = prepare(encoder)
    x, mask = torch.randn(4, 9, 16), padding[:, None, None]
    rows: list[int] = []
    feed_forward = prepared.get_submodule("layers.0.feed_forward")
    forward = feed_forward.forward

    def spy(x: Tensor, *more: Tensor) -> Tensor:
        rows.append(x[..., 0].numel())
        return forward(x, *more)

    monkeypatch.setattr(feed_forward, "forward", spy)
    found = prepared(x, mask=mask, causal=causal)
    assert rows == [int((~padding).sum())]
    expected = encoder(x, mask=mask, causal=causal).masked_fill(padding[..., None], 0.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_packed_encoder_takes_the_usual_way_where_there_is_nothing_to_leave_out() -> None:
    encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=24).eval()
    prepared = prepare(encoder)
    x = torch.randn(4, 9, 16)
    padding = PADDED_MASKS["at the end"]
    for mask in (
        None,
        torch.zeros(4, 1, 1, 9, dtype=torch.bool),
        torch.ones(4, 1, 1, 9, dtype=torch.bool),
        padding[:, None, None].expand(4, 4, 9, 9),
        padding[1:2, None, None].expand(1, 1, 1, 9),
        ~torch.eye(9, dtype=torch.bool),
    ):
        torch.testing.assert_close(prepared(x, mask=mask), encoder(x, mask=mask), rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_mask_that_hides_nothing_is_left_out() -> None:
    masks: list[Tensor | None] = []

    def attention_function(*inputs: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
        masks.append(mask)
        return fused_attention(*inputs, mask=mask, **options)

    prepared, x = prepare(build_encoder(**SIZES).eval()), torch.randn(2, 3, 16)
    for layer in cast(Any, prepared).layers:
        layer.self_attention.attention_function = attention_function
    mask = torch.zeros(2, 1, 1, 3, dtype=torch.bool)
    expected = prepared(x)
    torch.testing.assert_close(prepared(x, mask=mask), expected, **CLOSE)
    assert masks == [None] * 4


@torch.no_grad()
def test_a_packed_encoder_refuses_what_the_model_refuses() -> None:
    prepared = prepare(build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=24).eval())
    mask = PADDED_MASKS["at the end"][:, None, None]
    with pytest.raises(TypeError, match="mask must be bool"):
        prepared(torch.randn(4, 9, 16), mask=mask.int())
    with pytest.raises(ValueError, match=r"x must have shape \(B, L, 16\), got \(4, 9, 12\)"):
        prepared(torch.randn(4, 9, 12), mask=mask)


@torch.no_grad()
def test_a_packed_encoder_that_is_watched_shows_every_weight() -> None:
    encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=24).eval()
    x, mask = torch.randn(4, 9, 16), PADDED_MASKS["at the end"][:, None, None]
    with record_attention(encoder) as expected:
        encoder(x, mask=mask)
    prepared = prepare(encoder)
    with record_attention(prepared) as maps:
        prepared(x, mask=mask)
    assert maps.keys() == expected.keys()
    for name, (weights,) in maps.items():
        torch.testing.assert_close(weights, expected[name][0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_kernel_that_knows_positions_sees_them_with_the_padding_between() -> None:
    def by_place(
        query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, **_: Any
    ) -> Tensor:
        place = torch.arange(key.shape[2], dtype=key.dtype)[:, None]
        return fused_attention(query, key + place, value * place, mask=mask)

    encoder = build_encoder(
        num_layers=1, d_model=16, num_heads=4, d_ff=24, attention_function=by_place
    ).eval()
    x, padding = torch.randn(4, 9, 16), PADDED_MASKS["anywhere"]
    found, expected = (each(x, mask=padding[:, None, None]) for each in (prepare(encoder), encoder))
    torch.testing.assert_close(found[~padding], expected[~padding], rtol=0, atol=2e-5)


def test_an_encoder_with_layers_of_ones_own_is_packed_layer_by_layer() -> None:
    class Mine(EncoderLayer):
        """Says twice as much."""

        def forward(self, x: Tensor, **options: Any) -> Tensor:
            return 2 * super().forward(x, **options)

    layer = Mine(MultiHeadAttention(16, 4), FeedForward(16, 24), residual=lambda: PreNorm(16))
    encoder = Encoder([layer]).eval()
    x, mask = torch.randn(4, 9, 16), PADDED_MASKS["at the end"][:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(
            prepare(encoder)(x, mask=mask), encoder(x, mask=mask), rtol=0, atol=2e-5
        )


@torch.no_grad()
def test_a_feed_forward_that_looks_around_is_not_laid_end_to_end() -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x.transpose(1, 2)).transpose(1, 2)

    layer = EncoderLayer(MultiHeadAttention(16, 4), Convolution(), residual=lambda: PreNorm(16))
    encoder = Encoder([layer]).eval()
    x, padding = torch.randn(4, 9, 16), PADDED_MASKS["at the end"]
    found, expected = (each(x, mask=padding[:, None, None]) for each in (prepare(encoder), encoder))
    torch.testing.assert_close(found[~padding], expected[~padding], rtol=0, atol=2e-5)


class OverPositions(nn.Module):
    """Takes from each number its mean over the positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)


class ProjectionOfNext(nn.Linear):
    """A projection of the next position."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.roll(-1, 1))


class RunningMean(nn.RMSNorm):
    """A norm of torch's, and more."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.cumsum(1))


def norm_each_over_positions(encoder: Encoder) -> None:
    cast(EncoderLayer, encoder.layers[1]).self_attention_residual.norm = OverPositions()


def norm_over_a_running_mean(encoder: Encoder) -> None:
    cast(EncoderLayer, encoder.layers[0]).feed_forward_residual.norm = RunningMean(16)


def norm_whole_sequences(encoder: Encoder) -> None:
    cast(EncoderLayer, encoder.layers[0]).feed_forward_residual.norm = nn.LayerNorm((9, 16))


def norm_the_result_over_positions(encoder: Encoder) -> None:
    encoder.norm = OverPositions()


def drop_over_positions(encoder: Encoder) -> None:
    residual: Any = cast(EncoderLayer, encoder.layers[0]).self_attention_residual
    residual.dropout = OverPositions()


def project_over_positions(encoder: Encoder) -> None:
    attention: Any = cast(EncoderLayer, encoder.layers[0]).self_attention
    attention.value_projection = ProjectionOfNext(16, 16)


def widen_over_positions(encoder: Encoder) -> None:
    feed_forward: Any = cast(EncoderLayer, encoder.layers[0]).feed_forward
    feed_forward.up_projection = ProjectionOfNext(16, 24)


def activate_over_positions(encoder: Encoder) -> None:
    feed_forward: Any = cast(EncoderLayer, encoder.layers[0]).feed_forward
    feed_forward.activation = OverPositions()


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize(
    "change",
    [
        norm_each_over_positions,
        norm_over_a_running_mean,
        norm_whole_sequences,
        norm_the_result_over_positions,
        drop_over_positions,
        project_over_positions,
        widen_over_positions,
        activate_over_positions,
    ],
)
@torch.no_grad()
def test_parts_that_mix_positions_see_them_as_they_stand(
    change: Callable[[Encoder], None], residual: Any
) -> None:
    encoder = build_encoder(**SIZES, residual=residual).eval()
    change(encoder)
    x, padding = torch.randn(4, 9, 16), PADDED_MASKS["at the end"]
    found, expected = (each(x, mask=padding[:, None, None]) for each in (prepare(encoder), encoder))
    torch.testing.assert_close(found[~padding], expected[~padding], **CLOSE)


@pytest.mark.parametrize(
    ("activation", "norm"), [(nn.GELU(), nn.LayerNorm), (torch.tanh, nn.RMSNorm)]
)
@torch.no_grad()
def test_usual_norms_and_activations_leave_out_padding(activation: Any, norm: Any) -> None:
    layer = EncoderLayer(
        MultiHeadAttention(16, 4),
        FeedForward(16, 24, activation=activation, dropout=0.1),
        residual=lambda: PreNorm(16, norm=norm(16)),
    )
    prepared = prepare(Encoder([layer], norm=norm(16)))
    padding = PADDED_MASKS["at the end"]
    assert not prepared(torch.randn(4, 9, 16), mask=padding[:, None, None])[padding].any()


@torch.no_grad()
def test_a_packed_model_works_under_autocast() -> None:
    encoder, x = prepare(build_encoder(**SIZES).eval()), torch.randn(1, 4, 16)
    whole, cache = encoder(x, causal=True), encoder.new_cache()
    with torch.autocast("cpu", torch.bfloat16):
        steps = [encoder(part, causal=True, cache=cache) for part in x.split([3, 1], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1).float(), whole, rtol=0, atol=0.1)
