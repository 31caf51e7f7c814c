"""Hugging Face's Marian with given sizes and random weights."""

from typing import Any


def build_marian(
    *,
    vocabulary: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    padding: int,
    start: int,
    end: int,
    activation: str = "relu",
    **options: Any,
) -> Any:
    """Build a ``MarianMTModel``; ``options`` are passed to its ``MarianConfig``."""
    import transformers

    config = transformers.MarianConfig(
        vocab_size=vocabulary,
        d_model=d_model,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        encoder_ffn_dim=d_ff,
        decoder_ffn_dim=d_ff,
        activation_function=activation,
        scale_embedding=True,
        pad_token_id=padding,
        decoder_start_token_id=start,
        eos_token_id=end,
        **options,
    )
    return transformers.MarianMTModel(config)
