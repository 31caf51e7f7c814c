"""A model leaves for another runtime: an encoder with its padding, and a decoder's step.

What is exported runs in onnxruntime, with other batches and lengths than it was exported with, and
gives the same numbers.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    FeedForward,
    GroupedQueryAttention,
    MultiHeadAttention,
    PreNorm,
    build_decoder,
    build_encoder,
    document_mask,
    sliding_window_mask,
)

onnxruntime = pytest.importorskip("onnxruntime")
HEADS, WIDTH, LAYERS = 2, 8, 2
STACK: dict[str, Any] = {"num_layers": LAYERS, "d_model": WIDTH, "num_heads": HEADS, "d_ff": 12}
BATCH, LENGTH = Dim("B"), Dim("L")
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


def to_onnx(program: ExportedProgram, path: Path) -> Any:
    exported: Any = torch.onnx.export(program, dynamo=True, verbose=False)
    exported.save(str(path))
    return load(path)


def load(path: Path) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, given)]

    return run


def recipe() -> dict[str, Any]:
    """Run the code of the page about caches, and give what it defines."""
    page = Path(__file__).parent.parent / "docs" / "blocks" / "cache.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code, str(page), "exec"), defined)
    return defined


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
def test_a_decoder_steps_elsewhere_as_its_page_says(tmp_path: Path) -> None:
    layers = [
        DecoderLayer(
            GroupedQueryAttention(WIDTH, 4, 2),
            MultiHeadAttention(WIDTH, HEADS),
            FeedForward(WIDTH, 12),
            residual=lambda: PreNorm(WIDTH),
        )
        for _ in range(LAYERS)
    ]
    page, decoder = recipe(), Decoder(layers, norm=nn.LayerNorm(WIDTH)).eval()
    path = tmp_path / "step.onnx"
    examples = torch.randn(2, 3, WIDTH), torch.randn(2, 5, WIDTH), padding(2, 5)
    page["export_step"](decoder, *examples, str(path))
    run = load(path)
    for batch, source in ((2, 5), (3, 7), (1, 1)):
        memory, mask = torch.randn(batch, source, WIDTH), padding(batch, source)
        x = torch.randn(batch, 6, WIDTH)
        projected = page["read"](decoder.new_cache(memory, memory_mask=mask).memory)
        past, words = torch.zeros(LAYERS, 2, batch, 2, 0, WIDTH // 4), []
        for word in x.split(1, dim=1):
            y, past = run(word, past, projected, mask)
            words.append(y)
        whole = decoder(x, memory, memory_mask=mask)
        torch.testing.assert_close(torch.cat(words, dim=1), whole, rtol=0, atol=1e-5)


def test_a_cache_is_made_without_values() -> None:
    decoder = build_decoder(**STACK).to("meta")
    with torch.no_grad():
        memory, mask = torch.randn(2, 5, WIDTH, device="meta"), padding(2, 5).to("meta")
        cache = decoder.new_cache(memory, memory_mask=mask)
        assert decoder(torch.randn(2, 1, WIDTH, device="meta"), cache=cache).shape == (2, 1, WIDTH)
    assert cache.memory_mask is mask  # what it hides is not known


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
