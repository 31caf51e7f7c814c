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

Next: ``text_tokenizer.py``, the tokenizer of these models.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from pretrained.llama_family import (
    LEFT_OUT,
    WHOLE,
    WINDOW,
    LlamaFamily,
    Sizes,
    origins,
    read_rotary,
    read_windows,
)
from pretrained.loading import Config, read_end_ids
from pretrained.weights import load_model
from transformer_blocks import (
    EncoderLayer,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    SandwichNorm,
)

NORMS = {
    "self_attention.transforms.0.query_norm": "self_attn.q_norm",
    "self_attention.transforms.0.key_norm": "self_attn.k_norm",
    "self_attention_residual.norm": "input_layernorm",
    "self_attention_residual.output_norm": "post_attention_layernorm",
    "feed_forward_residual.norm": "pre_feedforward_layernorm",
    "feed_forward_residual.output_norm": "post_feedforward_layernorm",
}
"""Published names of the normalisations of a layer."""


class Gemma3(LlamaFamily):
    """Gemma 3: a language model whose layers have windows, and normalise input and output.

    Args:
        sizes: The settings of the model.
        rotary: Function that makes the rotary positions of a layer without a window.
        window_rotary: Function that makes those of a layer with a window.
        windows: Window of each layer; None for a layer that attends to the whole text.
        end_ids: Ids of the tokens that end a text.
        logit_cap: Bound of the logits; none if ``None``.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        rotary: Callable[[], RotaryPositionalEncoding],
        window_rotary: Callable[[], RotaryPositionalEncoding],
        windows: list[int | None],
        end_ids: tuple[int, ...],
        logit_cap: float | None = None,
    ) -> None:
        norm = partial(nn.RMSNorm, eps=sizes.eps)
        layers = (
            EncoderLayer(
                sizes.attention(
                    [
                        QueryKeyNorm(sizes.d_k, norm=norm),
                        rotary() if window is None else window_rotary(),
                    ],
                    window=window,
                ),
                sizes.feed_forward(),
                residual=lambda: SandwichNorm(
                    sizes.d_model, norm=sizes.norm(), output_norm=sizes.norm()
                ),
            )
            for window in windows
        )
        super().__init__(
            sizes,
            layers,
            end_ids=end_ids,
            embedding_scale=math.sqrt(sizes.d_model),
            logit_cap=logit_cap,
        )

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Gemma3":
        """Load a published Gemma 3.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "gemma3_text")
        config.expect(attn_logit_softcapping=None, use_bidirectional_attention=False)
        sizes = Sizes.read(config, activation="hidden_activation", tied=True)
        scale = math.sqrt(sizes.d_k / config.number("query_pre_attn_scalar", 256.0))
        every = config.size("sliding_window_pattern", 6)  # this layer has no window

        def convert_norm(name: str, published: Tensor) -> Tensor:
            return (1.0 + published) * (scale if name == "q_norm" else 1.0)

        make = partial(
            cls,
            sizes,
            rotary=read_rotary(config, sizes.d_k, base=1_000_000.0, kind=WHOLE),
            window_rotary=read_rotary(config, sizes.d_k, base=10000.0, kind=WINDOW),
            windows=read_windows(
                config, [bool((layer + 1) % every) for layer in range(sizes.num_layers)]
            ),
            end_ids=read_end_ids(folder, config),
            logit_cap=None
            if config.values.get("final_logit_softcapping") is None
            else config.number("final_logit_softcapping"),
        )
        return load_model(
            make, folder, origins(sizes, NORMS, convert_norm), left_out=LEFT_OUT, dtype=dtype
        )
