"""Models: a decoder-only Transformer, as one built it in 2017 and as one builds it today.

A language model is an encoder that may not look ahead, and a linear map that scores the next token.
What has changed since the paper are the parts of its layers:

============  =========================================  ==================================
part          2017                                       today
============  =========================================  ==================================
norm          LayerNorm, after each part is added        RMSNorm, before each part
positions     waves, added to the words                  queries and keys are turned
feed-forward  two maps, ReLU                             three maps, a gate (SwiGLU)
============  =========================================  ==================================

RMSNorm is of "Root Mean Square Layer Normalization" (Zhang and Sennrich 2019,
https://arxiv.org/abs/1910.07467); the other parts have chapters of their own. They are taken and
put together; no model here has a part that is not a block.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_blocks import (
    Dropout,
    Encoder,
    EncoderLayer,
    GatedFeedForward,
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    SelfAttentionCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)


class LanguageModel(nn.Module):
    """Scores the next token of a text; one table embeds tokens and scores them (section 3.4).

    Args:
        embedding: Turns tokens into vectors.
        encoder: Mixes them.
        context: Most tokens that it reads at once.
        positions: Adds what tells places apart; None if the encoder knows them by itself.
        dropout: Of embedded tokens.

    Example:
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=48, dropout=0.0, context=8)
        >>> model = build_today(50, **sizes)
        >>> tokens = torch.tensor([[5, 6, 7]])
        >>> before = model(tokens)[:, :2]
        >>> tokens[0, 2] = 9  # what comes later ...
        >>> torch.equal(model(tokens)[:, :2], before)  # ... changes no earlier guess
        True
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        encoder: Encoder,
        *,
        context: int,
        positions: SinusoidalPositionalEncoding | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder, self.positions = embedding, encoder, positions
        self.context = context
        self.dropout = Dropout(dropout)

    def hidden(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Say what each position knows of the token that follows it.

        Args:
            tokens: Ids. Shape (B, L).
            cache: What ``encoder.new_cache`` made; ``tokens`` follow those of earlier calls.

        Returns:
            Shape (B, L, d_model).
        """
        x = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x, offset=0 if cache is None else cache.length)
        return self.encoder(self.dropout(x), causal=True, cache=cache)

    def forward(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Score every next token; the arguments are those of :meth:`hidden`.

        Returns:
            Logits. Shape (B, L, V).
        """
        return self.hidden(tokens, cache=cache) @ self.embedding.weight.T


def build_2017(
    vocabulary: int,
    *,
    num_layers: int,
    d_model: int,
    num_heads: int,
    d_ff: int,
    dropout: float,
    context: int,
) -> LanguageModel:
    """Build the model from the paper's parts."""
    encoder = build_encoder(
        num_layers=num_layers, d_model=d_model, num_heads=num_heads, d_ff=d_ff, dropout=dropout
    )
    return LanguageModel(
        TokenEmbedding(vocabulary, d_model),
        encoder,
        context=context,
        positions=SinusoidalPositionalEncoding(d_model, max_length=context),
        dropout=dropout,
    )


def build_today(
    vocabulary: int,
    *,
    num_layers: int,
    d_model: int,
    num_heads: int,
    d_ff: int,
    dropout: float,
    context: int,
) -> LanguageModel:
    """Build the model from today's parts, with as many weights: a gate has three maps for two."""
    MultiHeadAttention(d_model, num_heads)  # raises unless the sizes go together
    layers = [
        EncoderLayer(
            MultiHeadAttention(
                d_model,
                num_heads,
                attention_function=RotaryPositionalEncoding(d_model // num_heads),
            ),
            GatedFeedForward(d_model, max(1, d_ff * 2 // 3)),
            residual=lambda: PreNorm(d_model, dropout=dropout, norm=nn.RMSNorm(d_model)),
        )
        for _ in range(num_layers)
    ]
    return LanguageModel(
        TokenEmbedding(vocabulary, d_model),
        Encoder(layers, norm=nn.RMSNorm(d_model)),
        context=context,
        dropout=dropout,
    )


STYLES: dict[str, Callable[..., LanguageModel]] = {"2017": build_2017, "today": build_today}


class TextSteps:
    """A language model in the middle of writing: the ``StepModel`` that a search drives.

    What was read is remembered in a cache. When the context is full, the model forgets all but the
    later half of it, reads that again, and goes on: a text may be of any length.

    Args:
        model: In eval mode.
        prompt: What has been written before the first step. Shape (N, P).

    Example:
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=48, dropout=0.0, context=8)
        >>> model = build_2017(50, **sizes).eval()
        >>> prompt, start = torch.tensor([[7, 8]]), torch.tensor([9])
        >>> (text,) = greedy_search(TextSteps(model, prompt), start, end_id=None, max_length=20)
        >>> len(text.tokens)  # longer than its context
        20
    """

    def __init__(self, model: LanguageModel, prompt: Tensor) -> None:
        self.model, self.cache = model, model.encoder.new_cache()
        self.written, self.unread = prompt, prompt

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, shape (N,), and score the next ones, shape (N, V)."""
        self.written = torch.cat((self.written, tokens[:, None]), dim=1)
        fresh = torch.cat((self.unread, tokens[:, None]), dim=1)
        if self.cache.length + fresh.shape[1] > self.model.context:
            self.cache = self.model.encoder.new_cache()
            fresh = self.written[:, -max(1, self.model.context // 2) :]
        self.unread = fresh[:, :0]
        return self.model.hidden(fresh, cache=self.cache)[:, -1] @ self.model.embedding.weight.T

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, shape (M,), only."""
        if self.cache.length:
            self.cache.reorder(rows)
        self.written, self.unread = self.written[rows], self.unread[rows]
