"""Sandwich normalisation: where both normalisations and the dropout are applied."""

from typing import Any

import torch
import torch.nn.functional as F
from tests.blocks.reference import randomise
from tests.blocks.test_residual import sublayer
from torch import nn

from transformer_blocks import Residual, SandwichNorm, build_encoder, padding_mask
from transformer_blocks.inference import prepare
from transformer_blocks.inference.layers import UnpaddedEncoder


def test_input_and_output_of_the_sublayer_are_normalised() -> None:
    norm, output_norm = nn.RMSNorm(8), nn.LayerNorm(8)
    residual: Residual = SandwichNorm(8, dropout=0.0, norm=norm, output_norm=output_norm).double()
    randomise(residual)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    inner = sublayer(x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * norm.weight)
    expected = x + F.layer_norm(inner, (8,), output_norm.weight, output_norm.bias)
    torch.testing.assert_close(residual(x, sublayer), expected)


def test_dropout_sets_elements_of_the_normalised_output_to_zero() -> None:
    residual = SandwichNorm(8, dropout=0.5, output_norm=nn.Identity())
    x = torch.full((4, 25, 8), 100.0)
    assert set((residual(x, torch.ones_like) - x).unique().tolist()) == {0.0, 2.0}
    residual = SandwichNorm(8, dropout=0.5)
    assert ((residual(x, torch.randn_like) - x) == 0.0).float().mean() > 0.4  # not normalised away
    assert torch.equal(residual.eval()(x, torch.zeros_like), x)


def test_a_stack_ends_with_a_normalisation_and_can_be_prepared() -> None:
    sizes: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
    encoder = build_encoder(**sizes, residual=SandwichNorm).eval()
    assert isinstance(encoder.norm, nn.LayerNorm)
    tokens = torch.tensor([[5, 6, 7, 8], [9, 0, 0, 0]])
    mask, x = padding_mask(tokens), torch.randn(2, 4, 16)
    prepared = prepare(encoder)
    assert isinstance(prepared, UnpaddedEncoder)
    with torch.no_grad():
        expected, found = encoder(x, mask=mask), prepared(x, mask=mask)
    real = tokens != 0
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)
