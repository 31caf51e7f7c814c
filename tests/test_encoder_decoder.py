"""The whole is its halves, one after the other."""

from typing import Any

import pytest
import torch

from transformer_blocks import (
    EncoderDecoder,
    build_decoder,
    build_encoder,
    check_causal,
    padding_mask,
)

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
