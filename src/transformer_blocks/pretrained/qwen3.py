"""Qwen3: the model, and the names of its weights in published files.

Qwen3 ("Qwen3 Technical Report", Yang et al. 2025, https://arxiv.org/abs/2505.09388, section 2) is
a Llama whose attention normalises queries and keys before it rotates them
(:class:`~transformer_blocks.QueryKeyNorm`). With ``use_sliding_window`` in ``config.json``, the
layers from ``max_window_layers`` on have a sliding window.

Next: ``qwen3_moe.py``, whose layers have many feed-forward networks.
"""

from collections.abc import Collection

from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.llama_family import WHOLE, WINDOW, Llama, read_windows


class Qwen3(Llama):
    """Qwen3."""

    names = Llama.names | {
        "self_attention.transforms.0.query_norm": "self_attn.q_norm",
        "self_attention.transforms.0.key_norm": "self_attn.k_norm",
    }

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        self.options["query_key_norm"] = True

    def read_windows(self, config: Config) -> list[int | None]:
        """Read the window of each layer; None for a layer that attends to the whole text."""
        first, layers = config.size("max_window_layers", 28, least=0), self.options["num_layers"]
        may_have = config.flag("use_sliding_window", False)
        kinds = [WINDOW if may_have and layer >= first else WHOLE for layer in range(layers)]
        return read_windows(config, kinds, may_have=may_have)
