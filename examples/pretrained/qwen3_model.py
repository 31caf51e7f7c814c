"""Qwen3: the model, and the names of its weights in published files.

Qwen3 ("Qwen3 Technical Report", Yang et al. 2025, https://arxiv.org/abs/2505.09388, section 2) is
a Llama whose attention normalises queries and keys before it rotates them
(:class:`~transformer_blocks.QueryKeyNorm`). With ``use_sliding_window`` in ``config.json``, the
layers from ``max_window_layers`` on have a sliding window.

Next: ``gemma3_model.py``, most of whose layers have a sliding window.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from pretrained.llama_family import LEFT_OUT, LlamaFamily, Sizes, origins, read_rotary, read_windows
from pretrained.llama_model import NORMS
from pretrained.loading import Config, read_end_ids
from pretrained.weights import load_model
from transformer_blocks import EncoderLayer, PreNorm, QueryKeyNorm, RotaryPositionalEncoding

QWEN3_NORMS = NORMS | {
    "self_attention.transforms.0.query_norm": "self_attn.q_norm",
    "self_attention.transforms.0.key_norm": "self_attn.k_norm",
}
"""Published names of the normalisations of a layer."""


class Qwen3(LlamaFamily):
    """Qwen3: a Llama that normalises queries and keys.

    Args:
        sizes: The settings of the model.
        rotary: Function that makes the rotary positions of a layer.
        windows: Window of each layer; None for a layer that attends to the whole text.
        end_ids: Ids of the tokens that end a text.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        rotary: Callable[[], RotaryPositionalEncoding],
        windows: list[int | None],
        end_ids: tuple[int, ...],
    ) -> None:
        norm = partial(nn.RMSNorm, eps=sizes.eps)
        layers = (
            EncoderLayer(
                sizes.attention([QueryKeyNorm(sizes.d_k, norm=norm), rotary()], window=window),
                sizes.feed_forward(),
                residual=lambda: PreNorm(sizes.d_model, norm=sizes.norm()),
            )
            for window in windows
        )
        super().__init__(sizes, layers, end_ids=end_ids)

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Qwen3":
        """Load a published Qwen3.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "qwen3")
        sizes = Sizes.read(config, tied=False)
        first = config.size("max_window_layers", 28, least=0)
        has_windows = config.flag("use_sliding_window", False)
        make = partial(
            cls,
            sizes,
            rotary=read_rotary(config, sizes.d_k, base=10000.0),
            windows=read_windows(
                config,
                [has_windows and layer >= first for layer in range(sizes.num_layers)],
                allowed=has_windows,
            ),
            end_ids=read_end_ids(folder, config),
        )
        return load_model(make, folder, origins(sizes, QWEN3_NORMS), left_out=LEFT_OUT, dtype=dtype)
