"""Export: a decoding step as the documentation exports it, and an encoder with any mask.

Exported programs compute the same outputs for other batch sizes and lengths than those of the
export; the decoding step runs in onnxruntime.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    PreNorm,
    build_encoder,
    document_mask,
    sliding_window_mask,
)

onnxruntime = pytest.importorskip("onnxruntime")
NUM_HEADS, D_MODEL, NUM_LAYERS = 2, 8, 2
STACK: dict[str, Any] = {
    "num_layers": NUM_LAYERS,
    "d_model": D_MODEL,
    "num_heads": NUM_HEADS,
    "d_ff": 12,
}
BATCH, LENGTH = Dim("B"), Dim("L")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]


def load(path: Path) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        arrays = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, arrays)]

    return run


def code_of_export_page() -> dict[str, Any]:
    """Execute the first block of the documentation page and return the names it defines."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "export_to_onnx.md"
    code, *_ = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(page), "exec"), names)
    return names


def padding(batch_size: int, length: int) -> Tensor:
    lengths = torch.arange(batch_size) % length + 1
    return (torch.arange(length) >= lengths[:, None])[:, None, None]


@pytest.mark.slow
@torch.no_grad()
def test_the_decoding_step_that_the_documentation_exports_decodes_a_sequence(
    tmp_path: Path,
) -> None:
    layers = [
        DecoderLayer(
            MultiHeadAttention(D_MODEL, 4, num_key_value_heads=2),
            MultiHeadAttention(D_MODEL, NUM_HEADS),
            FeedForward(D_MODEL, 12),
            residual=lambda: PreNorm(D_MODEL),
        )
        for _ in range(NUM_LAYERS)
    ]
    page, decoder = code_of_export_page(), Decoder(layers, norm=nn.LayerNorm(D_MODEL)).eval()
    path = tmp_path / "step.onnx"
    examples = torch.randn(2, 3, D_MODEL), torch.randn(2, 5, D_MODEL), padding(2, 5)
    page["export_step"](decoder, *examples, str(path))
    run = load(path)
    for batch_size, source_length in ((2, 5), (3, 7), (1, 1)):
        memory = torch.randn(batch_size, source_length, D_MODEL)
        mask = padding(batch_size, source_length)
        x = torch.randn(batch_size, 6, D_MODEL)
        memory_cache = page["read"](decoder.new_cache(memory, memory_mask=mask).memory)
        cache, outputs = torch.zeros(NUM_LAYERS, 2, batch_size, 2, 0, D_MODEL // 4), []
        for token in x.split(1, dim=1):
            output, cache = run(token, cache, memory_cache, mask)
            outputs.append(output)
        expected = decoder(x, memory, memory_mask=mask)
        torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_equal_batch_size_and_length_are_no_special_case_of_an_exported_model() -> None:
    class Windowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = build_encoder(**STACK).eval()

        def forward(self, x: Tensor, mask: Tensor, documents: Tensor) -> Tensor:
            window = sliding_window_mask(x.shape[1], window=3)
            return self.encoder(x, mask=mask | document_mask(documents) | window)

    def make_inputs(batch_size: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        documents = torch.randint(2, (batch_size, length))
        return torch.randn(batch_size, length, D_MODEL), padding(batch_size, length), documents

    model = Windowed()
    shapes = {0: BATCH, 1: LENGTH}, {0: BATCH, 3: LENGTH}, {0: BATCH, 1: LENGTH}
    program = torch.export.export(model, make_inputs(3, 5), dynamic_shapes=shapes).module()
    for size in ((4, 4), (3, 5), (5, 3)):
        inputs = make_inputs(*size)
        torch.testing.assert_close(program(*inputs), model(*inputs))
