"""Incremental decoding: a Transformer and its cache as a step model."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_blocks._checks import (
    check_callable,
    check_instance,
    check_tensor,
    raise_type_error,
)
from transformer_blocks.cache import DecoderCache, SelfAttentionCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder


class IncrementalDecoder:
    """A :class:`StepModel` that consists of a stack, its cache, an embedding and an output layer.

    Each step embeds the newest tokens, runs the stack on that one position with the cache of the
    earlier ones, and computes the logits. The stack is a :class:`~transformer_blocks.Decoder`, or
    the :class:`~transformer_blocks.Encoder` of a decoder-only model, which is run with a causal
    mask.

    Args:
        stack: The decoder, or the layers of a decoder-only model, in evaluation mode.
        cache: What ``stack.new_cache`` returned. Each step appends to it.
        embed: Function that receives token ids, of shape (N, L), and the position of the first of
            them. It returns their embeddings with positional encodings, of shape (N, L, d_model).
        output: Function from hidden states, of shape (N, d_model), to logits, of shape (N, V);
            usually the output layer.

    Raises:
        TypeError: If an argument is of the wrong type, or the cache is of the other stack's type.

    Example:
        >>> stack = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> embedding, positions = TokenEmbedding(10, 16), SinusoidalPositionalEncoding(16)
        >>> def embed(tokens, offset):
        ...     return positions(embedding(tokens), offset=offset)
        >>> def output(hidden):
        ...     return hidden @ embedding.weight.T
        >>> model = IncrementalDecoder(stack, stack.new_cache(), embed=embed, output=output)
        >>> prompt = torch.tensor([[3, 1, 4, 1, 5]])
        >>> model.prefill(prompt[:, :4])
        >>> with torch.no_grad():
        ...     logits = model.step(prompt[:, 4])  # one new position gives ...
        >>> whole = output(stack(embed(prompt, 0), causal=True))  # ... what a full pass gives
        >>> torch.allclose(logits, whole[:, -1], atol=1e-5)
        True
    """

    def __init__(
        self,
        stack: Encoder | Decoder,
        cache: SelfAttentionCache | DecoderCache,
        *,
        embed: Callable[[Tensor, int], Tensor],
        output: Callable[[Tensor], Tensor],
    ) -> None:
        if not isinstance(stack, Encoder | Decoder):
            raise_type_error("stack", "an instance of Encoder or Decoder", stack)
        cache_type = DecoderCache if isinstance(stack, Decoder) else SelfAttentionCache
        check_instance(cache_type, cache=cache)
        check_callable(embed=embed, output=output)
        self.stack, self.cache = stack, cache
        self.embed, self.output = embed, output

    @torch.no_grad()
    def prefill(self, tokens: Tensor) -> None:
        """Append a prompt to the cache in one pass.

        The last token of a prompt is usually left out: it is passed as ``start`` to the decoding
        algorithm, whose first step appends it.

        Args:
            tokens: Token ids, of shape (N, L); L may be 0.

        Raises:
            TypeError: If ``tokens`` is not a tensor.
            ValueError: If its shape is not (N, L).
        """
        check_tensor("tokens", tokens)
        if tokens.dim() != 2:
            raise ValueError(f"tokens must have shape (N, L), got {tuple(tokens.shape)}")
        if tokens.shape[1]:
            x = self.embed(tokens, self.cache.length)  # (N, L, d_model)
            self.stack(x, causal=True, cache=self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, of shape (N, V).

        The decoding algorithms call it in inference mode; other callers need ``torch.no_grad()``.
        """
        x = self.embed(tokens[:, None], self.cache.length)  # (N, 1, d_model)
        return self.output(self.stack(x, causal=True, cache=self.cache)[:, 0])

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension by indices ``rows``, of shape (M,)."""
        self.cache.reorder(rows)
