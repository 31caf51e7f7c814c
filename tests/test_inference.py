"""A prepared copy computes what the model computes, and the model does not change."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.pairs import every_pair
from torch import Tensor, nn

import transformer_blocks
from transformer_blocks import (
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GroupedQueryAttention,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import PrepackedLinear, prepare
from transformer_blocks.inference.layers import FusedQKVAttention
from transformer_blocks.inference.prepare import relu

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (3, 7), (0, 2)])
@torch.no_grad()
def test_a_prepared_stack_computes_the_same_outputs(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    encoder = build_encoder(**SIZES).to(dtype).eval()
    decoder = build_decoder(**SIZES, residual=PreNorm).to(dtype).eval()
    x, y = torch.randn(*shape, 16, dtype=dtype), torch.randn(shape[0], 4, 16, dtype=dtype)
    tolerance: dict[str, Any] = {"rtol": 0, "atol": TOLERANCES[dtype]}
    expected = encoder(x, causal=True)
    torch.testing.assert_close(prepare(encoder)(x, causal=True), expected, **tolerance)
    torch.testing.assert_close(prepare(decoder)(y, x), decoder(y, x), **tolerance)


def test_every_layer_of_a_standard_decoder_gets_every_faster_part() -> None:
    parts: list[Any] = [*prepare(build_decoder(**SIZES)).modules()]
    assert [type(part) for part in parts].count(FusedQKVAttention) == SIZES["num_layers"]
    networks = [part for part in parts if isinstance(part, FeedForward)]
    assert len(networks) == SIZES["num_layers"]
    for network in networks:
        assert network.activation is relu
        assert isinstance(network.up_projection, PrepackedLinear)


@torch.no_grad()
def in_steps(decoder: Any, x: Tensor, memory: Tensor) -> Tensor:
    """Decode position after position with a cache."""
    cache = decoder.new_cache(memory)
    return torch.cat([decoder(token, cache=cache) for token in x.split(1, dim=1)], dim=1)


@pytest.mark.parametrize("chosen", ["", "self_attention", "cross_attention"])
@torch.no_grad()
def test_a_prepared_decoder_computes_and_records_its_steps_as_the_model_does(chosen: str) -> None:
    decoder = build_decoder(**SIZES).eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    prepared = prepare(decoder)
    with record_attention(prepared, only=lambda name: name.endswith(chosen)) as steps:
        found = in_steps(prepared, x, memory)
    with record_attention(decoder) as whole:
        torch.testing.assert_close(found, decoder(x, memory), **TOLERANCE)
    assert steps.keys() == {name for name in whole if name.endswith(chosen)}
    for name, weights in steps.items():
        assert len(weights) == 6
        torch.testing.assert_close(weights[-1][:, :, 0], whole[name][0][:, :, -1], **TOLERANCE)


@pytest.fixture(params=["small", "large"])
def any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every matrix product as small, which F.linear computes, then every one as large."""
    limit = 10**6 if request.param == "small" else 0
    monkeypatch.setattr("transformer_blocks.inference.linear.SMALL_PRODUCT", limit)


@pytest.mark.usefixtures("any_size")
@every_pair(
    {
        "bias": [True, False],
        "sizes": [(16, 48), (48, 16), (16, 16), (0, 3), (3, 0)],
        "dtype": TOLERANCES,
    }
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@torch.no_grad()
def test_a_prepacked_linear_layer_equals_the_layer(
    bias: bool, sizes: tuple[int, int], dtype: torch.dtype
) -> None:
    linear = nn.Linear(*sizes, bias=bias, dtype=dtype)
    prepared = PrepackedLinear(linear)
    assert (prepared.in_features, prepared.out_features) == sizes
    for shape in ((1,), (3,), (2, 5), (1, 1), (0, 4)):
        x = torch.randn(*shape, sizes[0], dtype=dtype)
        torch.testing.assert_close(prepared(x), linear(x), rtol=0, atol=TOLERANCES[dtype])


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@torch.no_grad()
def test_prepacked_products_and_the_relu_preserve_values_that_are_not_finite(value: float) -> None:
    linear, x = nn.Linear(16, 24), torch.randn(3, 16)
    linear.weight[5, 7], linear.weight[6, 7] = value, -value  # one of two infinities becomes 0
    for rows in (x[:1], x, torch.full_like(x, value)):
        is_finite = linear(rows).relu().isfinite()
        assert not is_finite.all()
        assert torch.equal(relu(PrepackedLinear(linear)(rows)).isfinite(), is_finite)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "parameter", [name for name, _ in build_decoder(**SIZES | {"num_layers": 1}).named_parameters()]
)
@torch.no_grad()
def test_a_weight_that_is_not_finite_affects_the_same_outputs_of_every_form_of_a_model(
    parameter: str, value: float
) -> None:
    sizes = SIZES | {"num_layers": 1}
    fused = build_decoder(**sizes).eval()
    fused.get_parameter(parameter).flatten()[5] = value
    explicit = build_decoder(
        **sizes,
        attention=lambda: MultiHeadAttention(
            16, 4, attention_function=scaled_dot_product_attention
        ),
    ).eval()
    explicit.load_state_dict(fused.state_dict())
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    expected = explicit(x, memory).isfinite()
    assert not expected.all()
    for model in (fused, prepare(fused), prepare(explicit)):
        assert torch.equal(model(x, memory).isfinite(), expected)
        caches = model.new_cache(memory), explicit.new_cache(memory)
        for token in x.split(1, dim=1):
            steps = [
                each(token, cache=cache)
                for each, cache in zip((model, explicit), caches, strict=True)
            ]
            assert torch.equal(steps[0].isfinite(), steps[1].isfinite())


@pytest.mark.parametrize(
    "attention",
    [
        MultiHeadAttention(16, 4, bias=False),
        GroupedQueryAttention(16, 4, 2, bias=False),
        GroupedQueryAttention(16, 4, 1, d_k=6),
    ],
    ids=["no bias", "grouped", "grouped, large heads"],
)
@torch.no_grad()
def test_the_projections_of_other_attention_layers_are_fused_too(
    attention: MultiHeadAttention,
) -> None:
    fused = FusedQKVAttention(attention, linear=PrepackedLinear)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    expected = attention(x, x, x)
    calls: list[str] = []
    for name, part in fused.named_children():
        part.register_forward_hook(lambda *_, name=name: calls.append(name))
    torch.testing.assert_close(fused(x, x, x), expected, **TOLERANCE)
    assert calls == ["fused_projection", "output_projection"]
    output = fused(x, memory, memory)  # different keys and values are projected one by one
    torch.testing.assert_close(output, attention(x, memory, memory), **TOLERANCE)


def test_neither_preparing_a_model_changes_it_nor_a_later_change_of_it_the_copy() -> None:
    model = build_encoder(**SIZES, dropout=0.5).train()
    types = [type(module) for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    prepared, x = prepare(model), torch.randn(2, 5, 16)
    assert model.training
    assert [type(module) for module in model.modules()] == types
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        before = prepared(x)
        for weight in model.parameters():
            weight.zero_()
        assert torch.equal(prepared(x), before)  # without dropout, and without shared weights


@torch.no_grad()
def test_a_prepacked_linear_layer_has_copies_of_weight_and_bias() -> None:
    linear, x = nn.Linear(8, 4), torch.randn(3, 8)
    prepared, expected = PrepackedLinear(linear), linear(x)
    for parameter in linear.parameters():
        parameter.zero_()
    torch.testing.assert_close(prepared(x), expected, **TOLERANCE)


@torch.no_grad()
def test_prepared_self_attention_projects_other_values_by_themselves() -> None:
    encoder, x, value = build_encoder(**SIZES).eval(), torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    found, expected = (
        model.get_submodule("layers.0.self_attention")(x, x, value)
        for model in (prepare(encoder), encoder)
    )
    torch.testing.assert_close(found, expected, **TOLERANCE)


def test_only_parts_with_a_faster_equivalent_are_replaced() -> None:
    class Scaled(nn.Linear):
        """A linear layer that may compute something else."""

    model = nn.ModuleDict(
        {
            "linear": nn.Linear(16, 4),
            "subclass": Scaled(16, 4),
            "attention": MultiHeadAttention(16, 4, key_width=6),
            "norm": nn.LayerNorm(16),
            "dropout": nn.Dropout(0.5),
        }
    )
    prepared = prepare(model)
    expected: list[tuple[str, Callable[..., object]]] = [
        ("linear", PrepackedLinear),
        ("subclass", Scaled),
        ("attention", MultiHeadAttention),
        ("norm", nn.LayerNorm),
        ("dropout", nn.Identity),
    ]
    assert [(name, type(part)) for name, part in prepared.named_children()] == expected
    parts = [type(part) for part in prepared.modules()]
    assert parts.count(PrepackedLinear) == 5
    assert isinstance(prepare(nn.Linear(3, 2)), PrepackedLinear)


class HalvedAttention(MultiHeadAttention):
    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        return super().forward(*inputs, **options) / 2


class Halved(nn.Dropout):
    """A dropout that changes its input in evaluation mode too."""

    def forward(self, input: Tensor) -> Tensor:
        return input / 2


class Doubled(PostNorm):
    """Adds the output of the sublayer twice."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + 2 * sublayer(x))


class Doubling(nn.Linear):
    """A projection whose output is doubled."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def with_transforms() -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, transforms=[QueryKeyNorm(4), RotaryPositionalEncoding(4)])


def local_attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Attend to the last three keys alone, if ``causal`` is set."""
    queries, keys = query.shape[2], key.shape[2]
    mask = causal_mask(queries, keys)
    if options["causal"]:
        mask = mask | causal_mask(queries, keys).logical_not().tril(keys - queries - 3)
    return fused_attention(query, key, value, **options | {"mask": mask, "causal": False})


def double_output(_: nn.Module, __: object, output: Tensor) -> Tensor:
    return 2 * output


def put(path: str, make: Callable[[], object]) -> Callable[[nn.Module], None]:
    """Return a function that replaces a part of a module."""

    def change(module: nn.Module) -> None:
        owner, _, name = path.rpartition(".")
        setattr(module.get_submodule(owner), name, make())

    return change


def remove_one_bias(layer: DecoderLayer) -> None:
    for name in ("key_projection", "value_projection"):
        nn.init.ones_(getattr(layer.self_attention, name).bias)
    layer.self_attention.query_projection.register_parameter("bias", None)


def share_residual(layer: DecoderLayer) -> None:
    layer.cross_attention_residual = layer.self_attention_residual


def add_hook(name: str) -> Callable[[DecoderLayer], None]:
    return lambda layer: cast(None, layer.get_submodule(name).register_forward_hook(double_output))


def replace_forward(name: str) -> Callable[[DecoderLayer], None]:
    def change(layer: Any) -> None:
        part = layer.get_submodule(name)
        part.forward = lambda *inputs, **options: 2 * type(part).forward(part, *inputs, **options)

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("self_attention", with_transforms),
        put("self_attention.value_projection", lambda: Doubling(16, 16)),
        put("self_attention.attention_function", lambda: local_attention),
        put("cross_attention", lambda: MultiHeadAttention(16, 8)),
        put("cross_attention", lambda: HalvedAttention(16, 4)),
        put("feed_forward.activation", lambda: torch.tanh),
        put("feed_forward.up_projection", lambda: Doubling(16, 24)),
        put("feed_forward.down_projection", lambda: Doubling(24, 16)),
        put("feed_forward.dropout", Halved),
        put("feed_forward_residual", lambda: Doubled(16)),
        put("cross_attention_residual", lambda: PreNorm(16)),
        put("self_attention_residual.dropout", Halved),
        remove_one_bias,
        share_residual,
        add_hook("self_attention.value_projection"),
        add_hook("self_attention"),
        add_hook("cross_attention"),
        add_hook("feed_forward.up_projection"),
        add_hook("feed_forward.dropout"),
        add_hook("feed_forward"),
        add_hook("feed_forward_residual"),
        add_hook("feed_forward_residual.norm"),
        add_hook(""),
        replace_forward("self_attention.value_projection"),
        replace_forward("cross_attention"),
        replace_forward("feed_forward.dropout"),
        replace_forward("feed_forward"),
        replace_forward(""),
    ],
)
@torch.no_grad()
def test_a_prepared_layer_computes_what_a_changed_layer_computes(
    change: Callable[[Any], None],
) -> None:
    decoder = build_decoder(**SIZES)
    change(decoder.get_submodule("layers.0"))
    decoder.eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    expected = decoder(x, memory)
    prepared = prepare(decoder)
    torch.testing.assert_close(prepared(x, memory), expected, **TOLERANCE)
    torch.testing.assert_close(in_steps(prepared, x, memory), expected, **TOLERANCE)


@torch.no_grad()
def test_large_products_are_computed_in_the_precision_of_autocast() -> None:
    linear, x = nn.Linear(512, 512), torch.randn(8, 512)  # two million multiplications
    prepacked = PrepackedLinear(linear)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = prepacked(x), linear(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("gradients", [False, True])
def test_autocast_has_the_effect_that_it_has_on_the_model(gradients: bool) -> None:
    encoder = build_encoder(**SIZES).eval()
    prepared, x = prepare(encoder), torch.randn(2, 5, 16)
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(prepared(x), encoder(x), rtol=0, atol=0.05)


def test_a_prepared_model_cannot_be_prepared_again() -> None:
    prepared = prepare(build_encoder(**SIZES))
    with pytest.raises(
        ValueError, match=r"^model must not be prepared already, got a prepared one$"
    ):
        prepare(prepared)


LENGTHS = torch.tensor([3, 9, 0, 1])
PADDED_MASKS = {
    "at the end": torch.arange(9) >= LENGTHS[:, None],
    "at the beginning": torch.arange(9) < 9 - LENGTHS[:, None],
    "anywhere": torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) < 0.5,
}


@torch.no_grad()
@every_pair(
    {"residual": [PreNorm, PostNorm], "causal": [False, True], "padding": PADDED_MASKS.values()}
)
def test_a_prepared_encoder_computes_every_token_and_no_padding(
    residual: Any, causal: bool, padding: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = build_encoder(**SIZES, residual=residual)
    encoder.eval()
    prepared = prepare(encoder)
    x, mask = torch.randn(4, 9, 16), padding[:, None, None]
    positions: list[int] = []
    feed_forward = prepared.get_submodule("layers.0.feed_forward")
    forward = feed_forward.forward

    def count_positions(x: Tensor) -> Tensor:
        positions.append(x[..., 0].numel())
        return forward(x)

    monkeypatch.setattr(feed_forward, "forward", count_positions)
    expected = encoder(x, mask=mask, causal=causal).masked_fill(padding[..., None], 0.0)
    x[padding] = math.nan
    output = prepared(x, mask=mask, causal=causal)
    assert positions == [int((~padding).sum())]
    torch.testing.assert_close(output, expected, **TOLERANCE)


@torch.no_grad()
def test_a_prepared_encoder_computes_the_same_where_no_padding_can_be_removed() -> None:
    encoder = build_encoder(**SIZES).eval()
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
        torch.testing.assert_close(prepared(x, mask=mask), encoder(x, mask=mask), **TOLERANCE)


@torch.no_grad()
def test_a_mask_that_masks_nothing_is_not_passed_to_attention() -> None:
    masks: list[Tensor | None] = []

    def attention_function(*inputs: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
        masks.append(mask)
        return fused_attention(*inputs, mask=mask, **options)

    prepared, x = prepare(build_encoder(**SIZES).eval()), torch.randn(2, 3, 16)
    for layer in cast(Any, prepared).layers:
        layer.self_attention.attention_function = attention_function
    mask = torch.zeros(2, 1, 1, 3, dtype=torch.bool)
    expected = prepared(x)
    torch.testing.assert_close(prepared(x, mask=mask), expected, **TOLERANCE)
    assert masks == [None] * 4


@torch.no_grad()
def test_every_attention_weight_of_a_prepared_encoder_is_recorded() -> None:
    encoder = build_encoder(**SIZES).eval()
    x, mask = torch.randn(4, 9, 16), PADDED_MASKS["at the end"][:, None, None]
    with record_attention(encoder) as expected:
        encoder(x, mask=mask)
    prepared = prepare(encoder)
    with record_attention(prepared) as maps:
        prepared(x, mask=mask)
    assert maps.keys() == expected.keys()
    for name, (weights,) in maps.items():
        torch.testing.assert_close(weights, expected[name][0], **TOLERANCE)


class CentreOverPositions(nn.Module):
    """Subtracts the mean over the positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)


class ProjectionOfNext(nn.Linear):
    """A projection of the next position instead of the current one."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.roll(-1, 1))


class CumulativeNorm(nn.RMSNorm):
    """RMSNorm of the cumulative sum over the positions."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.cumsum(1))


class DoublingLayer(EncoderLayer):
    """A layer whose output is doubled."""

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return 2 * super().forward(x, **options)


def doubling_layer() -> EncoderLayer:
    return DoublingLayer(
        MultiHeadAttention(16, 4), FeedForward(16, 24), residual=lambda: PreNorm(16)
    )


def by_position(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, **_: Any
) -> Tensor:
    position = torch.arange(key.shape[2], dtype=key.dtype)[:, None]
    return fused_attention(query, key + position, value * position, mask=mask)


def centre_what_a_network_returns(encoder: nn.Module) -> None:
    network = encoder.get_submodule("layers.0.feed_forward")
    network.register_forward_hook(lambda module, inputs, y: y - y.mean(1, keepdim=True))


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize(
    "change",
    [
        centre_what_a_network_returns,
        put("layers.0.feed_forward", lambda: build_encoder(**SIZES)),
        put("layers.0", doubling_layer),
        put("layers.0.self_attention", with_transforms),
        put("layers.0.self_attention.attention_function", lambda: by_position),
        put("layers.0.self_attention.value_projection", lambda: ProjectionOfNext(16, 16)),
        put("layers.0.self_attention_residual.dropout", CentreOverPositions),
        put("layers.0.feed_forward", CentreOverPositions),
        put("layers.0.feed_forward.activation", CentreOverPositions),
        put("layers.0.feed_forward.up_projection", lambda: ProjectionOfNext(16, 24)),
        put("layers.0.feed_forward_residual.norm", lambda: CumulativeNorm(16)),
        put("layers.0.feed_forward_residual.norm", lambda: nn.LayerNorm((9, 16))),
        put("layers.1.self_attention_residual.norm", CentreOverPositions),
        put("norm", CentreOverPositions),
    ],
)
@torch.no_grad()
def test_parts_that_are_not_position_wise_receive_the_padding(
    change: Callable[[nn.Module], None], residual: Any
) -> None:
    encoder = build_encoder(**SIZES, residual=residual)
    change(encoder)
    encoder.eval()
    x, padding = torch.randn(4, 9, 16), PADDED_MASKS["anywhere"]
    output, expected = (
        each(x, mask=padding[:, None, None]) for each in (prepare(encoder), encoder)
    )
    torch.testing.assert_close(output[~padding], expected[~padding], **TOLERANCE)


@pytest.mark.parametrize(
    ("activation", "norm"), [(nn.GELU(), nn.LayerNorm), (torch.tanh, nn.RMSNorm)]
)
@torch.no_grad()
def test_standard_norms_and_activations_compute_no_padding(activation: Any, norm: Any) -> None:
    layer = EncoderLayer(
        MultiHeadAttention(16, 4),
        FeedForward(16, 24, activation=activation, dropout=0.1),
        residual=lambda: PreNorm(16, norm=norm(16)),
    )
    prepared = prepare(Encoder([layer], norm=norm(16)))
    padding = PADDED_MASKS["at the end"]
    assert not prepared(torch.randn(4, 9, 16), mask=padding[:, None, None])[padding].any()


@torch.no_grad()
def test_a_prepared_encoder_can_be_decoded_under_autocast() -> None:
    encoder, x = prepare(build_encoder(**SIZES).eval()), torch.randn(1, 4, 16)
    whole, cache = encoder(x, causal=True), encoder.new_cache()
    with torch.autocast("cpu", torch.bfloat16):
        steps = [encoder(chunk, causal=True, cache=cache) for chunk in x.split([3, 1], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1).float(), whole, rtol=0, atol=0.1)


def test_no_other_file_imports_the_inference_package() -> None:
    home = Path(transformer_blocks.__file__).parent
    others = [path for path in home.rglob("*.py") if path.parent.name != "inference"]
    assert len(others) > 20
    for path in others:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(from|import) \S*\binference\b", text), path


def test_fused_projections_leave_the_trained_layer_as_it_was() -> None:
    attention = MultiHeadAttention(8, 2)
    parts = dict(attention.named_children())
    FusedQKVAttention(attention, linear=PrepackedLinear)
    assert dict(attention.named_children()) == parts
