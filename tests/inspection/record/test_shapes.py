"""A traced forward pass: every call with its shapes, and parameters, and its failure."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    Encoder,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)
from transformer_blocks.inspection import trace_shapes
from transformer_blocks.inspection.shapes import name_sizes

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}


class Model(nn.Module):
    """An encoder and a decoder over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(50, 16)
        self.encoder: Encoder = build_encoder(**SIZES)
        self.decoder: Decoder = build_decoder(**SIZES)

    def forward(self, source: Tensor, target: Tensor, *, factor: float = 1.0) -> Tensor:
        return self.decoder(self.embedding(target), factor * self.encoder(self.embedding(source)))


IDS = torch.ones(2, 7).long(), torch.ones(2, 5).long()


def test_every_call_of_every_module_is_listed() -> None:
    model = Model()
    seen: list[tuple[str, tuple[int, ...]]] = []
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda *call, name=name: seen.append((name, tuple(call[2].shape)))
        )
    trace = trace_shapes(model, *IDS, keywords={"factor": 2.0})
    assert trace.error is None
    assert sorted((call.name, *call.outputs) for call in trace.calls) == sorted(seen)
    assert len([call for call in trace.calls if call.name == "embedding"]) == 2
    assert trace.calls[0].inputs == [(2, 7), (2, 5)]


def test_sizes_are_shown_by_name() -> None:
    trace = trace_shapes(Model(), *IDS)
    assert trace.sizes == {
        "B": 2,
        "S": 7,
        "L": 5,
        "d_model": 16,
        "H": 4,
        "d_k": 4,
        "d_ff": 32,
        "V": 50,
    }
    lines = [" ".join(line.split()) for line in str(trace).split("\n")]
    assert "up_projection Linear (B, S, d_model) (B, S, d_ff) 544" in lines
    assert any(
        line.startswith("up_projection Linear (B, L, d_model) (B, L, d_ff)") for line in lines
    )
    named = trace_shapes(Model(), *IDS, sizes={"words": 7, "B": 2})
    assert named.named((2, 7, 16)) == "(B, S, d_model)"
    assert named.named((2, 9)) == "(B, 9)"


def test_custom_names_are_used_where_no_other_fits() -> None:
    trace = trace_shapes(nn.Linear(6, 9), torch.randn(2, 3, 6), sizes={"pixels": 6, "colours": 9})
    assert trace.named((2, 3, 6)) == "(B, L, pixels)"
    assert trace.named((2, 3, 9)) == "(B, L, colours)"


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((4, 4, 4, 4), ["B", "H", "L", "d_k"]),
        ((4, 4), ["B", "L"]),
        ((4,), ["B"]),
        ((), []),
        ((1, 9, 16), ["1", "9", "d_model"]),
    ],
)
def test_the_dimension_decides_between_names_of_equal_sizes(
    shape: tuple[int, ...], names: list[str]
) -> None:
    sizes = {"B": 4, "L": 4, "S": 4, "H": 4, "d_k": 4, "d_model": 16}
    assert name_sizes(shape, sizes) == names


def test_tracing_leaves_no_hooks_gradients_settings_or_changes() -> None:
    model = Model().train()
    assert torch.backends.mha.get_fastpath_enabled()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for bad in (False, True):
        trace_shapes(model, *(IDS if not bad else IDS[:1]))
        assert model.training
        assert torch.backends.mha.get_fastpath_enabled()
        for module in model.modules():
            assert not module._forward_hooks
            assert not module._forward_pre_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_failing_call_ends_the_table_and_is_described() -> None:
    model = Model()
    wrong = nn.Linear(31, 16)
    model.get_submodule("decoder.layers.1.feed_forward").down_projection = wrong
    trace = trace_shapes(model, *IDS)
    assert isinstance(trace.error, RuntimeError)
    text = str(trace)
    assert text.split("\n")[-1].startswith(
        "failed: decoder.layers.1.feed_forward.down_projection (Linear) received (B, L, d_ff) = "
        "(2, 5, 32) and expects size 31: "
    )
    unfinished = [call.name for call in trace.calls if not call.completed]
    assert unfinished == [
        *("", "decoder", "decoder.layers.1", "decoder.layers.1.feed_forward_residual"),
        *("decoder.layers.1.feed_forward", "decoder.layers.1.feed_forward.down_projection"),
    ]


def test_a_call_with_missing_arguments_is_described_too() -> None:
    trace = trace_shapes(Model(), IDS[0])
    assert isinstance(trace.error, TypeError)
    assert "failed: Model received (B, L) = (2, 7): " in str(trace)


class CatchesError(nn.Module):
    """Calls a layer that fails, catches the error, and calls another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(9, 9), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor, ...]]:
        try:
            return {"y": self.first(x)}
        except RuntimeError:
            return {"y": self.second(x), "x": (x, x)}


def test_an_error_that_the_model_catches_ends_only_the_inner_call() -> None:
    trace = trace_shapes(CatchesError(), torch.randn(2, 16))
    assert trace.error is None
    calls = [(call.name, call.completed, call.outputs) for call in trace.calls]
    assert calls == [
        ("", True, [(2, 8), (2, 16), (2, 16)]),
        ("first", False, []),
        ("second", True, [(2, 8)]),
    ]


def test_a_failure_keeps_no_activations_alive() -> None:
    model = Model()
    model.encoder.layers[0].get_submodule("feed_forward").down_projection = nn.Linear(31, 16)
    trace = trace_shapes(model, *IDS)
    assert trace.error is not None
    assert trace.error.__traceback__ is None
