"""A bidirectional mask in a decoder.

From version 5.9.0 of transformers on, four models (RoFormer, BigBird, RemBERT and MegatronBERT)
attended to later positions in training. Each of them is an encoder that a flag turns into a
decoder, and the function for bidirectional masks was called in both cases.

Nothing failed: the shapes are the same, and the training loss fell faster than before. It was this
loss that a user reported in September 2026: it was nearly zero after a few hundred steps on random
tokens, which no model can predict. A model that attends to its own labels has a low loss in
training and is useless in generation.

:theme: masks
:source: https://github.com/huggingface/transformers/issues/48745
:found by: causality
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import PADDED, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """An encoder that a flag turns into a decoder."""

    is_decoder = True

    def mask(self, ids: Tensor) -> Tensor:
        # the fault: a decoder gets the mask of an encoder
        return (ids != 0)[:, None, :]  # (B, 1, S), true where a key is attended to

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.attend(self.embed(ids), self.mask(ids)))


class Mended(Broken):
    """The same, with a causal mask where it is a decoder."""

    def mask(self, ids: Tensor) -> Tensor:
        mask = (ids != 0)[:, None, :]
        if self.is_decoder:
            length = ids.shape[1]
            mask = mask & torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        return mask


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    return check_soundness(model, PADDED, causal=True, padding_id=0)
