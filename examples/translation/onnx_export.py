"""ONNX export: the encoder and the decoding step of a Transformer, as two ONNX files.

A cache is what exports of encoder-decoders get wrong most often. Here, the step has no state and no
position besides its tensors: it takes the cached keys and values of every layer, whose length is
the position of the newest tokens, and returns them with one position more. The first step receives
caches of length 0. The keys and values of the memory do not change during decoding; the encoder's
file computes them, once.
"""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn
from torch.export import Dim

from common.searches import Beam
from transformer_blocks import DecoderCache, KeyValueCache
from translation.decoding import Decoder, decoder_of
from translation.onnx_steps import OnnxModel
from translation.run import TrainedTranslator
from translation.transformer import Transformer

ENCODER, STEP = "encoder.onnx", "step.onnx"
OPSET = 20
"""Version of the operators; onnxruntime runs it since 1.17."""


class FunctionalCache(KeyValueCache):
    """The keys and values of one layer, appended to without changing the given tensors."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.tensors, self.length = tensors, tensors[0].shape[2]  # the keys and the values

    @property
    def buffer(self) -> Tensor:
        """Keys and values in one tensor, of shape (N, 2, H, S, d_k)."""
        return torch.stack(self.tensors, dim=1)

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions."""
        new = zip(self.tensors, (keys, values), strict=True)
        self.tensors = tuple(torch.cat(pair, dim=2) for pair in new)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return all cached keys, and all cached values."""
        keys, values = self.tensors
        return keys, values


class Encoding(nn.Module):
    """The encoder, with the projections of the decoder's cross-attention."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        """Encode sentences.

        Args:
            source: Token ids, padded with 0, of shape (B, S).

        Returns:
            The padding mask, of shape (B, 1, 1, S), then the keys and values of the memory for each
            decoder layer, each of shape (B, H, S, d_k).
        """
        memory, mask = self.model.encode(source)
        cache = self.model.decoder.new_cache(memory, memory_mask=mask)
        return mask, *(tensor for layer in cache.memory for tensor in layer.read())


class Step(nn.Module):
    """One decoding step of a batch of hypotheses."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, mask: Tensor, memory: Sequence[Tensor], cache: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Compute the logits of the next tokens.

        Args:
            tokens: The newest token of each hypothesis, of shape (N,).
            mask: The padding mask of the memory, of shape (N, 1, 1, S).
            memory: Keys and values of the memory for each layer, each of shape (N, H, S, d_k).
            cache: Keys and values of earlier target positions for each layer, each of shape
                (N, H, L, d_k).

        Returns:
            Logits, of shape (N, V), then the cache with the position of ``tokens``.
        """
        state = DecoderCache(_layers(memory), memory_mask=mask)
        state.layers = _layers(cache)
        state.advance(cache[0].shape[2])
        x = self.model.embed(tokens[:, None], state.length)
        hidden = self.model.decoder(x, cache=state)
        new = (tensor for layer in state.layers for tensor in layer.read())
        return self.model.output(hidden[:, 0]), *new


def _layers(tensors: Sequence[Tensor]) -> list[KeyValueCache]:
    """Return the cache of each layer, from the keys and values of all."""
    return [FunctionalCache(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]


@torch.no_grad()
def write_model(trained: TrainedTranslator, folder: Path, *, int8: bool = False) -> dict[str, Any]:
    """Write the encoder and the decoding step of a model to a folder.

    Args:
        trained: The translator, a Transformer on the CPU.
        folder: The folder, which exists.
        int8: Not for this format, which holds 32-bit floats.

    Returns:
        The inputs and outputs of each file, with their types and shapes.
    """
    model: Any = trained.model
    # The sizes of the examples differ, because equal sizes would be exported as one; none of
    # them is 1, which would be exported as a constant.
    source = torch.full((2, 5), 4)
    mask, *memory = Encoding(model)(source)
    cache = [tensor[:, :, :3] for tensor in memory]
    batch, source_length = Dim("batch"), Dim("source_length", max=model.max_length)
    length = Dim("length", max=model.max_length - 1)
    of_memory, of_cache = {0: batch, 2: source_length}, {0: batch, 2: length}
    names = [f"{kind}_{i}" for i in range(len(memory) // 2) for kind in ("keys", "values")]
    memory_names = [f"memory_{name}" for name in names]
    inputs: dict[str, Any] = {"source": (source, {0: batch, 1: source_length})}
    _export(Encoding(model), inputs, ["source"], ["mask", *memory_names], folder / ENCODER)
    inputs = {
        "tokens": (source[:, 0], {0: batch}),
        "mask": (mask, {0: batch, 3: source_length}),
        "memory": (memory, [of_memory] * len(memory)),
        "cache": (cache, [of_cache] * len(cache)),
    }
    input_names = ["tokens", "mask", *memory_names, *names]
    outputs = ["logits", *(f"new_{name}" for name in names)]
    _export(Step(model), inputs, input_names, outputs, folder / STEP)
    files = {}
    for name in (ENCODER, STEP):
        session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        sides = {"inputs": session.get_inputs(), "outputs": session.get_outputs()}
        files[name] = {
            side: {each.name: [each.type, each.shape] for each in listed}
            for side, listed in sides.items()
        }
    return {"opset": OPSET, "files": files}


def load_decoder(trained: TrainedTranslator, folder: Path, beam: Beam) -> Decoder:
    """Load what was exported, as a decoder."""
    return decoder_of(OnnxModel(folder, threads=torch.get_num_threads()), beam)


def _export(
    module: nn.Module,
    inputs: dict[str, Any],
    input_names: Sequence[str],
    output_names: Sequence[str],
    path: Path,
) -> None:
    """Export a module; each input is an example with the names of its dynamic sizes."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses packages not needed here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecated functions
        program = torch.onnx.export(
            module.eval(),
            kwargs={name: example for name, (example, _) in inputs.items()},
            dynamic_shapes={name: sizes for name, (_, sizes) in inputs.items()},
            input_names=input_names,
            output_names=output_names,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(path)
