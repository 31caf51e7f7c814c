"""A compiled model can be inspected: its hooks are called, and it is not changed."""

from typing import Any

import pytest
import torch
from torch import nn

from transformer_blocks import build_encoder, record_attention
from transformer_blocks.inspection import ablate, trace_shapes


def compile_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compile_around(model: nn.Module) -> nn.Module:
    compiled: Any = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    return compiled


@pytest.fixture(params=[compile_in_place, compile_around])
def compiled(request: Any) -> nn.Module:
    model = build_encoder(num_layers=2, d_model=8, num_heads=2, d_ff=12).eval()
    compiled: nn.Module = request.param(model)
    compiled(torch.randn(1, 4, 8))
    return compiled


def test_a_compiled_model_can_be_recorded_traced_and_ablated(compiled: nn.Module) -> None:
    x = torch.randn(1, 3, 8)
    expected = compiled(x)
    with record_attention(compiled) as maps:
        compiled(x)
    assert [len(weights) for weights in maps.values()] == [1, 1]
    names = [call.name for call in trace_shapes(compiled, x).calls]
    assert any(name.endswith("layers.1.self_attention") for name in names)
    modules = [name for name, _ in compiled.named_modules() if name.endswith("feed_forward")]
    with ablate(compiled, modules=modules):
        assert not torch.allclose(compiled(x), expected)
    assert torch.equal(compiled(x), expected)
