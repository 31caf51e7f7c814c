"""The whole is its halves, one after the other."""

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
from transformer_blocks.inspection import check_causal

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
SOURCES = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]])


def make() -> EncoderDecoder:
    return EncoderDecoder(build_encoder(**SIZES), build_decoder(**SIZES)).eval()


@pytest.mark.parametrize("causal", [True, False])
def test_the_decoder_reads_what_the_encoder_made_under_one_source_mask(causal: bool) -> None:
    both, source, target = make(), torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    hidden, seen = padding_mask(SOURCES), padding_mask(torch.tensor([[1, 1, 1], [1, 0, 0]]))
    memory = both.encoder(source, mask=hidden)
    expected = both.decoder(target, memory, mask=seen, memory_mask=hidden, causal=causal)
    found = both(source, target, source_mask=hidden, target_mask=seen, causal=causal)
    assert torch.equal(found, expected)


def test_padding_of_the_source_changes_nothing() -> None:
    both, source, target = make(), torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    together = both(source, target, source_mask=padding_mask(SOURCES))
    alone = both(source[1:, :2], target[1:])
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-5)


def test_no_target_word_sees_a_later_one() -> None:
    both, source = make(), torch.randn(2, 4, 16)
    report = check_causal(lambda target: both(source, target), torch.randn(2, 5, 16))
    assert report, report


def test_a_source_mask_of_rows_needs_a_memory_mask_beside_it() -> None:
    both, source, target = make(), torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    window = sliding_window_mask(4, window=2)
    with pytest.raises(ValueError, match=r"memory_mask must be given .* got \(4, 4\)"):
        both(source, target, source_mask=window)
    hidden = padding_mask(SOURCES)
    memory = both.encoder(source, mask=window)
    expected = both.decoder(target, memory, memory_mask=hidden)
    assert torch.equal(both(source, target, source_mask=window, memory_mask=hidden), expected)
