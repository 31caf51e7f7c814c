"""Unit 2, solved."""

import math

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    def __init__(self, vocabulary_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary_size, d_model) * d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens] * math.sqrt(self.weight.shape[1])


def output_logits(hidden: Tensor, embedding: TokenEmbedding) -> Tensor:
    return hidden @ embedding.weight.T
