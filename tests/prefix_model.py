"""A step model whose logits depend on the whole prefix of a row: a wrong row has other logits."""

import torch
from torch import Tensor

END, VOCABULARY_SIZE = 0, 6


class PrefixModel:
    """Logits are random numbers, seeded by the prefix of the row.

    Attributes:
        prefixes: The tokens of each row so far.
        batch_sizes: The number of rows in each step.
        reorderings: The arguments of each call of ``reorder``.
    """

    def __init__(self, rows: int) -> None:
        self.prefixes: list[tuple[int, ...]] = [()] * rows
        self.batch_sizes: list[int] = []
        self.reorderings: list[list[int]] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.batch_sizes.append(len(tokens))
        pairs = zip(self.prefixes, tokens.tolist(), strict=True)
        self.prefixes = [(*prefix, token) for prefix, token in pairs]
        return torch.stack([self.logits(prefix) for prefix in self.prefixes])

    def reorder(self, rows: Tensor) -> None:
        self.reorderings.append(rows.tolist())
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    @staticmethod
    def logits(prefix: tuple[int, ...]) -> Tensor:
        seed = sum((place + 1) * token for place, token in enumerate(prefix))
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(VOCABULARY_SIZE, generator=generator, dtype=torch.float64)
