"""Caching: the buffer of a key-value cache, which grows without a copy at each step.

A decoding step appends one position to the keys and values of all earlier ones. Concatenation
copies all of them; in a buffer with spare capacity, only the new position is written.

Equals ``torch.cat((cached, new), dim=-2)``.
"""

import torch
from torch import Tensor

__all__ = ["append", "drop_empty_mask", "grow", "writable"]

MIN_CAPACITY = 16  # positions that a buffer has room for when it first grows


def append(buffer: Tensor, length: int, new: Tensor) -> Tensor:
    """Append new positions after the first ``length`` positions of a buffer.

    The first ``length + L`` positions of the result equal
    ``torch.cat((buffer[..., :length, :], new), dim=-2)``, which would copy all of them at each
    step. Here the new ones are written into the buffer, or into a larger copy if it is full.

    Args:
        buffer: Tensor whose first ``length`` positions are in use, of shape (..., capacity, d_k).
        length: The number of positions in use; at most the capacity.
        new: Positions to append, of shape (..., L, d_k).

    Returns:
        The buffer, or its larger copy. All but its first ``length + L`` positions are
        uninitialised.

    Example:
        >>> import torch
        >>> from transformer_blocks.fast.caching import append
        >>> buffer = append(torch.ones(1, 4), 1, torch.full((1, 4), 2.0))  # too small: copied
        >>> longer = append(buffer, 2, torch.full((1, 4), 3.0))
        >>> longer is buffer, longer[:3, 0].tolist()
        (True, [1.0, 2.0, 3.0])
    """
    if torch.compiler.is_exporting():  # sizes are symbols, which cannot be compared
        return torch.cat((buffer[..., :length, :], new), dim=-2)
    end = length + new.shape[-2]
    buffer = grow(buffer, length, end)
    buffer[..., length:end, :] = new
    return buffer


def grow(buffer: Tensor, length: int, capacity: int) -> Tensor:
    """Return the buffer, or a larger copy of its first ``length`` positions if it is too small.

    The capacity grows by half at least, so that on average a position is copied a constant number
    of times.

    Args:
        buffer: Tensor of shape (..., capacity, d_k).
        length: The number of positions in use.
        capacity: The number of positions that it must have room for.
    """
    *outer, present, d_k = buffer.shape
    if capacity <= present:
        return writable(buffer)
    larger = buffer.new_empty(*outer, max(capacity, present + present // 2, MIN_CAPACITY), d_k)
    larger[..., :length, :] = buffer[..., :length, :]
    return larger


def writable(buffer: Tensor) -> Tensor:
    """Return a buffer, or a copy if only inference mode, in which it was made, may change it."""
    is_locked = buffer.is_inference() and not torch.is_inference_mode_enabled()
    return buffer.clone() if is_locked else buffer


def has_values(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read: meta and fake tensors have none."""
    is_fake = type(x).__name__ in ("FakeTensor", "FunctionalTensor")  # of private modules
    return not is_fake and not x.is_meta and not torch.compiler.is_exporting()


def drop_empty_mask(mask: Tensor | None) -> Tensor | None:
    """Return None for a mask that masks no position: attention without a mask is faster.

    A mask whose values cannot be read (on the meta device, of a tensor subclass, or while a
    compiler traces) is returned as it is.

    Args:
        mask: Boolean mask of any shape; True hides.
    """
    has_values = type(mask) is Tensor and not mask.is_meta and not torch.compiler.is_compiling()
    return None if mask is None or (has_values and not mask.any()) else mask
