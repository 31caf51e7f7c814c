"""A traced forward pass: every call with its shapes, and parameters, and its failure."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import Decoder, Encoder, TokenEmbedding, build_decoder, build_encoder
from transformer_blocks.inspection import Trace, trace_shapes

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
    assert sorted((call.name, *(call.outputs or ())) for call in trace.calls) == sorted(seen)
    assert len([call for call in trace.calls if call.name == "embedding"]) == 2
    assert trace.calls[0].inputs == [(2, 7), (2, 5)]


def test_sizes_are_shown_by_name() -> None:
    trace = trace_shapes(Model(), *IDS)
    assert trace.sizes == {"B": 2, "L": 7}
    trace = trace_shapes(Model(), *IDS, sizes={"B": 2, "S": 7, "L": 5, "d": 16})
    lines = [" ".join(line.split()) for line in str(trace).split("\n")]
    assert lines[0] == "B = 2, S = 7, L = 5, d = 16"
    name = "layers.0.feed_forward.up_projection Linear"
    assert f"encoder.{name} (B, S, d) (B, S, 32) 544" in lines
    assert f"decoder.{name} (B, L, d) (B, L, 32) 544" in lines


@pytest.mark.parametrize(
    ("shape", "named"), [((2, 2, 9), "(B, L, 9)"), ((9, 2), "(9, B)"), ((2, 2, 2), "(B, L, 2)")]
)
def test_a_name_stands_once_in_a_shape(shape: tuple[int, ...], named: str) -> None:
    assert Trace([], {"B": 2, "L": 2}).named(shape) == named


def test_a_failing_call_ends_the_table_and_is_described() -> None:
    model = Model()
    wrong = nn.Linear(31, 16)
    model.get_submodule("decoder.layers.1.feed_forward").down_projection = wrong
    trace = trace_shapes(model, *IDS)
    assert isinstance(trace.error, RuntimeError)
    text = str(trace)
    assert text.split("\n")[-1].startswith(
        "failed: decoder.layers.1.feed_forward.down_projection (Linear) received (B, 5, 32) = "
        "(2, 5, 32): "
    )
    unfinished = [call.name for call in trace.calls if call.outputs is None]
    assert unfinished == [
        *("", "decoder", "decoder.layers.1", "decoder.layers.1.feed_forward_residual"),
        *("decoder.layers.1.feed_forward", "decoder.layers.1.feed_forward.down_projection"),
    ]


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
    calls = [(call.name, call.outputs) for call in trace.calls]
    assert calls == [("", [(2, 8), (2, 16), (2, 16)]), ("first", None), ("second", [(2, 8)])]


def test_a_failure_keeps_no_activations_alive() -> None:
    model = Model()
    model.encoder.layers[0].get_submodule("feed_forward").down_projection = nn.Linear(31, 16)
    trace = trace_shapes(model, *IDS)
    assert trace.error is not None
    assert trace.error.__traceback__ is None


def test_a_module_that_fails_after_its_parts_is_the_one_that_is_described() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x) @ x

    text = str(trace_shapes(Failing(), torch.ones(2, 4)))
    assert "failed: (Failing) received (B, L) = (2, 4): " in text
