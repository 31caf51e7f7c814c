"""Qwen3: the model, and the names of its weights in published files.

Qwen3 ("Qwen3 Technical Report", Yang et al. 2025, https://arxiv.org/abs/2505.09388, section 2) is
a Llama whose attention normalises queries and keys before it rotates them
(:class:`~transformer_blocks.QueryKeyNorm`). With ``use_sliding_window`` in ``config.json``, the
layers from ``max_window_layers`` on have a sliding window.

Next: ``qwen3_moe_model.py``, whose layers have many feed-forward networks.
"""

from pathlib import Path
from typing import Any

from transformer_blocks.pretrained.llama_family import Sizes
from transformer_blocks.pretrained.llama_model import Llama
from transformer_blocks.pretrained.loading import Config


class Qwen3(Llama):
    """Qwen3: a Llama that normalises queries and keys.

    Args:
        sizes: The settings of the model.
    """

    model_type = "qwen3"
    query_key_norm = True
    names = Llama.names | {
        "self_attention.transforms.0.query_norm": "self_attn.q_norm",
        "self_attention.transforms.0.key_norm": "self_attn.k_norm",
    }

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        first = config.size("max_window_layers", 28, least=0)
        allowed = config.flag("use_sliding_window", False)
        sizes = Sizes.read(
            folder,
            config,
            has_window=lambda layer: allowed and layer >= first,
            windows_allowed=allowed,
        )
        return {"sizes": sizes}
