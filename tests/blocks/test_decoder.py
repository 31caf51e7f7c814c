"""The decoder is the composition of its parts that figure 1 shows."""

import pytest
import torch
from tests.blocks.reference import randomise
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    causal_mask,
    padding_mask,
)

TARGET_PADDING = padding_mask(torch.tensor([[1, 1, 0], [1, 1, 1]]))
SOURCE_PADDING = padding_mask(torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]))


def make_layer(residual: type[Residual] = PostNorm, memory_width: int = 8) -> DecoderLayer:
    return DecoderLayer(
        MultiHeadAttention(8, 2),
        MultiHeadAttention(8, 2, key_width=memory_width, value_width=memory_width),
        FeedForward(8, 12),
        residual=lambda: residual(8, dropout=0.0),
    ).double()


def make_inputs(memory_width: int = 8) -> tuple[Tensor, Tensor]:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    return x, torch.randn(2, 5, memory_width, dtype=torch.float64)


@pytest.mark.parametrize("mask", [None, TARGET_PADDING])
@pytest.mark.parametrize("memory_mask", [None, SOURCE_PADDING])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_a_layer_is_self_attention_then_cross_attention_then_feed_forward(
    residual: type[Residual], causal: bool, memory_mask: Tensor | None, mask: Tensor | None
) -> None:
    layer, (x, memory) = make_layer(residual, memory_width=6), make_inputs(memory_width=6)
    randomise(layer)

    def self_attend(x: Tensor) -> Tensor:
        return layer.self_attention(x, x, x, mask=mask, causal=causal)

    def cross_attend(x: Tensor) -> Tensor:
        return layer.cross_attention(x, memory, memory, mask=memory_mask)

    expected = x
    for connection, sublayer in (
        (layer.self_attention_residual, self_attend),
        (layer.cross_attention_residual, cross_attend),
        (layer.feed_forward_residual, layer.feed_forward),
    ):
        if residual is PostNorm:
            expected = connection.norm(expected + sublayer(expected))
        else:
            expected = expected + sublayer(connection.norm(expected))
    found = layer(x, memory, mask=mask, memory_mask=memory_mask, causal=causal)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(8, dtype=torch.float64)])
def test_every_layer_of_a_stack_attends_to_the_same_memory(norm: nn.LayerNorm | None) -> None:
    layers = [make_layer(), make_layer(), make_layer()]
    decoder, (x, memory) = Decoder(layers, norm=norm), make_inputs()
    expected = x
    for layer in layers:
        expected = layer(expected, memory, mask=TARGET_PADDING, memory_mask=SOURCE_PADDING)
    if norm is not None:
        nn.init.normal_(norm.weight)
        expected = norm(expected)
    found = decoder(x, memory, mask=TARGET_PADDING, memory_mask=SOURCE_PADDING)
    assert torch.equal(found, expected)


def test_a_decoder_is_causal_by_default() -> None:
    decoder, (x, memory) = Decoder([make_layer(), make_layer()]), make_inputs()
    causal = decoder(x, memory)
    assert torch.equal(causal, decoder(x, memory, causal=True))
    bidirectional = decoder(x, memory, causal=False)
    assert not torch.allclose(causal[:, 0], bidirectional[:, 0])
    torch.testing.assert_close(causal, decoder(x, memory, mask=causal_mask(3), causal=False))
