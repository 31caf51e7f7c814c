"""Encoder and decoder together: figure 1 without its embeddings and its output layer.

The encoder maps the source to the memory, once. The decoder maps the target to hidden states, and
each of its layers attends to that memory (section 3.1). Embeddings and output layer belong to the
model that contains these two: a translator first embeds the tokens of both languages, and finally
projects the hidden states to the logits of its vocabulary.

Next: :mod:`transformer_blocks.builders`, whole stacks built from a few sizes.
"""

from torch import Tensor, nn

from transformer_blocks._contracts import Module, checked
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder


class EncoderDecoder(nn.Module):
    """The encoder and the decoder of the paper's model (section 3.1).

    Args:
        encoder: The stack that maps the source to the memory.
        decoder: The stack that maps the target to hidden states, and attends to the memory.

    Raises:
        TypeError: If one is not a module.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_decoder, build_encoder, EncoderDecoder
        >>> sizes = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
        >>> model = EncoderDecoder(build_encoder(**sizes), build_decoder(**sizes)).eval()
        >>> source, target = torch.randn(1, 7, 16), torch.randn(1, 5, 16)
        >>> before = model(source, target)
        >>> source[:, -1] += 1.0  # change one token of the source ...
        >>> bool((model(source, target) != before).any(-1).all())  # ... and every output changes
        True
    """

    @checked
    def __init__(self, encoder: Module[Encoder], decoder: Module[Decoder]) -> None:
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
        """Encode the source, then decode the target with causal self-attention.

        Args:
            source: Embedded source tokens with positions, of shape (B, S, d_model).
            target: Embedded target tokens with positions, of shape (B, L, d_model).
            source_mask: Boolean mask of the encoder's self-attention; **True hides** a key from a
                query. Usually ``padding_mask(source_tokens)``.
            target_mask: Boolean mask of the decoder's self-attention, besides the causal mask.
            memory_mask: Boolean mask of the cross-attention; ``source_mask`` if not given.
            causal: Mask future positions of the target.

        Returns:
            The hidden state of each target position, from which the next token is predicted, of
            shape (B, L, d_model).

        Raises:
            TypeError: If ``source`` or ``target`` differs from the weights in dtype, a mask is not
                boolean, or an argument is of the wrong type.
            ValueError: If shapes do not fit; or if there is no ``memory_mask``, and ``source_mask``
                is not the same for all queries, so that it cannot serve as one.
        """
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
