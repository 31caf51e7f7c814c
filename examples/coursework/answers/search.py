"""The answer to unit 11: tensors in a list, and hypotheses in lists of tokens."""

from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    """Two tensors."""

    def __init__(self) -> None:
        self.both: list[Tensor] = []

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append."""
        old = self.both or [keys[:, :, :0], values[:, :, :0]]
        self.both = [torch.cat([old[0], keys], 2), torch.cat([old[1], values], 2)]
        return self.both[0], self.both[1]

    def reorder(self, rows: Tensor) -> None:
        """Choose rows."""
        self.both = [self.both[0][rows], self.both[1][rows]]


def greedy_search(model: Any, start: int, end_id: int, max_length: int) -> list[int]:
    """Take the largest logit."""
    tokens = [start]
    for _ in range(max_length):
        tokens.append(int(model.step(torch.tensor(tokens[-1:]))[0].argmax()))
        if tokens[-1] == end_id:
            return tokens[1:-1]
    return tokens[1:]


def beam_search(
    model: Any,
    start: int,
    end_id: int,
    beam_size: int,
    max_length: int,
    length_penalty: float = 0.6,
) -> tuple[list[int], float]:
    """Sort all candidates of a step."""
    beams: list[tuple[float, list[int]]] = [(0.0, [start])]
    finished: list[tuple[float, list[int]]] = []

    def finish(score: float, tokens: list[int], length: int) -> None:
        finished.append((score / ((5 + length) / 6) ** length_penalty, tokens))

    for _ in range(max_length):
        scores = model.step(torch.tensor([tokens[-1] for _, tokens in beams])).log_softmax(-1)
        scores, size = scores + torch.tensor([[score] for score, _ in beams]), scores.shape[1]
        order = scores.flatten().argsort(descending=True).tolist()
        found = [(scores.flatten()[i].item(), i // size, i % size) for i in order]
        for score, row, token in found[:beam_size]:
            if token == end_id:
                tokens = beams[row][1][1:]
                finish(score, tokens, len(tokens) + 1)
        kept = [each for each in found if each[2] != end_id][:beam_size]
        model.reorder(torch.tensor([row for _, row, _ in kept]))
        beams = [(score, [*beams[row][1], token]) for score, row, token in kept]
    for score, tokens in beams:
        finish(score, tokens[1:], len(tokens) - 1)
    score, tokens = max(finished)
    return tokens, score
