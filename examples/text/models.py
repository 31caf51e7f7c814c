"""Models: a decoder-only Transformer, with the parts of 2017 and with those of today.

The library's :class:`~transformer_blocks.LanguageModel` is a decoder without cross-attention. Since
the paper, the parts of its layers have changed:

| part | 2017 | today |
|---|---|---|
| normalisation | LayerNorm, after each sublayer | RMSNorm, before each sublayer |
| positions | sinusoids, added to the embeddings | rotations of queries and keys |
| feed-forward | two linear layers, ReLU | three linear layers, gated (SwiGLU) |

RMSNorm is from "Root Mean Square Layer Normalization" (Zhang and Sennrich 2019,
https://arxiv.org/abs/1910.07467); the other parts have chapters of their own. The layers of
today are those of :func:`~transformer_blocks.pretrained.build_llama`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_blocks import (
    Encoder,
    LanguageModel,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)
from transformer_blocks.generation import IncrementalDecoder, left_pad
from transformer_blocks.generation.prompts import Prompts
from transformer_blocks.pretrained import build_llama


class TextModel(LanguageModel):
    """A language model of texts of any length, of which it reads a limited number of tokens.

    Args:
        embedding: The token embedding.
        decoder: The stack of layers.
        context: Maximum number of tokens that the model reads at once.
        options: Other arguments of :class:`~transformer_blocks.LanguageModel`: ``positions`` and
            ``dropout``.

    Example:
        >>> from transformer_blocks import greedy_search
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=48, dropout=0.0, context=8)
        >>> model = build_text_model(50, style="2017", **sizes).eval()
        >>> (text,) = model.generate([[7, 8, 9]], greedy_search, end_id=None, max_length=20)
        >>> len(text.tokens)  # longer than its context
        20
    """

    embedding: TokenEmbedding

    def __init__(
        self, embedding: TokenEmbedding, decoder: Encoder, *, context: int, **options: Any
    ) -> None:
        super().__init__(embedding, decoder, **options)
        self.context = context

    def start(self, prompts: Prompts) -> tuple["TextSteps", Tensor]:
        """Read prompts, and return the first two arguments of a search."""
        tokens, lengths = left_pad(prompts)
        tokens = tokens.to(self.embedding.weight.device)
        steps = TextSteps(self, tokens[:, :-1], lengths=[length - 1 for length in lengths])
        return steps, tokens[:, -1:].flatten()


def build_text_model(
    vocabulary: int,
    *,
    style: str,
    num_layers: int,
    d_model: int,
    num_heads: int,
    d_ff: int,
    dropout: float,
    context: int,
) -> TextModel:
    """Build a model with the parts of a style, "2017" or "today".

    Both have about as many weights: a gated feed-forward network has a third layer, so its inner
    size is two thirds of ``d_ff``.
    """
    positions = None
    sizes: dict[str, Any] = {"num_layers": num_layers, "d_model": d_model}
    sizes |= {"num_heads": num_heads, "dropout": dropout}
    if style == "2017":
        positions = SinusoidalPositionalEncoding(d_model, max_length=context)
        decoder = build_encoder(**sizes, d_ff=d_ff)
    else:
        llama = build_llama(
            vocabulary,
            **sizes,
            num_key_value_heads=num_heads,
            d_ff=max(1, d_ff * 2 // 3),
            rotary=lambda: RotaryPositionalEncoding(d_model // num_heads),
        )
        decoder = llama.decoder
    return TextModel(
        TokenEmbedding(vocabulary, d_model),
        decoder,
        context=context,
        positions=positions,
        dropout=dropout,
    )


class TextSteps(IncrementalDecoder):
    """Decodes texts of any length with a language model, whose context is limited.

    When the cache holds as many positions of a text as the context, all texts are read anew, this
    one without the first half of its tokens: the others are then at the first positions of the
    context. Texts of unequal length reach the end of the context at different steps.

    Args:
        model: The language model, in evaluation mode.
        prompt: Token ids that precede the first step, of shape (N, P); P may be 0.
        lengths: Number of tokens of each prompt, if ``prompt`` is padded at the left.
    """

    def __init__(
        self, model: TextModel, prompt: Tensor, *, lengths: Sequence[int] | None = None
    ) -> None:
        self.model = model
        self.tokens = prompt  # all tokens so far, padded at the left
        lengths = [prompt.shape[1]] * len(prompt) if lengths is None else lengths
        self._read([self._shortened(n) for n in lengths])

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, (N, V)."""
        self._make_room(len(tokens))
        logits = super().step(tokens)
        self.tokens = torch.cat((self.tokens, tokens[:, None]), dim=1)
        return logits

    def _make_room(self, rows: int) -> None:
        """Leave out the first half of each text that fills the context."""
        lengths = torch.as_tensor(self.position).expand(rows).tolist()
        if self.model.context in lengths:
            self._read([self._shortened(length) for length in lengths])

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache and the tokens along the batch dimension by indices ``rows``, (M,)."""
        super().reorder(rows)
        self.tokens = self.tokens[rows]

    def _shortened(self, length: int) -> int:
        """Return the number of tokens that remain: at most half a context if it is full."""
        context = self.model.context
        return length if length < context else max(1, context // 2) - 1

    def _read(self, lengths: Sequence[int]) -> None:
        """Begin with a new cache, of the last ``lengths[i]`` tokens of each row i."""
        stack, embed, output = self.model.decoder, self.model.embed, self.model.output
        super().__init__(stack, stack.new_cache(), embed=embed, output=output)
        first = self.tokens.shape[1] - max(lengths, default=0)
        self.prefill(self.tokens[:, first:], lengths=lengths)
