"""Family: what a file of this package says about the published models of one architecture.

Each family is a class with three parts: what it reads from ``config.json``, how it composes the
model of blocks, and which tensor of the published files each parameter is read from.

Next: ``bert.py``, the first of them.
"""

from collections.abc import Collection
from typing import ClassVar

import torch
from torch import Tensor, nn

from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.weights import Origin, rename


class Family:
    """A published architecture.

    Args:
        config: The settings of a model. What is not implemented is refused.
        tensors: The names of its published tensors.

    Attributes:
        names: Published names of parts of our parameters' names.
        prefixes: What may precede a published name.
        left_out: Regular expression of the names of tensors that the model does not need.
        end_id: Id of the end token, if no file names one.
        max_length: Maximum number of tokens of a text; None if there is none.

    Raises:
        LoadError: If a setting is missing, invalid or not implemented.
    """

    names: ClassVar[dict[str, str]]
    prefixes: ClassVar[tuple[str, ...]] = ("",)
    left_out: str = ""
    end_id: ClassVar[int | None] = None
    max_length: int | None = None

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        raise NotImplementedError

    def build(self) -> nn.Module:
        """Compose the model."""
        raise NotImplementedError

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        published = rename(name, self.names)
        return Origin(tuple(f"{prefix}{published}" for prefix in self.prefixes))


class LogitBias(nn.Module):
    """Adds a bias to logits; a token whose bias is negative infinity is never generated.

    Args:
        vocabulary_size: Number of token ids, V.

    Attributes:
        bias: The bias, of shape (1, V).
    """

    bias: Tensor

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.register_buffer("bias", torch.zeros(1, vocabulary_size))

    def forward(self, logits: Tensor) -> Tensor:
        """Return the sum, of shape (..., V)."""
        return logits + self.bias[0]
