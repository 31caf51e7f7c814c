"""Unit 3: sinusoidal positional encodings. Chapter 8 of the book; section 3.5 of the paper."""

from torch import Tensor, nn


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """Compute the encodings of the positions 0 to length - 1.

    Column 2i is sin(position / 10000^(2i / d_model)), and column 2i + 1 the cosine of the same
    angle. An odd ``d_model`` ends with a sine.

    Args:
        length: Number of positions.
        d_model: Size of the vectors.

    Returns:
        Encodings, of shape (length, d_model), float32.
    """
    raise NotImplementedError


class SinusoidalPositionalEncoding(nn.Module):
    """Adds to each vector the encoding of its position.

    Nothing of it is trained, and its ``state_dict()`` is empty: keep the table in a plain
    attribute, or with ``register_buffer(..., persistent=False)``.
    """

    def __init__(self, d_model: int, max_length: int = 5000) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Add the encodings.

        Args:
            x: Vectors, of shape (B, L, d_model).
            offset: Position of the first vector. In a decoding step, the positions before it are in
                a cache.

        Returns:
            Vectors of the same shape.
        """
        raise NotImplementedError
