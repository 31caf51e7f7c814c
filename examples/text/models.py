"""Models: a decoder-only Transformer, with the parts of 2017 and with those of today.

A language model is a decoder without cross-attention: a stack of encoder layers with a causal mask,
and an output layer that computes the logits of the next token. Since the paper, the parts of its
layers have changed:

=============  ======================================  ======================================
part           2017                                    today
=============  ======================================  ======================================
normalisation  LayerNorm, after each sublayer          RMSNorm, before each sublayer
positions      sinusoids, added to the embeddings      rotations of queries and keys
feed-forward   two linear layers, ReLU                 three linear layers, gated (SwiGLU)
=============  ======================================  ======================================

RMSNorm is from "Root Mean Square Layer Normalization" (Zhang and Sennrich 2019,
https://arxiv.org/abs/1910.07467); the other parts have chapters of their own. Both models are
composed of blocks of the library alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks import (
    Dropout,
    Encoder,
    GatedFeedForward,
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    SelfAttentionCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)
from transformer_blocks.generation import IncrementalDecoder


class LanguageModel(nn.Module):
    """A decoder-only Transformer, whose embeddings and output layer share weights (section 3.4).

    Args:
        embedding: The token embedding.
        decoder: The stack of layers: an ``Encoder``, which is called with ``causal=True``.
        context: Maximum number of tokens that the model reads at once.
        positions: The positional encoding; None if the attention encodes positions itself.
        dropout: Dropout probability of embeddings.

    Example:
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=48, dropout=0.0, context=8)
        >>> model = build_language_model(50, style="today", **sizes)
        >>> tokens = torch.tensor([[5, 6, 7]])
        >>> before = model(tokens)[:, :2]
        >>> tokens[0, 2] = 9  # change the last token ...
        >>> torch.equal(model(tokens)[:, :2], before)  # ... no earlier logit changes
        True
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        decoder: Encoder,
        *,
        context: int,
        positions: SinusoidalPositionalEncoding | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding, self.decoder, self.positions = embedding, decoder, positions
        self.context = context
        self.dropout = Dropout(dropout)

    def hidden(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Compute the vectors from which the output layer computes the logits.

        Args:
            tokens: Token ids, of shape (B, L).
            cache: The cache that ``decoder.new_cache`` made; ``tokens`` follow those of earlier
                calls.

        Returns:
            A vector for each position, of shape (B, L, d_model).
        """
        x = self.embed(tokens, 0 if cache is None else cache.length)
        return self.decoder(x, causal=True, cache=cache)

    def embed(self, tokens: Tensor, offset: int | Tensor) -> Tensor:
        """Embed tokens, of shape (B, L), the first of them at position ``offset``.

        If the rows have different positions, ``offset`` has the shape (B,).

        Returns:
            Vectors, with positions unless the layers encode these, of shape (B, L, d_model).
        """
        x = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x, offset=offset)
        return self.dropout(x)

    def output(self, hidden: Tensor) -> Tensor:
        """Compute logits, of shape (..., V), from hidden states, of shape (..., d_model)."""
        return hidden @ self.embedding.weight.T

    def forward(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Compute the logits of every next token, of shape (B, L, V).

        The arguments are those of :meth:`hidden`.
        """
        return self.output(self.hidden(tokens, cache=cache))


def build_language_model(
    vocabulary: int,
    *,
    style: str,
    num_layers: int,
    d_model: int,
    num_heads: int,
    d_ff: int,
    dropout: float,
    context: int,
) -> LanguageModel:
    """Build a model with the parts of a style, "2017" or "today".

    Both have about as many weights: a gated feed-forward network has a third layer, so its inner
    size is two thirds of ``d_ff``.
    """
    positions, parts = None, dict[str, Any](num_heads=num_heads, d_ff=d_ff)
    if style == "2017":
        positions = SinusoidalPositionalEncoding(d_model, max_length=context)
    else:
        MultiHeadAttention(d_model, num_heads)  # raises unless the sizes go together
        parts = {
            "attention": lambda: MultiHeadAttention(
                d_model, num_heads, transforms=[RotaryPositionalEncoding(d_model // num_heads)]
            ),
            "feed_forward": lambda: GatedFeedForward(d_model, max(1, d_ff * 2 // 3)),
            "residual": lambda d_model, dropout: PreNorm(
                d_model, dropout=dropout, norm=nn.RMSNorm(d_model)
            ),
        }
    return LanguageModel(
        TokenEmbedding(vocabulary, d_model),
        build_encoder(num_layers=num_layers, d_model=d_model, dropout=dropout, **parts),
        context=context,
        positions=positions,
        dropout=dropout,
    )


class TextSteps:
    """Decodes texts of any length with a language model, whose context is limited.

    When the cache holds as many positions of a text as the context, they are replaced by those of
    the later half of its tokens, which are then at the first positions of the context. Texts of
    unequal length reach the end of the context at different steps.

    Args:
        model: The language model, in evaluation mode.
        prompt: Token ids that precede the first step, of shape (N, P); P may be 0.
        lengths: Number of tokens of each prompt, if ``prompt`` is padded at the left.

    Example:
        >>> from transformer_blocks import greedy_search
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=48, dropout=0.0, context=8)
        >>> model = build_language_model(50, style="2017", **sizes).eval()
        >>> prompt, start = torch.tensor([[7, 8]]), torch.tensor([9])
        >>> (text,) = greedy_search(TextSteps(model, prompt), start, end_id=None, max_length=20)
        >>> len(text.tokens)  # longer than its context
        20
    """

    def __init__(
        self, model: LanguageModel, prompt: Tensor, *, lengths: Sequence[int] | None = None
    ) -> None:
        self.model = model
        self.tokens = prompt  # all tokens so far, padded at the left
        lengths = [prompt.shape[1]] * len(prompt) if lengths is None else lengths
        self.decoder = self._read([self._shortened(n) for n in lengths])

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, (N, V)."""
        self._make_room(len(tokens))
        logits = self.decoder.step(tokens)
        self.tokens = torch.cat((self.tokens, tokens[:, None]), dim=1)
        return logits

    def _make_room(self, rows: int) -> None:
        """Leave out the first half of each text that fills the context."""
        lengths = torch.as_tensor(self.decoder.position).expand(rows).tolist()
        full = [row for row, length in enumerate(lengths) if length == self.model.context]
        if full and (len(full) == len(lengths) or self._is_mostly_padding):
            self.decoder = self._read([self._shortened(length) for length in lengths])
        elif full:
            first = self.tokens.shape[1] - self._shortened(self.model.context)
            self.decoder.replace(torch.tensor(full), self.tokens[full, first:])

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache and the tokens along the batch dimension by indices ``rows``, (M,)."""
        self.decoder.reorder(rows)
        self.tokens = self.tokens[rows]

    @property
    def _is_mostly_padding(self) -> bool:
        """Whether a cache computed anew would have half the length or less."""
        return self.decoder.cache.length >= 2 * self.model.context

    def _shortened(self, length: int) -> int:
        """Return the number of tokens that remain: at most half a context if it is full."""
        context = self.model.context
        return length if length < context else max(1, context // 2) - 1

    def _read(self, lengths: Sequence[int]) -> IncrementalDecoder:
        """Compute a cache of the last ``lengths[i]`` tokens of each row i."""
        stack, longest = self.model.decoder, max(lengths, default=0)
        decoder = IncrementalDecoder(
            stack, stack.new_cache(), embed=self.model.embed, output=self.model.output
        )
        end = self.tokens.shape[1]
        decoder.prefill(self.tokens[:, end - longest :], lengths=lengths)
        return decoder
