"""A model whose scores depend on all that a row has written: a mixed-up row changes its story."""

import torch
from torch import Tensor

END, VOCABULARY = 0, 6


class Storyteller:
    """Scores that follow from a row's whole past, so that a mixed-up row changes its story."""

    def __init__(self, rows: int) -> None:
        self.pasts: list[tuple[int, ...]] = [()] * rows
        self.batches: list[int] = []
        self.selections: list[list[int]] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.batches.append(len(tokens))
        pairs = zip(self.pasts, tokens.tolist(), strict=True)
        self.pasts = [(*past, token) for past, token in pairs]
        return torch.stack([self.scores(past) for past in self.pasts])

    def reorder(self, rows: Tensor) -> None:
        self.selections.append(rows.tolist())
        self.pasts = [self.pasts[row] for row in rows.tolist()]

    @staticmethod
    def scores(past: tuple[int, ...]) -> Tensor:
        dice = torch.Generator().manual_seed(sum((n + 1) * t for n, t in enumerate(past)))
        return torch.randn(VOCABULARY, generator=dice, dtype=torch.float64)
