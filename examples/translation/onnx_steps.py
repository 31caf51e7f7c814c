"""ONNX steps: the files of ``translate.py export --to onnx``, run by onnxruntime.

This file needs nothing of the model's code, and can be copied. :class:`OnnxModel` has a method
``begin`` as translators have, and what that returns is a step model, which greedy decoding and beam
search decode with.
"""

from pathlib import Path

import onnxruntime
import torch
from torch import Tensor


class OnnxModel:
    """An exported translator.

    Args:
        folder: The folder that was exported.
        threads: Number of threads.
    """

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, options, ["CPUExecutionProvider"])
            for name in ("encoder.onnx", "step.onnx")
        )

    def begin(self, source: Tensor) -> "OnnxSteps":
        """Encode sentences; the ids have shape (B, S), end token included, padded with 0."""
        return OnnxSteps(self, source)


class OnnxSteps:
    """The decoding of one batch: a :class:`~transformer_blocks.generation.StepModel`."""

    def __init__(self, model: OnnxModel, source: Tensor) -> None:
        names = [each.name for each in model.decoder.get_inputs()]
        of_cache = names.index("keys_0")
        self.decoder = model.decoder
        # tokens are the first input; then come the tensors of the source, and the cache
        encoded = model.encoder.run(None, {"source": source.numpy()})
        self.memory = dict(zip(names[1:of_cache], map(torch.from_numpy, encoded), strict=True))
        keys = self.memory["memory_keys_0"]
        self.cache = dict.fromkeys(names[of_cache:], keys[:, :, :0])  # length 0
        self.sources = torch.arange(len(source))  # the source of each row

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, (N, V)."""
        inputs = {"tokens": tokens, **self.memory, **self.cache}
        outputs = self.decoder.run(None, {name: x.numpy() for name, x in inputs.items()})
        logits, *new = map(torch.from_numpy, outputs)
        self.cache = dict(zip(self.cache, new, strict=True))
        return logits

    def reorder(self, rows: Tensor) -> None:
        """Make row i a copy of row ``rows[i]``."""
        self.cache = {name: x[rows] for name, x in self.cache.items()}
        if not torch.equal(self.sources[rows], self.sources):
            self.memory = {name: x[rows] for name, x in self.memory.items()}
            self.sources = self.sources[rows]
