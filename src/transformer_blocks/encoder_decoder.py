"""Encoder and decoder together: figure 1 without its embeddings and its output layer.

The encoder maps the source to the memory, once. The decoder maps the target to hidden states, and
each of its layers attends to that memory (section 3.1). Embeddings and output layer belong to the
model that contains these two: a translator first embeds the tokens of both languages, and finally
projects the hidden states to the logits of its vocabulary.

Next: :mod:`transformer_blocks.builders`, whole stacks built from a few sizes.
"""

from torch import Tensor, nn

from transformer_blocks._checks import (
    check_boolean,
    check_module,
    check_tensor,
    check_vectors,
    names_arguments,
)
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer


class EncoderDecoder(nn.Module):
    """The encoder and the decoder of the paper's model (section 3.1).

    Args:
        encoder: The stack that maps the source to the memory.
        decoder: The stack that maps the target to hidden states, and attends to the memory.

    Raises:
        TypeError: If one is not a module.

    Example:
        >>> sizes = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
        >>> model = EncoderDecoder(build_encoder(**sizes), build_decoder(**sizes)).eval()
        >>> source, target = torch.randn(1, 7, 16), torch.randn(1, 5, 16)
        >>> before = model(source, target)
        >>> source[:, -1] += 1.0  # change one token of the source ...
        >>> bool((model(source, target) != before).any(-1).all())  # ... and every output changes
        True
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        check_module(encoder=encoder, decoder=decoder)
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @names_arguments
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
        self._check_inputs(source, target, source_mask, target_mask, memory_mask)
        memory = self.encoder(source, mask=source_mask)
        return self.decoder(
            target,
            memory,
            mask=target_mask,
            memory_mask=source_mask if memory_mask is None else memory_mask,
            causal=causal,
        )

    def _check_inputs(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor | None,
        target_mask: Tensor | None,
        memory_mask: Tensor | None,
    ) -> None:
        """Raise unless the sequences and masks fit the two stacks."""
        self._check_input("source", source, self.encoder)
        self._check_input("target", target, self.decoder)
        masks = {"source_mask": source_mask, "target_mask": target_mask, "memory_mask": memory_mask}
        for name, mask in masks.items():
            if mask is not None:
                check_boolean(name, mask)
        if source_mask is None or memory_mask is not None:
            return
        if source_mask.dim() != 4 or source_mask.shape[2] != 1:
            raise ValueError(
                "memory_mask must be given with a source_mask that is not the same for every "
                f"query, (B|1, H|1, 1, S), got {tuple(source_mask.shape)}"
            )

    def _check_input(self, name: str, x: Tensor, stack: Encoder | Decoder) -> None:
        """Raise unless a sequence fits the first layer of its stack."""
        check_tensor(name, x)
        for layer in list(stack.layers)[:1]:
            if isinstance(layer, EncoderLayer | DecoderLayer):
                residual = layer.self_attention_residual
                check_vectors(name, x, residual.d_model, stack, layer, residual, residual.norm)
