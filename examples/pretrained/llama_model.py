"""Llama: the model, and the names of its weights in published files.

Llama ("LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023,
https://arxiv.org/abs/2302.13971, section 2.2; "The Llama 3 Herd of Models", 2024,
https://arxiv.org/abs/2407.21783, section 3.2) differs from GPT-2 in these parts: RMSNorm in place
of layer normalisation, a gated feed-forward network (SwiGLU), rotary positions in the attention in
place of learned ones, and no biases. Grouped-query attention came with the larger models of Llama 2
and is in all of Llama 3. Llama 3.1 also scales the rotary frequencies, for longer texts.

Next: ``qwen3_model.py``, which normalises queries and keys.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from pretrained.llama_family import LEFT_OUT, LlamaFamily, Sizes, origins, read_rotary, read_windows
from pretrained.loading import Config, read_end_ids
from pretrained.weights import load_model
from transformer_blocks import EncoderLayer, PreNorm, RotaryPositionalEncoding

NORMS = {
    "self_attention_residual.norm": "input_layernorm",
    "feed_forward_residual.norm": "post_attention_layernorm",
}
"""Published names of the normalisations of a layer."""


class Llama(LlamaFamily):
    """Llama: a language model with rotary positions, grouped query heads and SwiGLU.

    Args:
        sizes: The settings of the model.
        rotary: Function that makes the rotary positions of a layer.
        end_ids: Ids of the tokens that end a text.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        rotary: Callable[[], RotaryPositionalEncoding],
        end_ids: tuple[int, ...],
    ) -> None:
        layers = (
            EncoderLayer(
                sizes.attention([rotary()]),
                sizes.feed_forward(),
                residual=lambda: PreNorm(sizes.d_model, norm=sizes.norm()),
            )
            for _ in range(sizes.num_layers)
        )
        super().__init__(sizes, layers, end_ids=end_ids)

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Llama":
        """Load a published Llama.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "llama")
        sizes = Sizes.read(config, tied=False)
        read_windows(config, [False] * sizes.num_layers, allowed=False)
        make = partial(
            cls,
            sizes,
            rotary=read_rotary(config, sizes.d_k, base=10000.0),
            end_ids=read_end_ids(folder, config),
        )
        return load_model(make, folder, origins(sizes, NORMS), left_out=LEFT_OUT, dtype=dtype)
