r"""Recurrent translators: sequence-to-sequence models with attention, before the Transformer.

A recurrent network reads a sentence token by token and summarises it in one vector, its *state*.
The first neural translators (Sutskever et al. 2014, https://arxiv.org/abs/1409.3215) decoded the
translation from the final state of the encoder: a *fixed vector*, of the same size for thirty words
as for three. Attention was invented to remove that bottleneck (Bahdanau et al. 2014,
https://arxiv.org/abs/1409.0473): the encoder's states of all tokens are stored, and each decoding
step attends to those that it needs.

- The encoder is a bidirectional LSTM: the state :math:`h_j` of a token depends on the tokens before
  it and after it.
- The decoder is an LSTM whose initial state is the encoder's final one. Its state :math:`s_i` is
  the query; the context vector is :math:`c_i = \sum_j \alpha_{ij} h_j`, with the attention weights
  :math:`\alpha`.
- The output is computed from both (Luong et al. 2015, https://arxiv.org/abs/1508.04025, equation 5;
  Bahdanau used the previous state as the query and fed the context into the next state):

.. math:: \tilde{s}_i = \tanh(W_c [s_i; c_i])

So the decoder's states do not depend on the context vectors (Luong's *input feeding* is left out),
and in training all positions attend at once. The states themselves are still computed one after
another; the Transformer removed that recurrence.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

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
from translation.translator import Translator

State = tuple[Tensor, Tensor]
"""The hidden state and the cell state of an LSTM, each of shape (num_layers, B, d_state)."""


class RecurrentTranslator(Translator):
    """A bidirectional LSTM encoder and an LSTM decoder, with or without attention.

    Args:
        source_vocabulary: Number of source token ids; id 0 is padding.
        target_vocabulary: Number of target token ids; id 0 is padding.
        num_layers: Number of layers of the encoder and of the decoder.
        d_model: Size of the embeddings.
        d_state: Size of the states; even, because each direction of the encoder has half.
        dropout: Dropout probability of embeddings, between layers, and before the output layer.
        max_length: Maximum number of tokens of a sentence.
        attention: Attention from the decoder's states to the encoder's, of size ``d_state``; None
            for the fixed vector.
        tie_embeddings: Whether target embeddings and output layer share their weights.
        share_embeddings: Whether source and target have one embedding, too, because they have one
            vocabulary.

    Raises:
        ValueError: If a size is not positive, or ``d_state`` is odd.

    Example:
        >>> attention = MultiHeadAttention(32, num_heads=1)
        >>> model = RecurrentTranslator(100, 100, d_model=16, d_state=32, attention=attention)
        >>> source = torch.tensor([[5, 6, 7, 0]])  # 0 is padding
        >>> target = torch.tensor([[2, 8, 9]])
        >>> model(source, target).shape  # logits of the next token, after each target token
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
        share_embeddings: bool = False,
    ) -> None:
        if d_state % 2:
            raise ValueError(f"d_state must be even, got d_state={d_state}")
        super().__init__()
        self.max_length = max_length
        self.cross_attentions = [] if attention is None else ["decoder_attention"]
        self.source_embedding = self.target_embedding = TokenEmbedding(source_vocabulary, d_model)
        if not share_embeddings:
            self.target_embedding = TokenEmbedding(target_vocabulary, d_model)
        self.dropout = Dropout(dropout)
        layers: dict[str, Any] = {"num_layers": num_layers, "batch_first": True}
        layers["dropout"] = dropout if num_layers > 1 else 0.0  # between the layers
        self.encoder = nn.LSTM(d_model, d_state // 2, bidirectional=True, **layers)
        self.decoder = nn.LSTM(d_model, d_state, **layers)
        self.decoder_attention = attention
        self.combine = nn.Linear(d_state if attention is None else 2 * d_state, d_model)
        self.output = nn.Linear(d_model, target_vocabulary, bias=False)
        if tie_embeddings:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor, State]:
        """Encode the source in both directions.

        As a ``PackedSequence``, the LSTM reads real tokens only: padding costs nothing, and the
        backward direction starts at the last token of each sentence.

        Args:
            source: Source token ids, padded with 0 at the end, of shape (B, S).

        Returns:
            The memory (the states of all tokens), of shape (B, S, d_state), its padding mask, of
            shape (B, 1, 1, S), and the final state.
        """
        mask = padding_mask(source)
        lengths = (~mask).sum(dim=-1).flatten().clamp(min=1).cpu()  # torch needs at least 1
        x = self.dropout(self.source_embedding(source))  # (B, S, d_model)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, final = self.encoder(packed)
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        hidden, cell = (_join_directions(state) for state in final)
        return memory, mask, (hidden, cell)

    def decode(
        self, target: Tensor, state: State, attend: Callable[[Tensor], Tensor] | None
    ) -> tuple[Tensor, State]:
        """Decode target tokens.

        Args:
            target: Target token ids, begin token first, of shape (B, L).
            state: The state of the decoder before the first of them.
            attend: Computes the context vectors of states, both of shape (B, L, d_state); None
                without attention.

        Returns:
            The inputs of the output layer, of shape (B, L, d_model), and the new state.
        """
        x = self.dropout(self.target_embedding(target))  # (B, L, d_model)
        states, state = self.decoder(x, state)  # (B, L, d_state)
        contexts = [] if attend is None else [attend(states)]
        combined = self.combine(torch.cat([states, *contexts], dim=-1)).tanh()  # (B, L, d_model)
        return self.dropout(combined), state

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:  # noqa: D102
        memory, mask, state = self.encode(source)
        attention = self.decoder_attention
        if attention is None:
            return self.decode(target, state, None)[0]
        return self.decode(target, state, lambda x: attention(x, memory, memory, mask=mask))[0]

    def begin(self, source: Tensor) -> "RecurrentSteps":  # noqa: D102
        return RecurrentSteps(self, source)


class RecurrentSteps:
    """The decoding steps of a recurrent translator: the ``StepModel`` that a search calls.

    Args:
        model: The model, in evaluation mode.
        source: Source token ids, padded with 0, of shape (N, S).
    """

    def __init__(self, model: RecurrentTranslator, source: Tensor) -> None:
        self.model = model
        memory, mask, self.state = model.encode(source)
        self.attend: Callable[[Tensor], Tensor] | None = None
        self.cache = DecoderCache([])
        if model.decoder_attention is not None:
            projected = KeyValueCache()
            projected.append(*model.decoder_attention.project(memory, memory))
            self.cache = DecoderCache([projected], memory_mask=mask)
            self.attend = partial(_attend_together, model.decoder_attention, self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, of shape (N,); return the next logits, of shape (N, V)."""
        hidden, self.state = self.model.decode(tokens[:, None], self.state, self.attend)
        return self.model.output(hidden[:, 0])

    def reorder(self, rows: Tensor) -> None:
        """Reorder the rows of the batch; ``rows`` has shape (M,)."""
        hidden, cell = self.state
        rows_here = rows.to(hidden.device)
        self.state = hidden[:, rows_here], cell[:, rows_here]
        if self.attend is not None:
            self.cache.reorder(rows)


def _attend_together(attention: MultiHeadAttention, cache: DecoderCache, states: Tensor) -> Tensor:
    """Attend from states, of shape (N, 1, d_state); hypotheses of one source share its memory."""
    (memory,) = cache.memory
    together = states.reshape(memory.rows, -1, states.shape[-1])  # (B, N / B, d_state)
    return attention(together, cache=memory, mask=cache.memory_mask).reshape(states.shape)


def _join_directions(state: Tensor) -> Tensor:
    """Concatenate the final states of both directions, layer by layer.

    Args:
        state: The state that ``nn.LSTM`` returns, of shape (2 * num_layers, B, d_state / 2).

    Returns:
        The states, of shape (num_layers, B, d_state).
    """
    return state.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2).contiguous()
