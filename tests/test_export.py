"""A model leaves for another runtime: an encoder with its padding, and a decoder's step.

What is exported runs in onnxruntime, with other batches and lengths than it was exported with, and
gives the same numbers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks import (
    Decoder,
    DecoderCache,
    Encoder,
    KeyValueCache,
    PreNorm,
    build_decoder,
    build_encoder,
    document_mask,
    sliding_window_mask,
)

onnxruntime = pytest.importorskip("onnxruntime")
HEADS, D_K, WIDTH, LAYERS = 2, 4, 8, 2
STACK: dict[str, Any] = {"num_layers": LAYERS, "d_model": WIDTH, "num_heads": HEADS, "d_ff": 12}
BATCH, LENGTH, SOURCE = Dim("B"), Dim("L"), Dim("S")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]


class Reads(nn.Module):
    """An encoder that is told where the padding is."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, mask=mask)


class Steps(nn.Module):
    """A decoder's step as a pure function: what it remembers goes in and comes out."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, x: Tensor, past: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take x (B, 1, d_model) and keys and values (layers, 2, B, H, L or S, d_k)."""
        cache = DecoderCache([fill(layer) for layer in memory], memory_mask=None)
        cache.memory_mask = memory_mask
        cache.past = [fill(layer) for layer in past]
        y = self.decoder(x, cache=cache)
        return y, torch.stack([torch.stack(layer.read()) for layer in cache.past])


def fill(keys_and_values: Tensor) -> KeyValueCache:
    cache = KeyValueCache()
    cache.add(keys_and_values[0], keys_and_values[1])
    return cache


def to_onnx(program: ExportedProgram, path: Path) -> Any:
    exported: Any = torch.onnx.export(program, dynamo=True, verbose=False)
    exported.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, given)]

    return run


def padding(batch: int, length: int) -> Tensor:
    lengths = torch.arange(batch) % length + 1
    return (torch.arange(length) >= lengths[:, None])[:, None, None]


@torch.no_grad()
def test_an_encoder_runs_elsewhere(tmp_path: Path) -> None:
    model = Reads(build_encoder(**STACK, residual=PreNorm)).eval()
    inputs = torch.randn(2, 5, WIDTH), padding(2, 5)
    shapes = {0: BATCH, 1: LENGTH}, {0: BATCH, 3: LENGTH}
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    run = to_onnx(program, tmp_path / "encoder.onnx")
    for batch, length in ((2, 5), (3, 9), (5, 2)):
        inputs = torch.randn(batch, length, WIDTH), padding(batch, length)
        expected = model(*inputs)
        torch.testing.assert_close(program.module()(*inputs), expected)
        torch.testing.assert_close(run(*inputs)[0], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_decoder_writes_elsewhere_step_by_step(tmp_path: Path) -> None:
    decoder = build_decoder(**STACK).eval()
    model = Steps(decoder)

    def start(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        memory = torch.randn(batch, length, WIDTH)
        layers: Any = decoder.layers
        projected = [torch.stack(each.cross_attention.project(memory, memory)) for each in layers]
        return memory, torch.stack(projected), padding(batch, length)

    _, projected, mask = start(2, 5)
    past = torch.randn(LAYERS, 2, 2, HEADS, 3, D_K)
    inputs = torch.randn(2, 1, WIDTH), past, projected, mask
    shapes: Any = ({0: BATCH}, {2: BATCH, 4: LENGTH}, {2: BATCH, 4: SOURCE}, {0: BATCH, 3: SOURCE})
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    run = to_onnx(program, tmp_path / "step.onnx")
    for batch, source in ((2, 5), (3, 7)):
        memory, projected, mask = start(batch, source)
        x = torch.randn(batch, 6, WIDTH)
        whole = decoder(x, memory, memory_mask=mask)
        past, words = torch.zeros(LAYERS, 2, batch, HEADS, 0, D_K), []
        first, past = model(x[:, :2], past, projected, mask)
        words.append(first)
        for word in x[:, 2:].split(1, dim=1):
            y, past = run(word, past, projected, mask)
            words.append(y)
        torch.testing.assert_close(torch.cat(words, dim=1), whole, rtol=0, atol=1e-5)


@torch.no_grad()
def test_as_many_sentences_as_words_are_no_special_case() -> None:
    class Windowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = build_encoder(**STACK).eval()

        def forward(self, x: Tensor, mask: Tensor, documents: Tensor) -> Tensor:
            near = sliding_window_mask(x.shape[1], window=3)
            return self.encoder(x, mask=mask | document_mask(documents) | near)

    def inputs(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        documents = torch.randint(2, (batch, length))
        return torch.randn(batch, length, WIDTH), padding(batch, length), documents

    model = Windowed()
    shapes = {0: BATCH, 1: LENGTH}, {0: BATCH, 3: LENGTH}, {0: BATCH, 1: LENGTH}
    program = torch.export.export(model, inputs(3, 5), dynamic_shapes=shapes).module()
    for size in ((4, 4), (3, 5), (5, 3)):
        given = inputs(*size)
        torch.testing.assert_close(program(*given), model(*given))
