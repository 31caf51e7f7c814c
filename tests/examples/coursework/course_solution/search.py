"""Unit 11, solved."""

from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


def greedy_search(model: Any, start: int, end_id: int, max_length: int) -> list[int]:
    tokens: list[int] = []
    last = start
    while len(tokens) < max_length:
        last = int(model.step(torch.tensor([last]))[0].argmax())
        if last == end_id:
            break
        tokens.append(last)
    return tokens


def beam_search(
    model: Any,
    start: int,
    end_id: int,
    beam_size: int,
    max_length: int,
    length_penalty: float = 0.6,
) -> tuple[list[int], float]:
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []

    def rank(score: float, length: int) -> float:
        return score / ((5 + length) / 6) ** length_penalty

    for _ in range(max_length):
        last = torch.tensor([tokens[-1] if tokens else start for _, tokens in beams])
        log_probabilities = model.step(last).log_softmax(-1)
        found = [
            (score + each, row, token)
            for row, (score, _) in enumerate(beams)
            for token, each in enumerate(log_probabilities[row].tolist())
        ]
        found.sort(key=lambda each: -each[0])
        for score, row, token in found[:beam_size]:
            if token == end_id:
                tokens = beams[row][1]
                finished.append((rank(score, len(tokens) + 1), tokens))
        kept = [each for each in found if each[2] != end_id][:beam_size]
        model.reorder(torch.tensor([row for _, row, _ in kept]))
        beams = [(score, [*beams[row][1], token]) for score, row, token in kept]
    finished += [(rank(score, len(tokens)), tokens) for score, tokens in beams]
    best = max(finished)
    return best[1], best[0]
