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

Next: ``generator.py``, which continues texts.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks import Residual, SandwichNorm, TokenEmbedding
from transformer_blocks.pretrained.llama_family import WHOLE, WINDOW, Sizes, read_rotary
from transformer_blocks.pretrained.loading import Config
from transformer_blocks.pretrained.qwen3 import Qwen3


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
    """Gemma 3: a language model whose layers have windows, and normalise input and output.

    Args:
        sizes: The settings of the model.
    """

    model_type = "gemma3_text"
    embedding_class = TokenEmbedding
    expected = Qwen3.expected | {
        "attn_logit_softcapping": None,
        "use_bidirectional_attention": False,
    }
    names = Qwen3.names | {
        "self_attention_residual.output_norm": "post_attention_layernorm",
        "feed_forward_residual.norm": "pre_feedforward_layernorm",
        "feed_forward_residual.output_norm": "post_feedforward_layernorm",
    }

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.query_scale = sizes.query_scale
        if sizes.logit_cap is not None:
            self.output = nn.Sequential(self.output, SoftCap(sizes.logit_cap))

    @classmethod
    def residual(cls, sizes: Sizes) -> Callable[..., Residual]:
        """Return a function that makes the connection of a sublayer."""
        return lambda d_model, dropout: SandwichNorm(
            d_model, dropout=dropout, norm=sizes.norm(), output_norm=sizes.norm()
        )

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        every = config.size("sliding_window_pattern", 6)  # this layer has no window
        sizes = Sizes.read(
            folder,
            config,
            activation="hidden_activation",
            tied=True,
            base=1_000_000.0,
            kind=WHOLE,
            has_window=lambda layer: bool((layer + 1) % every),
            windows_allowed=True,
        )
        cap = "final_logit_softcapping"
        more: dict[str, Any] = {
            "window_rotary": read_rotary(config, sizes.d_k, base=10000.0, kind=WINDOW),
            "query_scale": math.sqrt(sizes.d_k / config.number("query_pre_attn_scalar", 256.0)),
            "logit_cap": None if config.values.get(cap) is None else config.number(cap),
        }
        return {"sizes": replace(sizes, **more)}

    def convert(self, name: str, published: Tensor) -> Tensor:
        """Make a parameter of a published tensor; gains are published minus 1."""
        gains = 1.0 + published if "norm." in name else published
        return super().convert(name, gains * self.query_scale if "query_norm." in name else gains)
