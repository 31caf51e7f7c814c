"""Encoder and decoder together are the two, one after the other."""

from typing import Any

import pytest
import torch

from transformer_blocks import (
    EncoderDecoder,
    build_decoder,
    build_encoder,
    padding_mask,
    sliding_window_mask,
)

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
SOURCES = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]])


def make_model() -> EncoderDecoder:
    return EncoderDecoder(build_encoder(**SIZES), build_decoder(**SIZES)).eval()


@pytest.mark.parametrize("causal", [True, False])
def test_the_decoder_attends_to_the_output_of_the_encoder_under_one_source_mask(
    causal: bool,
) -> None:
    model, source, target = make_model(), torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    source_mask = padding_mask(SOURCES)
    target_mask = padding_mask(torch.tensor([[1, 1, 1], [1, 0, 0]]))
    memory = model.encoder(source, mask=source_mask)
    expected = model.decoder(
        target, memory, mask=target_mask, memory_mask=source_mask, causal=causal
    )
    found = model(source, target, source_mask=source_mask, target_mask=target_mask, causal=causal)
    assert torch.equal(found, expected)


def test_a_source_mask_that_differs_between_queries_needs_a_memory_mask() -> None:
    model, source, target = make_model(), torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    window = sliding_window_mask(4, window=2)
    for mask in (window, window[None, None], window.expand(2, 1, 4, 4)):
        with pytest.raises(ValueError, match=r"memory_mask must be given .* got \(.*4, 4\)"):
            model(source, target, source_mask=mask)
    memory_mask = padding_mask(SOURCES)
    memory = model.encoder(source, mask=window)
    expected = model.decoder(target, memory, memory_mask=memory_mask)
    assert torch.equal(model(source, target, source_mask=window, memory_mask=memory_mask), expected)
