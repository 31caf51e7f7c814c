r"""The translator that came before: two recurrent networks, and attention between them.

A recurrent network reads a sentence word by word and keeps what it has read in one vector, its
*state*. The first neural translators (Sutskever et al. 2014, https://arxiv.org/abs/1409.3215) wrote
the translation from the state that was left at the end: a *fixed vector*, as long for thirty words
as for three. Attention was invented to lift that limit (Bahdanau et al. 2014,
https://arxiv.org/abs/1409.0473): keep the states of all words, and let each step of the writing
look back at those it needs.

- The encoder is an LSTM that reads in both directions; the state :math:`h_j` of a word is made of
  what stands before it and what stands behind it.
- The decoder is an LSTM that starts where the encoder ended. Its state :math:`s_i` asks; the answer
  is :math:`c_i = \sum_j \alpha_{ij} h_j` with weights :math:`\alpha` from the attention layer.
- Both together score the next word (Luong et al. 2015, https://arxiv.org/abs/1508.04025,
  equation 5; Bahdanau asked with the state before, and fed the answer into the next):

.. math:: \tilde{s}_i = \tanh(W_c [s_i; c_i])

So the states of a translation do not depend on where it looked (Luong's *input feeding* is left
out), and while training all words ask at once. The states themselves remain one after another: that
is what the Transformer did away with.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_blocks import (
    DecoderCache,
    Dropout,
    KeyValueCache,
    MultiHeadAttention,
    TokenEmbedding,
    padding_mask,
)
from translation.translator import Attentions, Translator

State = tuple[Tensor, Tensor]
"""Of an LSTM: what it says and what it keeps, each of shape (num_layers, B, d_state)."""


class RecurrentTranslator(Translator):
    """A bidirectional LSTM that reads and an LSTM that writes, with or without attention.

    Args:
        source_vocabulary: Number of source token ids; id 0 is padding.
        target_vocabulary: Number of target token ids; id 0 is padding.
        num_layers: Layers of the encoder, and of the decoder.
        d_model: Width of the embeddings.
        d_state: Width of the states; even, as each direction of the encoder has half.
        dropout: Of embeddings, between layers, and of what scores the next word.
        max_length: Most tokens of a sentence.
        attention: How states of width ``d_state`` look at others; None for the fixed vector.
        tie_embeddings: Let one table embed target tokens and score them.

    Raises:
        ValueError: If a size is not positive or ``d_state`` is odd.

    Example:
        >>> attention = MultiHeadAttention(32, num_heads=1)
        >>> model = RecurrentTranslator(100, 100, d_model=16, d_state=32, attention=attention)
        >>> source = torch.tensor([[5, 6, 7, 0]])  # 0 is padding
        >>> target = torch.tensor([[2, 8, 9]])
        >>> model(source, target).shape  # a score for each word, after each target token
        torch.Size([1, 3, 100])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        num_layers: int = 1,
        d_model: int = 512,
        d_state: int = 1024,
        dropout: float = 0.1,
        max_length: int = 512,
        attention: MultiHeadAttention | None,
        tie_embeddings: bool = True,
    ) -> None:
        if d_state % 2:
            raise ValueError(f"d_state must be even, got d_state={d_state}")
        super().__init__()
        self.max_length = max_length
        self.attentions = []
        if attention is not None:
            self.attentions.append(Attentions("Attention", ["attention"], "target", "source"))
        self.source_embedding = TokenEmbedding(source_vocabulary, d_model)
        self.target_embedding = TokenEmbedding(target_vocabulary, d_model)
        self.dropout = Dropout(dropout)
        between_layers = dropout if num_layers > 1 else 0.0
        self.encoder = nn.LSTM(
            d_model,
            d_state // 2,
            num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=between_layers,
        )
        self.decoder = nn.LSTM(
            d_model, d_state, num_layers, batch_first=True, dropout=between_layers
        )
        self.attention = attention
        self.combine = nn.Linear(d_state if attention is None else 2 * d_state, d_model)
        self.output = nn.Linear(d_model, target_vocabulary, bias=False)
        if tie_embeddings:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor, State]:
        """Read the source in both directions.

        The sentences are *packed*: the network runs over real words only, so padding costs nothing,
        and the backward direction begins at the last word of each sentence.

        Args:
            source: Token ids, padded with 0 at the end. Shape (B, S).

        Returns:
            The states of all words, shape (B, S, d_state), the mask of the padding, shape
            (B, 1, 1, S), and the state that is left at the end.
        """
        mask = padding_mask(source)
        lengths = (~mask).sum(dim=-1).flatten().clamp(min=1).cpu()  # torch wants none empty
        x = self.dropout(self.source_embedding(source))  # (B, S, d_model)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, left = self.encoder(packed)
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        hidden, cell = (_join_directions(state) for state in left)
        return memory, mask, (hidden, cell)

    def decode(
        self, target: Tensor, state: State, look_up: Callable[[Tensor], Tensor] | None
    ) -> tuple[Tensor, State]:
        """Go on writing.

        Args:
            target: Token ids, begin-of-sentence first. Shape (B, L).
            state: Where the writing stands.
            look_up: Finds for states, (B, L, d_state), what they need of the source, in that shape.

        Returns:
            What each position knows of the next token, shape (B, L, d_model), and the new state.
        """
        x = self.dropout(self.target_embedding(target))  # (B, L, d_model)
        states, state = self.decoder(x, state)  # (B, L, d_state)
        found = [] if look_up is None else [look_up(states)]
        combined = self.combine(torch.cat([states, *found], dim=-1)).tanh()  # (B, L, d_model)
        return self.dropout(combined), state

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:  # noqa: D102
        memory, mask, state = self.encode(source)
        attention = self.attention
        if attention is None:
            return self.decode(target, state, None)[0]
        return self.decode(target, state, lambda x: attention(x, memory, memory, mask=mask))[0]

    def begin(self, source: Tensor) -> "RecurrentSteps":  # noqa: D102
        return RecurrentSteps(self, source)


class RecurrentSteps:
    """A recurrent translator in the middle of writing: the ``StepModel`` that a search drives.

    Args:
        model: In eval mode.
        source: Padded source ids. Shape (N, S).
    """

    def __init__(self, model: RecurrentTranslator, source: Tensor) -> None:
        self.model = model
        memory, mask, self.state = model.encode(source)
        self.look_up: Callable[[Tensor], Tensor] | None = None
        self.cache = DecoderCache([])
        if model.attention is not None:
            projected = KeyValueCache()
            projected.append(*model.attention.project(memory, memory))
            self.cache = DecoderCache([projected], memory_mask=mask)
            self.look_up = partial(_look_together, model.attention, self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, shape (N,), and score the next ones, shape (N, V)."""
        hidden, self.state = self.model.decode(tokens[:, None], self.state, self.look_up)
        return self.model.output(hidden[:, 0])

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, shape (M,), only."""
        hidden, cell = self.state
        rows_here = rows.to(hidden.device)
        self.state = hidden[:, rows_here], cell[:, rows_here]
        if self.look_up is not None:
            self.cache.reorder(rows)


def _look_together(attention: MultiHeadAttention, cache: DecoderCache, states: Tensor) -> Tensor:
    """Let states, (N, 1, d_state), look into the source; rows that write one sentence share it."""
    (memory,) = cache.memory
    together = states.reshape(memory.rows, -1, states.shape[-1])  # (B, N / B, d_state)
    return attention(together, mask=cache.memory_mask, cache=memory).reshape(states.shape)


def _join_directions(state: Tensor) -> Tensor:
    """Lay the last states of both directions side by side, layer by layer.

    Args:
        state: As ``nn.LSTM`` returns it. Shape (2 * num_layers, B, d_state / 2).

    Returns:
        Shape (num_layers, B, d_state).
    """
    return state.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2).contiguous()
