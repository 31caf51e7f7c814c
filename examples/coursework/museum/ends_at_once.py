"""Sequences that must all end in the same step.

The decoding function of flash-attention generates a batch until the newest token of every sequence
is the end token. A sequence that is finished earlier receives further tokens, until all of them
happen to end in one step, or at the maximum length.

With one sequence, or with sequences of one length, the function is right. In other batches, text
follows the end of a sequence, as if the model had not learned to stop. A pull request of August
2026 stores for each sequence whether it is finished.

:theme: decoding
:source: https://github.com/Dao-AILab/flash-attention/pull/2784
:found by: decoding
"""

import torch
from torch import Tensor

from transformer_blocks.generation import StepModel
from transformer_blocks.inspection import check_search


class Broken:
    """Greedy decoding of a batch."""

    def hide(self, tokens: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Replace the newest tokens (N,) of sequences that have ended."""
        # the fault: a finished sequence receives further tokens
        return tokens

    @torch.no_grad()
    def __call__(
        self, model: StepModel, start: Tensor, *, end_id: int, max_length: int
    ) -> list[list[int]]:
        """Return the most probable tokens after each start token (N,)."""
        tokens, columns = start, []
        ended = torch.zeros(len(start), dtype=torch.bool)
        for _ in range(max_length):
            tokens = self.hide(model.step(tokens).argmax(-1), ended, end_id)
            columns.append(tokens)
            ended = tokens == end_id
            if ended.all():
                break
        return torch.stack(columns, dim=1).tolist()


class Mended(Broken):
    """Adds end tokens to finished sequences."""

    def hide(self, tokens: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Replace the newest tokens (N,) of sequences that have ended."""
        return tokens.masked_fill(ended, end_id)


examine = check_search
