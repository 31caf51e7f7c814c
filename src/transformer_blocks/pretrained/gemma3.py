"""Gemma 3: the model, and the names of its weights in published files.

Gemma 3 ("Gemma 3 Technical Report", 2025, https://arxiv.org/abs/2503.19786, section 2), in its form
for texts alone, has the parts of Qwen3, and these differences:

- Five of six layers have a sliding window, and a lower rotary base than the others. In a long text,
  their cache would need no keys and values beyond the window; here it holds all.
- The input and the output of each sublayer are normalised
  (:class:`~transformer_blocks.SandwichNorm`).
- The activation function of the gates is GELU.
- Token embeddings are multiplied by the square root of the hidden size, as in "Attention Is All You
  Need", section 3.4.
- Scores are divided by the square root of ``query_pre_attn_scalar``, which is not always the head
  size d_k. The gains of the query normalisation are therefore multiplied by
  sqrt(d_k / query_pre_attn_scalar) when they are loaded.
- The files hold the gains of a normalisation minus 1.

A file may also bound the logits (``final_logit_softcapping``), as in Gemma 2.

Next: ``families.py``, all of them by name.
"""

import math
from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor, nn

from transformer_blocks.embedding import TokenEmbedding
from transformer_blocks.models import LanguageModel, TiedLinear
from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.llama_family import (
    WHOLE,
    WINDOW,
    Rotary,
    read_rotary,
    read_windows,
)
from transformer_blocks.pretrained.qwen3 import Qwen3
from transformer_blocks.pretrained.weights import Origin
from transformer_blocks.residual import Residual
from transformer_blocks.variants.sandwich_norm import SandwichNorm


class SoftCap(nn.Module):
    """Bounds logits z by c: they become c * tanh(z / c).

    Args:
        bound: The bound c.
    """

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, logits: Tensor) -> Tensor:
        """Return the bounded logits, of the same shape."""
        return self.bound * torch.tanh(logits / self.bound)


class Gemma3(Qwen3):
    """Gemma 3."""

    activation, tied, base = "hidden_activation", True, 10.0**6
    names = Qwen3.names | {
        "self_attention_residual.output_norm": "post_attention_layernorm",
        "feed_forward_residual.norm": "pre_feedforward_layernorm",
        "feed_forward_residual.output_norm": "post_feedforward_layernorm",
    }

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        make = read_rotary(config, base=10000.0, kind=WINDOW)
        self.options |= {"window_rotary": partial(make, self.d_k), "residual": self.residual}
        scalar = config.number("query_pre_attn_scalar", 256.0)
        self.query_scale = math.sqrt(self.d_k / scalar)
        cap = "final_logit_softcapping"
        self.cap = None if config.get(cap) is None else config.number(cap)

    def read_rotary(self, config: Config) -> Rotary:
        """Read the rotary positions of the layers without a window."""
        return partial(read_rotary(config, base=self.base, kind=WHOLE), self.d_k)

    def read_windows(self, config: Config) -> list[int | None]:
        """Read the window of each layer; None for a layer that attends to the whole text."""
        every = config.size("sliding_window_pattern", 6)  # this layer has no window
        layers = range(1, self.options["num_layers"] + 1)
        return read_windows(config, [WINDOW if layer % every else WHOLE for layer in layers])

    def residual(self, d_model: int, dropout: float) -> Residual:
        """Make the connection of a sublayer."""
        norm, output_norm = (nn.RMSNorm(d_model, eps=self.options["eps"]) for _ in range(2))
        return SandwichNorm(d_model, dropout=dropout, norm=norm, output_norm=output_norm)

    def build(self) -> LanguageModel:
        """Compose the model."""
        built = super().build()
        embedding = TokenEmbedding(self.options["vocabulary_size"], self.options["d_model"])
        output = TiedLinear(embedding, "embedding") if self.options["tied"] else built.output
        if self.cap is not None:
            output = nn.Sequential(output, SoftCap(self.cap))
        return LanguageModel(embedding, built.decoder, output=output)

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; gains are published minus 1."""
        origin = super().origin(name)
        if "norm." in name:
            factor = self.query_scale if "query_norm." in name else 1.0
            return origin.then(lambda gains: (1.0 + gains) * factor)
        return origin
