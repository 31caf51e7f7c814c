"""Incremental decoding: a Transformer and its cache as a step model."""

import warnings
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Function, Ids, check, checked
from transformer_blocks.cache import DecoderCache, SelfAttentionCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.generation.prompts import Lengths, count_padding, left_padding_mask
from transformer_blocks.multi_head import MultiHeadAttention


class IncrementalDecoder:
    """A :class:`StepModel` that consists of a stack, its cache, an embedding and an output layer.

    Each step embeds the newest tokens, runs the stack on that one position with the cache of the
    earlier ones, and computes the logits. The stack is a :class:`~transformer_blocks.Decoder`, or
    the :class:`~transformer_blocks.Encoder` of a decoder-only model, which is run with a causal
    mask. A call of any method that raised or was interrupted can be repeated.

    Args:
        stack: The decoder, or the layers of a decoder-only model, in evaluation mode.
        cache: What ``stack.new_cache`` returned.
        embed: Function that receives token ids, of shape (N, L), and the position of the first of
            them. It returns their embeddings with positional encodings, of shape (N, L, d_model).
            If rows are padded, their positions differ, and it receives a tensor of shape (N,), as
            the argument ``offset`` of the positional encodings accepts it.
        output: Function from hidden states, of shape (N, d_model), to logits, of shape (N, V);
            usually the output layer.

    Attributes:
        cache: The cache of all positions so far. Each call that succeeds replaces it by a copy, in
            the same buffers, to which it appended, or which it reordered.

    Raises:
        TypeError: If an argument is of the wrong type, or the cache is of the other stack's type.

    Example:
        >>> import torch
        >>> from transformer_blocks import (
        ...     build_encoder,
        ...     SinusoidalPositionalEncoding,
        ...     TokenEmbedding,
        ... )
        >>> from transformer_blocks.generation import IncrementalDecoder
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

    @checked
    def __init__(
        self,
        stack: Encoder | Decoder,
        cache: SelfAttentionCache | DecoderCache,
        *,
        embed: Function[Callable[[Tensor, Any], Tensor]],  # the position is an int or a tensor
        output: Function[Callable[[Tensor], Tensor]],
    ) -> None:
        check(DecoderCache if isinstance(stack, Decoder) else SelfAttentionCache, cache=cache)
        if any(_drops(part) for part in stack.modules()):
            warnings.warn(
                "the model drops values at random, as in training; call eval()", stacklevel=3
            )
        self.stack, self.cache = stack, cache
        self.embed, self.output = embed, output
        self._padding: Tensor | None = None  # of each row, on the CPU, (N,); None if no row has any

    @property
    def position(self) -> int | Tensor:
        """Position of the next token, from 0; if rows are padded, one for each, of shape (N,)."""
        length = self.cache.length
        return length if self._padding is None else length - self._padding

    @checked
    @torch.no_grad()
    def prefill(
        self, tokens: Annotated[Tensor, Ids("N L")], *, lengths: Lengths | None = None
    ) -> None:
        """Append prompts to the cache in one pass.

        The last token of a prompt is usually left out: it is passed as ``start`` to the decoding
        algorithm, whose first step appends it.

        Prompts of unequal length are padded at the left (:func:`left_pad`). Each row then gives
        what its prompt gives alone. What stands in the padding has no effect, and transforms of
        queries and keys must depend on the distance between two positions alone, as
        :class:`~transformer_blocks.RotaryPositionalEncoding` does.

        Args:
            tokens: Token ids, of shape (N, L); L may be 0.
            lengths: Number of tokens of each prompt, which are the last ones of its row; N numbers
                in 0..L. If not given, each prompt has L tokens.

        Raises:
            TypeError: If ``tokens`` is not a tensor, or ``lengths`` does not hold integers.
            ValueError: If the shape of ``tokens`` is not (N, L), ``lengths`` does not fit it, or
                padding would follow tokens that the cache holds already.

        Example:
            >>> import torch
            >>> from transformer_blocks import (
            ...     build_encoder,
            ...     greedy_search,
            ...     SinusoidalPositionalEncoding,
            ...     TokenEmbedding,
            ... )
            >>> from transformer_blocks.generation import IncrementalDecoder, left_pad
            >>> stack = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
            >>> embedding, positions = TokenEmbedding(10, 16), SinusoidalPositionalEncoding(16)
            >>> def new_model():
            ...     return IncrementalDecoder(
            ...         stack,
            ...         stack.new_cache(),
            ...         embed=lambda tokens, offset: positions(embedding(tokens), offset=offset),
            ...         output=lambda hidden: hidden @ embedding.weight.T,
            ...     )
            >>> prompts = [[3, 1, 4, 1, 5], [2, 7]]
            >>> def generate(prompts):
            ...     model, start = new_model(), torch.tensor([prompt[-1] for prompt in prompts])
            ...     tokens, lengths = left_pad([prompt[:-1] for prompt in prompts])
            ...     model.prefill(tokens, lengths=lengths)
            ...     return greedy_search(model, start, end_id=None, max_length=6)
            >>> together = [found.tokens for found in generate(prompts)]
            >>> together == [generate([prompt])[0].tokens for prompt in prompts]
            True
        """
        padding = self._padding
        if lengths is not None:
            padding = count_padding(tokens, lengths)  # (N,)
            common = int(padding.min()) if len(padding) else 0
            tokens, padding = tokens[:, common:], padding - common
            if not padding.any():
                padding = self._padding
            elif self.cache.length:
                raise ValueError(
                    "lengths must be equal where tokens are in the cache already, as padding "
                    f"cannot follow them, got {self.cache.length} tokens there"
                )
            else:  # padding is embedded too: as the first token of a prompt, certainly a known id
                known = tokens[int(padding.argmin()), 0]
                is_padding = left_padding_mask(padding, tokens.shape[1]).to(tokens.device)
                tokens = torch.where(is_padding, known, tokens)
        cache = copy(self.cache)
        if tokens.shape[1]:
            self._hidden(tokens, padding, cache)
        self.cache, self._padding = cache, padding

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, of shape (N, V).

        The decoding algorithms call it in inference mode; other callers need ``torch.no_grad()``.
        """
        cache = copy(self.cache)
        logits = self.output(self._hidden(tokens[:, None], self._padding, cache)[:, 0])
        self.cache = cache
        return logits

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension by indices ``rows``, of shape (M,)."""
        cache, padding = copy(self.cache), self._padding
        cache.reorder(rows)
        if padding is not None:
            padding = padding[rows.to("cpu")]
            padding = padding if padding.any() else None  # without any, no mask is needed
        self.cache, self._padding = cache, padding

    def _hidden(self, tokens: Tensor, padding: Tensor | None, cache: Any) -> Tensor:
        """Append tokens, of shape (N, L), and return their hidden states, (N, L, d_model)."""
        length = cache.length
        if padding is None:
            return self.stack(self.embed(tokens, length), causal=True, cache=cache)
        x = self.embed(tokens, length - padding)  # (N, L, d_model)
        mask = left_padding_mask(padding, length + tokens.shape[1])[:, None, None]  # (N, 1, 1, S)
        return self.stack(x, mask=mask.to(x.device), causal=True, cache=cache)


def _drops(part: nn.Module) -> bool:
    """Return whether a module applies dropout in its present mode."""
    p = part.p if isinstance(part, nn.Dropout) else 0.0
    p = part.dropout if isinstance(part, MultiHeadAttention) else p
    return part.training and p > 0.0
