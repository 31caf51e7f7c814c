"""A prepared encoder computes nothing for padding, where its parts are those of a standard one."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RotaryPositionalEncoding,
    build_encoder,
    fused_attention,
    record_attention,
)
from transformer_blocks.inference import layers, prepare

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
LENGTHS = torch.tensor([3, 9, 0, 1])
PADDED_MASKS = {
    "at the end": torch.arange(9) >= LENGTHS[:, None],
    "at the beginning": torch.arange(9) < 9 - LENGTHS[:, None],
    "anywhere": torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) < 0.5,
}


@pytest.fixture(autouse=True)
def _padding_of_small_encoders_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MIN_SAVED_WORK", 0)


@pytest.mark.parametrize(("share", "is_removed"), [(1, True), (1.01, False)])
@torch.no_grad()
def test_padding_is_removed_if_enough_work_is_saved_and_the_tokens_are_the_same(
    share: float, is_removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = build_encoder(**SIZES).eval()
    x, padding = torch.randn(4, 9, 16), PADDED_MASKS["at the end"]
    monkeypatch.setattr(layers, "MIN_SAVED_WORK", share * int(padding.sum()) * 16**2)
    output, expected = (
        each(x, mask=padding[:, None, None]) for each in (prepare(encoder), encoder)
    )
    torch.testing.assert_close(output[~padding], expected[~padding], **TOLERANCE)
    assert bool(output[padding].any()) is not is_removed


@torch.no_grad()
@every_pair(
    {"residual": [PreNorm, PostNorm], "causal": [False, True], "padding": PADDED_MASKS.values()}
)
def test_a_prepared_encoder_computes_every_token_and_no_padding(
    residual: Any, causal: bool, padding: Tensor
) -> None:
    encoder = build_encoder(**SIZES, residual=residual).eval()
    prepared = prepare(encoder)
    x, mask = torch.randn(4, 9, 16), padding[:, None, None]
    positions: list[int] = []
    prepared.get_submodule("layers.0.feed_forward").register_forward_pre_hook(
        lambda module, inputs: positions.append(inputs[0][..., 0].numel())
    )
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
        padding[:1, None, None],
        ~torch.eye(9, dtype=torch.bool),
    ):
        torch.testing.assert_close(prepared(x, mask=mask), encoder(x, mask=mask), **TOLERANCE)


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


def by_position(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, **_: Any
) -> Tensor:
    position = torch.arange(key.shape[2], dtype=key.dtype)[:, None]
    return fused_attention(query, key + position, value * position, mask=mask)


def centred_network() -> FeedForward:
    network = FeedForward(16, 24)
    network.register_forward_hook(lambda module, inputs, y: y - y.mean(1, keepdim=True))
    return network


def rotary_attention() -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, transforms=[RotaryPositionalEncoding(4)])


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("layers.0.feed_forward", centred_network),
        ("layers.0.self_attention", rotary_attention),
        ("layers.0.self_attention.attention_function", lambda: by_position),
        ("layers.0.self_attention.value_projection", lambda: ProjectionOfNext(16, 16)),
        ("layers.0.self_attention_residual.dropout", CentreOverPositions),
        ("layers.0.feed_forward.activation", CentreOverPositions),
        ("layers.0.feed_forward_residual.norm", lambda: nn.LayerNorm((9, 16))),
        ("layers.1.self_attention_residual.norm", CentreOverPositions),
        ("norm", CentreOverPositions),
    ],
)
@torch.no_grad()
def test_parts_that_are_not_position_wise_receive_the_padding(
    path: str, make: Callable[[], Any], residual: Any
) -> None:
    encoder = build_encoder(**SIZES, residual=residual)
    owner, _, name = path.rpartition(".")
    setattr(encoder.get_submodule(owner), name, make())
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
