"""ONNX steps: the files that ``translate.py export --to onnx`` writes, run by onnxruntime.

This file needs nothing of the model's code, and can be copied. :meth:`OnnxModel.begin` returns a
step model, with which greedy decoding and beam search decode as they do with a model of torch.
"""

import json
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor


class OnnxModel:
    """An exported translator.

    Args:
        folder: The folder that was exported.
        threads: Number of threads.

    Attributes:
        max_length: Maximum number of tokens of a sentence, on either side.
    """

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, options, ["CPUExecutionProvider"])
            for name in ("encoder.onnx", "step.onnx")
        )
        content = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        self.max_length: int = content["max_length"]

    def begin(self, source: Tensor) -> "OnnxSteps":
        """Encode sentences, and prepare to decode their translations step by step.

        Args:
            source: Source token ids with the end token, padded with 0 at the end, of shape (N, S).
        """
        self.check_length(source.shape[1])
        return OnnxSteps(self, source)

    def check_length(self, length: int) -> None:
        """Raise if a sentence is too long.

        Raises:
            ValueError: If it is longer than ``max_length``.
        """
        if length > self.max_length:
            raise ValueError(f"a sentence has at most {self.max_length} tokens, got {length}")


class OnnxSteps:
    """The decoding of one batch: a :class:`~transformer_blocks.generation.StepModel`.

    Args:
        model: The exported translator.
        source: Source token ids, of shape (N, S).
    """

    def __init__(self, model: OnnxModel, source: Tensor) -> None:
        names = [each.name for each in model.decoder.get_inputs()]
        first = names.index("keys_0")  # tokens, then the tensors of the source, then the cache
        encoded = model.encoder.run(None, {"source": source.numpy()})
        self.model = model
        self.memory = dict(zip(names[1:first], map(torch.from_numpy, encoded), strict=True))
        empty = self.memory["memory_keys_0"][:, :, :0]  # (N, H, 0, d_k)
        self.cache = dict.fromkeys(names[first:], empty)
        self.sources = torch.arange(len(source))  # index of the source of each row

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, (N, V)."""
        self.model.check_length(self.cache["keys_0"].shape[2] + 1)
        inputs = {"tokens": tokens, **self.memory, **self.cache}
        outputs = self.model.decoder.run(None, {name: x.numpy() for name, x in inputs.items()})
        logits, *new = map(torch.from_numpy, outputs)
        self.cache = dict(zip(self.cache, new, strict=True))
        return logits

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension: row i becomes a copy of row ``rows[i]``."""
        self.cache = {name: x[rows] for name, x in self.cache.items()}
        sources = self.sources[rows]
        if not torch.equal(sources, self.sources):  # else the memory of each row is the same
            self.memory = {name: x[rows] for name, x in self.memory.items()}
            self.sources = sources
