"""Int8 linear layers: the error is that of rounding, and each row is computed on its own."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import build_decoder, build_encoder
from transformer_blocks.inference import PrepackedLinear, module, prepare
from transformer_blocks.inference.int8 import Int8Linear, has_integer_product, quantise_rows

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}


@pytest.fixture(params=["torch", "rounded", "removed"])
def any_product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use torch's int8 product, then one whose sums are limited to 16 bits, then none."""

    def rounded(x: Tensor, y: Tensor) -> Tensor:
        return (x.int() @ y.int()).clamp(-(2**15), 2**15 - 1)

    if request.param == "rounded":
        monkeypatch.setattr(torch, "_int_mm", rounded)
    elif request.param == "removed":
        monkeypatch.delattr(torch, "_int_mm")
    has_integer_product.cache_clear()
    yield
    has_integer_product.cache_clear()


@pytest.mark.usefixtures("any_product")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(16, 48), (48, 16), (7, 5), (33, 1), (1, 3), (1, 1)])
@torch.no_grad()
def test_the_error_is_at_most_that_of_rounding(bias: bool, sizes: tuple[int, int]) -> None:
    linear = nn.Linear(*sizes, bias=bias)
    quantised = Int8Linear(linear)
    assert (quantised.in_features, quantised.out_features) == sizes
    for shape in ((), (1,), (3,), (2, 5), (1, 1), (0,), (0, 4)):
        x = torch.randn(*shape, sizes[0]) * 10 ** torch.randn(*shape, 1)
        expected, output = linear(x), quantised(x)
        input_scale = x.abs().amax(-1, keepdim=True) / 127
        weight_scale = linear.weight.abs().amax(1) / 127
        bound = (
            input_scale * linear.weight.abs().sum(1) / 2
            + weight_scale * x.abs().sum(-1, keepdim=True) / 2
            + input_scale * weight_scale * sizes[0] / 4
        )
        assert ((quantise_rows(x)[0] * input_scale - x).abs() <= input_scale * 0.501).all()
        assert output.shape == expected.shape
        assert ((output - expected).abs() <= bound * 1.001 + 1e-6 * expected.abs() + 1e-6).all()


@pytest.mark.usefixtures("any_product")
@torch.no_grad()
def test_the_output_of_a_row_does_not_depend_on_the_other_rows() -> None:
    quantised, x = Int8Linear(nn.Linear(40, 24)), torch.randn(37, 40)
    x[1::2] *= 1000.0
    whole = quantised(x)
    for rows in (1, 2, 8, 9, 36):
        assert torch.equal(quantised(x[:rows]), whole[:rows])
        assert torch.equal(quantised(x[-rows:]), whole[-rows:])
    assert torch.equal(quantised(x[:36].unflatten(0, (4, 9))), whole[:36].unflatten(0, (4, 9)))
    assert torch.equal(quantised(x[3]), whole[3])


@torch.no_grad()
def test_the_fallback_multiplies_the_same_integers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    linear, x = nn.Linear(40, 24), torch.randn(2, 5, 40)
    expected = Int8Linear(linear)(x)
    monkeypatch.delattr(torch, "_int_mm")
    has_integer_product.cache_clear()
    caplog.clear()
    for _ in range(2):
        assert torch.equal(Int8Linear(linear)(x), expected)
    has_integer_product.cache_clear()
    records = [(record.name, record.levelno) for record in caplog.records]
    assert records == [(module.__name__, logging.WARNING)]


@pytest.mark.usefixtures("any_product")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@torch.no_grad()
def test_values_that_are_not_finite_remain_visible(value: float) -> None:
    linear, x = nn.Linear(16, 24), torch.randn(3, 16)
    for weight_is_wrong in (False, True):
        if weight_is_wrong:
            linear.weight[5, 7] = value
        else:
            x[1, 3] = value
        is_finite = linear(x).isfinite()
        assert not is_finite.all()
        assert torch.equal(Int8Linear(linear)(x).isfinite(), is_finite)


@torch.no_grad()
def test_rows_of_zeros_and_of_the_smallest_numbers_are_quantised() -> None:
    linear = nn.Linear(16, 24)
    linear.weight[3] = 0.0
    x = torch.zeros(3, 16)
    x[1], x[2] = 1e-45, 1e-32
    expected = linear.bias.expand(3, 24)
    torch.testing.assert_close(Int8Linear(linear)(x), expected, rtol=0, atol=1e-30)
    assert quantise_rows(x)[0].isfinite().all()


@torch.no_grad()
def test_every_linear_layer_of_a_model_is_quantised() -> None:
    # The fused and the output projection of self-attention, the four projections of
    # cross-attention, and the two layers of the feed-forward network.
    for build, count in ((build_encoder, 2 + 2), (build_decoder, 2 + 4 + 2)):
        model: Any = build(**SIZES)
        parts = [type(part) for part in prepare(model, int8=True).modules()]
        assert parts.count(PrepackedLinear) == 0
        assert parts.count(Int8Linear) == SIZES["num_layers"] * count


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_models_that_are_not_float32_or_not_on_a_cpu_are_refused() -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        with pytest.raises(TypeError, match="need float32 weights"):
            prepare(build_encoder(**SIZES).to(dtype), int8=True)
    with pytest.raises(ValueError, match="need weights on a CPU"):
        Int8Linear(nn.Linear(4, 4, device="meta"))
    for size in (0, 133_145):
        with pytest.raises(ValueError, match=f"from 1 to 133144 input features, got .*={size}$"):
            Int8Linear(nn.Linear(size, 1))


def test_gradients_are_refused() -> None:
    with pytest.raises(RuntimeError, match="differentiated"):
        Int8Linear(nn.Linear(16, 24))(torch.randn(2, 16, requires_grad=True))


@torch.no_grad()
def test_under_autocast_a_quantised_model_computes_in_float32() -> None:
    quantised, x = Int8Linear(nn.Linear(16, 24)), torch.randn(2, 16).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(quantised(x), quantised(x.float()))


@pytest.mark.parametrize("rows", [1, 2, 9])
@torch.no_grad()
def test_an_exported_layer_multiplies_the_same_integers(rows: int) -> None:
    linear = nn.Linear(24, 6)
    linear.weight[:3] = torch.tensor([1.0, -1.0, 0.5])[:, None]  # the largest sums
    layer = Int8Linear(linear)
    for x in (torch.randn(rows, 24), torch.ones(rows, 24), -torch.ones(1, rows, 24)):
        assert torch.equal(torch.export.export(layer, (x,)).module()(x), layer(x))
