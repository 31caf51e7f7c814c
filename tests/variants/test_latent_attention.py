"""Latent attention: a loop over the equations of its paper, and its absorbed form."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.blocks.reference import randomise, to_numpy
from torch import Tensor

from transformer_blocks import (
    KeyValueCache,
    LatentAttention,
    PreNorm,
    RotaryPositionalEncoding,
    build_encoder,
)
from transformer_blocks.inference import prepare

WIDTH, HEADS, LATENT, ROTARY, D_K = 12, 3, 6, 4, 5
F64 = torch.float64


def latent(**options: Any) -> LatentAttention:
    """Make a layer with random gains."""
    rotary = RotaryPositionalEncoding(ROTARY)
    sizes: dict[str, Any] = {"latent_size": LATENT, "value_size": D_K}
    made = LatentAttention(WIDTH, HEADS, **sizes, rotary=rotary, **options)
    return randomise(made).double()


@pytest.mark.parametrize("options", [{}, {"query_latent_size": 7, "bias": True}], ids=str)
@torch.no_grad()
def test_it_equals_the_loop(options: dict[str, Any]) -> None:
    layer, x = latent(**options), torch.randn(2, 6, WIDTH, dtype=F64)
    mask = torch.zeros(2, 1, 1, 6, dtype=torch.bool)
    mask[1, ..., 4:] = True
    found, h = to_numpy(layer(x, x, x, mask=mask, causal=True)), to_numpy(x)
    weights = {name: to_numpy(each) for name, each in layer.state_dict().items()}

    def project(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean() + 1e-6) * weights[f"{name}.weight"]

    def rotate(x: Any, position: int) -> Any:
        angles = position * 10000.0 ** (-np.arange(0, ROTARY, 2) / ROTARY)
        pairs = (x[0::2] + 1j * x[1::2]) * np.exp(1j * angles)
        return np.stack((pairs.real, pairs.imag), axis=-1).ravel()

    def query(h: Any) -> Any:
        if not options:
            return project(h, "query_projection")
        compressed = norm(project(h, "query_projection.0"), "query_projection.1")
        return project(compressed, "query_projection.2")

    for b, i in np.ndindex(2, 6):
        outputs = np.zeros((HEADS, D_K))
        queries = query(h[b, i]).reshape(HEADS, ROTARY + D_K)
        for head in range(HEADS):
            visible = [j for j in range(i + 1) if not mask[b, 0, 0, j]]
            scores, values = [], []
            for j in visible:
                down = project(h[b, j], "down_projection")
                shared, c = rotate(down[:ROTARY], j), norm(down[ROTARY:], "latent_norm")
                key, value = project(c, "up_projection").reshape(HEADS, 2, D_K)[head]
                values.append(value)
                score = rotate(queries[head, :ROTARY], i) @ shared + queries[head, ROTARY:] @ key
                scores.append(math.exp(score / math.sqrt(ROTARY + D_K)))
            for score, value in zip(scores, values, strict=True):
                outputs[head] += score / sum(scores) * value
        expected = project(outputs.ravel(), "output_projection")
        np.testing.assert_allclose(found[b, i], expected, rtol=0, atol=1e-12)


def test_the_absorbed_form_has_the_output_and_the_gradients_of_the_plain_one() -> None:
    layer, x = latent(query_latent_size=7), torch.randn(2, 6, WIDTH, dtype=F64)
    rows = []
    for queries in (x[:, -1:], x):  # one query, and several
        output = layer(queries, x, x, causal=True)[:, -1]
        gradients = torch.autograd.grad(output.cos().sum(), [*layer.parameters()])
        rows.append([output, *gradients])
    for absorbed, plain in zip(*rows, strict=True):
        torch.testing.assert_close(absorbed, plain, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_decoding_step_computes_no_key_and_no_value_of_earlier_positions() -> None:
    layer, cache, x = latent(), KeyValueCache(), torch.randn(2, 6, WIDTH, dtype=F64)
    calls = list[Tensor]()
    layer.up_projection.register_forward_hook(lambda *call: calls.append(call[2]))
    layer(x, x, x, causal=True, cache=cache)
    assert len(calls) == 1
    layer(x[:, :1], x[:, :1], x[:, :1], cache=cache)
    assert len(calls) == 1
    assert sum(each[0, :, 0].numel() for each in cache.read()) == LATENT + ROTARY


@torch.no_grad()
def test_a_layer_prepared_in_8_bits_decodes_with_the_weights_that_it_reads() -> None:
    encoder = build_encoder(num_layers=2, d_model=WIDTH, residual=PreNorm, attention=latent)
    encoder, x = encoder.float().eval(), torch.randn(2, 6, WIDTH)
    ready = prepare(encoder, int8=True)
    expected, cache = ready(x, causal=True), ready.new_cache()
    steps = [ready(part, causal=True, cache=cache) for part in x.split([3, 1, 1, 1], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=0.1)
    torch.testing.assert_close(expected, encoder(x, causal=True), rtol=0, atol=0.3)


@pytest.mark.parametrize("size", [3, 7])
def test_sizes_that_do_not_fit_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"latent_size must be even and at least the size of rot"):
        LatentAttention(8, 2, latent_size=size, value_size=3, rotary=RotaryPositionalEncoding(4))
