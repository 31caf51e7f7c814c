"""Prefill and a step of beam search as functions of tensors, which a compiler can trace.

:func:`~transformer_blocks.beam_search` keeps its hypotheses in Python lists, and reorders the
caches after each step. Here the same is done by operations on tensors. Two things differ from it:

- The hypotheses are not copied at each step. For each step, the state has the newest tokens and
  the beams that they extend; a hypothesis is read from its last token back to its first.
- The caches are not reordered. For each position of a hypothesis, the state has the beam that wrote
  its keys and values; attention reads them there.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks.cache import KeyValueCache
from transformer_blocks.generation.prompts import left_padding_mask
from transformer_blocks.generation.stepping import best_extensions, to_log_probabilities
from transformer_blocks.models import LanguageModel, Seq2Seq


class State(NamedTuple):
    """The state of the searches of a batch of B sequences, with K hypotheses each.

    Attributes:
        tokens: The newest token of each hypothesis, int64, (B, K).
        scores: Log-probability of each hypothesis, (B, K).
        ranks: Score divided by length penalty, and score, of the K best finished hypotheses of each
            sequence, best first, float64, (B, K, 2); negative infinity where there are fewer.
        ends: Number of tokens of each finished hypothesis, and the beam that it extended, int64,
            (B, K, 2).
        paths: For each step, the beam that each hypothesis extended, and its token, int64,
            (B, T, K, 2).
        origins: The beam that wrote each position of the caches of each hypothesis, int64,
            (B, K, S).
        mask: The mask of the memory, (B, 1, 1, S), or for a decoder-only model the number of
            padding tokens of each prompt, (B,). The step of a single sequence does not read it.
        buffers: Keys and values of each layer's self-attention, (B K, 2, H, capacity, d_k).
        memory: Keys and values of each layer's cross-attention, (B, 2, H, S, d_k); empty for a
            decoder-only model.
    """

    tokens: Tensor
    scores: Tensor
    ranks: Tensor
    ends: Tensor
    paths: Tensor
    origins: Tensor
    mask: Tensor
    buffers: list[Tensor]
    memory: list[Tensor]


class Prefill(nn.Module):
    """The keys and values of what precedes the first step of a search.

    Args:
        model: A prepared model.
        is_masked: Whether sources or prompts are padded; if not, ``mask`` is not read.
    """

    def __init__(self, model: LanguageModel | Seq2Seq, *, is_masked: bool) -> None:
        super().__init__()
        self.model, self.is_masked = model, is_masked

    def forward(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        """Compute what the state calls ``memory``, or the first positions of ``buffers``.

        Args:
            tokens: Token ids of sources, or of prompts padded at the left, of shape (B, S).
            mask: As in :class:`State`.

        Returns:
            For each layer, keys and values, of shape (B, 2, H, S, d_k).
        """
        model, given = self.model, mask if self.is_masked else None
        layers: Any = model.decoder.layers
        if isinstance(model, Seq2Seq):
            memory = model.encoder(model.embed_source(tokens), mask=given)
            projected = [layer.cross_attention.project(memory, memory) for layer in layers]
            return [torch.stack(each, dim=1) for each in projected]
        x = model.embed(tokens, 0 if given is None else -given)
        if given is not None:
            given = left_padding_mask(given, tokens.shape[1])[:, None, None]
        caches = [KeyValueCache() for _ in layers]
        for layer, cache in zip(layers, caches, strict=True):
            x = layer(x, mask=given, causal=True, cache=cache)
        return [torch.stack(cache.read(), dim=1) for cache in caches]


class SearchStep(nn.Module):
    """A step of a search.

    Args:
        model: A prepared model.
        ends: The ids of the end tokens.
        is_masked: Whether ``mask`` of the state is read.
    """

    ends: Tensor

    def __init__(self, model: LanguageModel | Seq2Seq, ends: list[int], *, is_masked: bool) -> None:
        super().__init__()
        self.model, self.is_masked = model, is_masked
        self.register_buffer("ends", torch.tensor(ends, dtype=torch.int64, device="cpu"))

    def forward(self, length: Tensor, step: Tensor, penalties: Tensor, *parts: Any) -> Any:
        """Extend every hypothesis by one token; change ``paths``, ``origins`` and buffers in place.

        Args:
            length: Any tensor of shape (length + 2,), where length is the number of cached
                positions: a traced function obtains dynamic sizes from the shapes of tensors.
            step: Number of earlier steps, int64, (1,).
            penalties: Length penalty of a hypothesis of each length, from 0, float64, (T + 1,).
            parts: The parts of a :class:`State`; its tensors are contiguous, and the buffers have
                room for one more position.

        Returns:
            The new first four parts of the state; and for each sequence, float64, (B, 3): the best
            candidate's score, which is NaN if a logit is; the rank of the last of K finished
            hypotheses; and the score of the best unfinished one.
        """
        state = State(*parts)
        beam_size = state.tokens.shape[1]
        logits = self._logits(length.shape[0] - 2, state)
        log_probabilities, vocabulary = to_log_probabilities(logits), logits.shape[1]
        # Of these candidates, at least K do not end.
        count = min((1 + max(1, self.ends.shape[0])) * beam_size, beam_size * vocabulary)
        best, indices = best_extensions(log_probabilities, state.scores, count)
        parents, tokens = indices // vocabulary, indices % vocabulary
        is_end = (tokens[..., None] == self.ends).any(-1)

        first = slice(None), slice(beam_size)
        finished = torch.where(is_end[first], best[first].double(), -math.inf)
        found = torch.stack((finished / penalties.index_select(0, step + 1), finished), dim=-1)
        where = torch.stack((step.expand_as(finished), parents[first]), dim=-1)
        ranks, ends = torch.cat((state.ranks, found), 1), torch.cat((state.ends, where), 1)
        order = _argsort(-ranks[..., 0])[first][..., None].expand(-1, -1, 2)
        ranks, ends = ranks.gather(1, order), ends.gather(1, order)

        is_over = is_end | (best == -math.inf)
        order = _argsort(is_over.byte())[first]
        is_over = is_over.gather(1, order)
        order = torch.where(is_over, order[:, :1], order)  # too few: the best one is repeated
        scores = torch.where(is_over, -math.inf, best.gather(1, order))
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        state.paths.index_copy_(1, step, torch.stack((parents, tokens), dim=-1)[:, None])
        if beam_size > 1:
            of_parents = state.origins.gather(1, parents[:, :, None].expand_as(state.origins))
            state.origins.copy_(of_parents)
        facts = torch.stack((best[:, 0].double(), ranks[:, -1, 0], scores[:, 0].double()), dim=1)
        return tokens, scores, ranks, ends, facts

    def _logits(self, length: int, state: State) -> Tensor:
        """Append the newest tokens to the caches; return the next one's logits, of (B K, V)."""
        batch, beam_size = state.tokens.shape
        rows: Tensor | None = None  # that hold the positions of each hypothesis, (B K, length + 1)
        if beam_size > 1:
            beams = torch.arange(beam_size, device="cpu")
            state.origins[:, :, length : length + 1] = beams[:, None]
            first = torch.arange(batch, device="cpu")[:, None, None] * beam_size
            rows = (first + state.origins[:, :, : length + 1]).flatten(0, 1)
        position: Any = length
        mask = state.mask if self.is_masked else None
        if mask is not None and not state.memory:
            padding = mask.repeat_interleave(beam_size, dim=0)  # (B K,)
            position, mask = length - padding, left_padding_mask(padding, length + 1)[:, None, None]
        x = self.model.embed(state.tokens.view(-1, 1), position)  # (B K, 1, d_model)
        layers: Any = self.model.decoder.layers
        for number, layer in enumerate(layers):
            cache = _StepCache(state.buffers[number], length, rows)
            if state.memory:
                memory = _StepCache(state.memory[number], state.memory[number].shape[3])
                x = layer(x, memory, memory_mask=mask, causal=True, cache=cache)
            else:
                x = layer(x, mask=mask, causal=True, cache=cache)
        norm = self.model.decoder.norm
        return self.model.output((x if norm is None else norm(x))[:, 0])


class _StepCache(KeyValueCache):
    """A buffer with enough room as a cache: its sizes are symbols, and nothing is checked.

    Args:
        buffer: Keys and values, of shape (N, 2, H, capacity, d_k).
        length: The number of cached positions.
        rows: The row of the buffer that holds each position of each row, of shape (N, length + 1).
    """

    def __init__(self, buffer: Tensor, length: int, rows: Tensor | None = None) -> None:
        super().__init__()
        self.positions, self.length, self.rows_of_positions = buffer, length, rows

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + 1
        self.positions[..., self.length : end, :] = torch.stack((keys, values), dim=1)
        if self.rows_of_positions is None:
            all_keys, all_values = self.positions[..., :end, :].unbind(1)
        else:  # from (N, length + 1, 2, H, d_k)
            found = self.positions[self.rows_of_positions, :, :, torch.arange(end, device="cpu")]
            all_keys, all_values = found.permute(2, 0, 3, 1, 4).unbind(0)
        return all_keys, all_values

    def read(self) -> tuple[Tensor, Tensor]:
        keys, values = self.positions.unbind(1)
        return keys, values

    def advance(self, count: int) -> None:
        """Do nothing: the length is an input of each step."""


def _argsort(values: Tensor) -> Tensor:
    """Sort the few numbers of each row stably by comparing all pairs, and return their indices.

    The comparisons are compiled with what surrounds them; ``torch.sort`` would be called.
    """
    numbers = torch.arange(values.shape[1], device="cpu")
    mine, others = values[:, :, None], values[:, None]  # (B, n, 1), (B, 1, n)
    precedes = (others < mine) | ((others == mine) & (numbers < numbers[:, None]))
    places = precedes.sum(-1)  # (B, n)
    return (places[:, None] == numbers[:, None]).byte().argmax(-1)
