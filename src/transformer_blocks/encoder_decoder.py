"""Encoder and decoder together: all of figure 1 but its embeddings and its last projection.

The encoder reads the source once; the decoder writes, and looks into what the encoder made of it at
every layer. What the words are, and which word comes next, is for a model around it to say: a
translator embeds tokens before and projects to its vocabulary after.

Next chapter: :mod:`transformer_blocks.builders`, whole stacks from a few sizes.
"""

from torch import Tensor, nn

from transformer_blocks._checks import check_boolean, check_module, check_tensor, check_vectors
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer


class EncoderDecoder(nn.Module):
    """The two halves of the paper's model (section 3.1).

    Args:
        encoder: Reads the source.
        decoder: Writes the target.

    Raises:
        TypeError: If one is a class or no module.

    Example:
        >>> sizes = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
        >>> both = EncoderDecoder(build_encoder(**sizes), build_decoder(**sizes)).eval()
        >>> source, target = torch.randn(1, 7, 16), torch.randn(1, 5, 16)
        >>> before = both(source, target)
        >>> source[:, -1] += 1.0  # rewrite a word of the source ...
        >>> bool((both(source, target) != before).any(-1).all())  # ... every target word notices
        True
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        check_module(encoder=encoder, decoder=decoder)
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
    ) -> Tensor:
        """Read the source, and make each target position ready to predict the next word.

        Args:
            source: Embedded tokens with positions. Shape (B, S, d_model).
            target: The same of the translation. Shape (B, L, d_model).
            source_mask: Hides source positions from each other; usually ``padding_mask(tokens)``.
            target_mask: Hides target positions, besides the causal rule.
            memory_mask: Hides source positions from the target; if not given, ``source_mask``.
            causal: Whether a target position is kept from seeing later ones.

        Returns:
            Shape (B, L, d_model).

        Raises:
            TypeError: If ``source`` or ``target`` differs from the weights in dtype, a mask is not
                boolean, or something is of another kind.
            ValueError: If shapes do not fit; or if there is no ``memory_mask``, and
                ``source_mask``, which tells source positions apart that look, cannot serve as one.
        """
        self._check_input("source", source, self.encoder)
        self._check_input("target", target, self.decoder)
        masks = {"source_mask": source_mask, "target_mask": target_mask, "memory_mask": memory_mask}
        for name, mask in masks.items():
            if mask is not None:
                check_boolean(name, mask)
        if memory_mask is None and source_mask is not None:
            if source_mask.dim() != 4 or source_mask.shape[2] != 1:
                raise ValueError(
                    "memory_mask must be given with a source_mask that is not the same for every "
                    f"query, (B|1, H|1, 1, S), got {tuple(source_mask.shape)}"
                )
            memory_mask = source_mask
        memory = self.encoder(source, mask=source_mask)
        return self.decoder(
            target, memory, mask=target_mask, memory_mask=memory_mask, causal=causal
        )

    def _check_input(self, name: str, x: Tensor, half: Encoder | Decoder) -> None:
        """Raise unless a sequence is what the first layer of its half takes."""
        check_tensor(name, x)
        for layer in list(half.layers)[:1]:
            if isinstance(layer, EncoderLayer | DecoderLayer):
                residual = layer.self_attention_residual
                check_vectors(name, x, residual.d_model, half, layer, residual, residual.norm)
