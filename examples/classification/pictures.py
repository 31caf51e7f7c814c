"""Picture: the attention weights of the encoder."""

from collections.abc import Sequence
from pathlib import Path

import torch

from classification.models import EncoderClassifier
from common.plots import save
from common.tokenizer import Tokenizer
from transformer_blocks import record_attention
from transformer_blocks.explorer import plot_heads


def draw_attention(
    model: EncoderClassifier, tokenizer: Tokenizer, text: Sequence[int], path: Path, *, title: str
) -> None:
    """Draw the attention weights of the last layer, their mean and each head.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer, for the labels of the axes.
        text: Token ids, begin token first.
        path: The PNG file to write.
        title: The title above the figure.
    """
    device = next(model.parameters()).device
    with torch.inference_mode(), record_attention(model, device="cpu") as maps:
        model(torch.tensor([text], device=device))
    tokens, *_, (weights,) = tokenizer.subwords(text), *maps.values()
    save(plot_heads(weights[0], tokens, tokens, title=title), path)
