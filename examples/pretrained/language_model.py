"""Language model: what published decoder-only models have in common.

A decoder-only model embeds the tokens, transforms them by a stack of layers with causal
self-attention, and computes the logits of each next token from the hidden states. The stack is an
:class:`~transformer_blocks.Encoder` that is called with ``causal=True``: without a source sequence,
a decoder layer has no cross-attention, and what remains is an encoder layer. The families differ in
the parts of their layers, in how tokens and positions are embedded, and in the names of their
published tensors; each has a file of its own.

Next: ``gpt2_model.py``, the first of them.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pretrained.weights import Origin, PublishedModel
from transformer_blocks import Encoder, SelfAttentionCache
from transformer_blocks.generation import IncrementalDecoder


class LanguageModel(PublishedModel):
    """A decoder-only language model, which predicts the next token of a text.

    Args:
        decoder: Stack of the layers, with the final normalisation.
        vocabulary_size: Number of token ids, V.
        d_model: Hidden size.
        max_length: Maximum number of tokens of a text.
        end_ids: Ids of the tokens that end a text.
        tied: Whether the output layer shares the weights of the token embedding.

    Attributes:
        embedding_scale: Factor of the token embeddings.
        logit_cap: Bound c of the logits z, which become c * tanh(z / c); none if ``None``.

    Example:
        >>> from transformer_blocks import build_encoder
        >>> stack = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> model = LanguageModel(
        ...     stack, vocabulary_size=50, d_model=16, max_length=10, end_ids=[0]
        ... ).eval()
        >>> tokens = torch.randint(50, (1, 6))
        >>> before = model(tokens)
        >>> tokens[:, -1] += 1  # change the last token ...
        >>> after = model(tokens % 50)
        >>> torch.allclose(
        ...     before[:, :-1], after[:, :-1], atol=1e-5
        ... )  # ... no earlier output changes
        True
    """

    embedding_scale: float = 1.0
    logit_cap: float | None = None

    def __init__(
        self,
        decoder: Encoder,
        *,
        vocabulary_size: int,
        d_model: int,
        max_length: int,
        end_ids: Sequence[int],
        tied: bool = True,
    ) -> None:
        super().__init__()
        self.max_length, self.end_ids = max_length, tuple(end_ids)
        self.token_embedding = nn.Embedding(vocabulary_size, d_model)
        self.decoder = decoder
        self.output = nn.Linear(d_model, vocabulary_size, bias=False)
        if tied:
            self.output.weight = self.token_embedding.weight

    def embed(self, tokens: Tensor, offset: int | Tensor) -> Tensor:
        """Embed tokens, of shape (B, L), the first of them at position ``offset``.

        No positions are added here: rotary attention encodes them itself. A subclass may add them.
        If the rows have different positions, ``offset`` has the shape (B,).

        Returns:
            Vectors, of shape (B, L, d_model).
        """
        x = self.token_embedding(tokens)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def hidden(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Compute the hidden state of each token, from which the next token is predicted.

        Padding at the end of a text needs no mask: the causal mask hides it from the text's tokens.
        Prompts that are continued are padded at the left, as :class:`LanguageModelSteps` explains.

        Args:
            tokens: Token ids, of shape (B, L).
            cache: Keys and values of the preceding tokens, from ``decoder.new_cache()``. ``tokens``
                continue them, and their keys and values are appended.

        Returns:
            Hidden states, of shape (B, L, d_model).
        """
        x = self.embed(tokens, 0 if cache is None else cache.length)
        return self.decoder(x, causal=True, cache=cache)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute the logits of the next tokens from hidden states, of shape (..., d_model)."""
        logits = self.output(hidden)  # (..., V)
        if self.logit_cap is None:
            return logits
        return self.logit_cap * torch.tanh(logits / self.logit_cap)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the token that follows each token of a text.

        Args:
            tokens: Token ids, of shape (B, L).

        Returns:
            Logits, of shape (B, L, V).
        """
        return self.logits(self.hidden(tokens))

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; a tied one may have several names."""
        is_tied = self.output.weight is self.token_embedding.weight
        names: tuple[str, ...] = ()
        if is_tied and name in ("token_embedding.weight", "output.weight"):
            names = super().origin("token_embedding.weight").names
        elif name != "output.weight":
            return super().origin(name)
        return Origin((*names, "lm_head.weight"))


def suppressing(
    logits: Callable[[Tensor], Tensor], ids: Sequence[int], device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return a function of hidden states that gives some token ids the probability 0.

    Args:
        logits: Function from hidden states, of shape (N, d_model), to logits, of shape (N, V).
        ids: The token ids; ``logits`` is returned if there are none.
        device: Device of the logits.
    """
    indices = torch.tensor(ids, dtype=torch.int64, device=device)
    return (lambda hidden: logits(hidden).index_fill_(1, indices, -math.inf)) if ids else logits


class LanguageModelSteps(IncrementalDecoder):
    """Decodes texts with a language model.

    Prompts of unequal length are padded at the left, so that all of them end in the column before
    the first step. Their padding is masked, and positions that are embedded are counted from the
    first token of each prompt, as in training. With other positions, a prompt in a batch would have
    another continuation than alone (:func:`~transformer_blocks.generation.left_pad`).

    Args:
        model: The model, in evaluation mode.
        prompt: Token ids that precede the first step, of shape (N, L); L may be 0.
        lengths: Number of tokens of each prompt, if ``prompt`` is padded at the left.
        suppressed: Ids that are never generated: those of the embedding beyond the vocabulary.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompt: Tensor,
        *,
        lengths: Sequence[int] | None = None,
        suppressed: Sequence[int] = (),
    ) -> None:
        device = model.token_embedding.weight.device
        super().__init__(
            model.decoder,
            model.decoder.new_cache(),
            embed=model.embed,
            output=suppressing(model.logits, suppressed, device),  # part of a compiled step
        )
        self.prefill(prompt, lengths=lengths)
