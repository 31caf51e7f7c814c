r"""Arithmetic: the queries, keys and values from which attention weights were computed.

With them, the page can show how a single weight arises (equation 1 of the paper): the products of
query and key, feature by feature, their sum, the scale, the mask, the softmax, and the weighted
sum of the values. Not every attention is computed so. ALiBi adds a bias to the scores, additive
attention uses a network instead of a dot product. The arithmetic is therefore accepted only where
it reproduces the weights.

On the page, a number is stored with 16 bits: as an integer from -32767 to 32767, and a step for
each head, which the integer is multiplied by.
"""

import base64
import ctypes
import inspect
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from transformer_blocks._contracts import Vectors, checked
from transformer_blocks.attention import (
    attention_scores,
    masked_softmax,
    scaled_dot_product_attention,
)
from transformer_blocks.inspection.record.projections import Projections
from transformer_blocks.masks import causal_mask

PARTS = {"queries": "query", "keys": "key", "values": "value"}  # on the page, and here
LARGEST = 32767  # of 16 bits
TOLERANCE = 2e-3
"""Largest difference between recomputed and given weights, after rounding to 16 bits."""

LINES: dict[str, tuple[Callable[..., object], str, str]] = {
    "scores": (attention_scores, "return", "03_projections Queries, keys, values"),
    "scale": (attention_scores, "scale =", "04_scale Why sqrt(d_k)"),
    "mask": (masked_softmax, "scores =", "05_masks Masks"),
    "softmax": (masked_softmax, "return", "01_one_query One query reads a memory"),
    "output": (
        scaled_dot_product_attention,
        "return",
        "02_self_attention A sentence attends to itself",
    ),
}
"""For each step: its function, how the last such line begins, and its chapter's file and title."""


@checked
@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The queries, keys and values from which the weights of attention maps were computed.

    :func:`~transformer_blocks.inspection.record_projections` records them.

    Args:
        query: Query vectors, of shape (layers, H, L, d_k).
        key: Key vectors, of shape (layers, H, S, d_k).
        value: Value vectors, of shape (layers, H, S, d_v).
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the shapes do not fit, or a number is not finite.

    Example:
        >>> import torch
        >>> from transformer_blocks import attention_weights
        >>> from transformer_blocks.explorer import Arithmetic, reproduces
        >>> query, key, value = torch.randn(3, 1, 1, 3, 8).unbind()
        >>> arithmetic = Arithmetic(query, key, value)
        >>> reproduces(arithmetic, attention_weights(query, key))
        True
        >>> reproduces(arithmetic, attention_weights(query, key, scale=1.0))  # another scale
        False
    """

    query: Annotated[Tensor, Vectors("layers H L d_k")]
    key: Annotated[Tensor, Vectors("layers H S d_k")]
    value: Annotated[Tensor, Vectors("layers H S d_v")]
    scale: float | None = None

    def __post_init__(self) -> None:
        for name in PARTS.values():
            tensor = getattr(self, name)
            if not tensor.numel():
                raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")
            if not tensor.isfinite().all():
                raise ValueError(f"{name} must be finite, got NaN or infinity")

    def __repr__(self) -> str:
        """Show the shapes instead of every number."""
        shapes = (f"{tuple(each.shape)}" for each in (self.query, self.key, self.value))
        return f"Arithmetic(of shapes {', '.join(shapes)})"

    @classmethod
    def of(
        cls,
        projections: Sequence[Projections],
        weights: Tensor,
        mask: Tensor | None = None,
        *,
        sequence: int = 0,
    ) -> "Arithmetic | None":
        """Take the arithmetic from what was recorded, if it reproduces the attention weights.

        Args:
            projections: What :func:`~transformer_blocks.inspection.record_projections` recorded, of
                each layer.
            weights: The attention weights of one sequence, of shape (layers, H, L, S).
            mask: Boolean mask of shape (L, S), where True hides, or None; see :func:`reproduces`.
            sequence: Index of the sequence in the batch.

        Returns:
            The arithmetic; None if the weights are others, or if the layers differ in the size of
            their heads or in their scale.
        """
        if len(projections) != len(weights) or len({each.scale for each in projections}) != 1:
            return None
        tensors = zip(*(each[:3] for each in projections), strict=True)
        try:
            query, key, value = (
                torch.stack([x[sequence].float().cpu() for x in layers]) for layers in tensors
            )
            arithmetic = cls(query, key, value, projections[0].scale)
        except (RuntimeError, ValueError):  # other sizes, or NaN
            return None
        return arithmetic if reproduces(arithmetic, weights, mask) else None

    @property
    def factor(self) -> float:
        """The factor of the scores."""
        return 1.0 / math.sqrt(self.query.shape[-1]) if self.scale is None else float(self.scale)


def reproduces(arithmetic: Arithmetic, weights: Tensor, mask: Tensor | None = None) -> bool:
    """Return whether attention weights are those of equation 1 for given queries and keys.

    The weights are recomputed from the numbers that the page stores, which are rounded to 16 bits.

    Args:
        arithmetic: The queries, keys and values.
        weights: Attention weights, of shape (layers, H, L, S).
        mask: Boolean mask of shape (L, S), where True hides. If it is not given, and no query has
            a weight on a later position, the causal mask is also tried.

    Returns:
        True if no weight differs by more than 0.002; False also if the shapes differ.
    """
    return find_difference(arithmetic, weights, mask)[0] <= TOLERANCE


def is_causal(weights: Tensor) -> bool:
    """Return whether no query of self-attention has a weight on a later position."""
    length, key_length = weights.shape[-2:]
    return length == key_length > 1 and not bool(weights.triu(1).any())


def find_difference(
    arithmetic: Arithmetic, weights: Tensor, mask: Tensor | None
) -> tuple[float, bool]:
    """Compute how far recomputed attention weights differ from given ones.

    Returns:
        The largest absolute difference, infinite if the shapes do not fit, and whether the causal
        mask was applied although ``mask`` is None.
    """
    query, key = (_rounded(each) for each in (arithmetic.query, arithmetic.key))
    if weights.shape != (*query.shape[:3], key.shape[2]):
        return math.inf, False
    weights = weights.detach().cpu()
    scores = query @ key.mT * arithmetic.factor  # (layers, H, L, S)
    masks = {False: None if mask is None else mask.cpu()}
    if mask is None and is_causal(weights):
        masks[True] = causal_mask(weights.shape[-1])
    return min(
        (float((masked_softmax(scores, each) - weights).abs().max()), causal)
        for causal, each in masks.items()
    )


def largest_size(arithmetics: Sequence[Arithmetic]) -> float:
    """Return how many kilobytes of a page some arithmetics take at most, without compression."""
    tensors = [getattr(each, part) for each in arithmetics for part in PARTS.values()]
    return sum(2 * tensor.numel() for tensor in tensors) * (5 / 4) / 1000  # in base 85


def serialize_arithmetic(
    arithmetic: Arithmetic, weights: Tensor, mask: Tensor | None
) -> dict[str, Any]:
    """Convert the arithmetic of attention maps to JSON.

    Args:
        arithmetic: The arithmetic.
        weights: The weights as the page shows them.
        mask: The mask of the maps, or None.

    Returns:
        The content of the page's JSON.
    """
    difference, causal = find_difference(arithmetic, weights, mask)
    serialized: dict[str, Any] = {
        "size": arithmetic.query.shape[-1],
        "valueSize": arithmetic.value.shape[-1],
        "scale": arithmetic.factor,
        "causal": causal,
        "difference": round(difference, 6),
    }
    for name, part in PARTS.items():
        numbers, steps = _quantize(getattr(arithmetic, part))
        serialized[name] = {"step": steps.flatten().tolist(), "data": compress(numbers)}
    return serialized


def serialize_lines() -> dict[str, dict[str, Any]] | None:
    """Find the lines of :mod:`transformer_blocks.attention` that compute each step.

    Returns:
        For each step, its line of code, the line's number, and its chapter with the chapter's page;
        None where the package is installed without its source.
    """
    found = {}
    for step, (function, beginning, chapter) in LINES.items():
        page, _, title = chapter.partition(" ")
        try:
            lines, first = inspect.getsourcelines(function)
        except OSError:
            return None
        rows = [row for row, line in enumerate(lines) if line.lstrip().startswith(beginning)]
        found[step] = {
            "code": lines[rows[-1]].strip(),
            "line": first + rows[-1],
            "chapter": f"Chapter {int(page[:2])}: {title}",
            "page": f"learn/{page}.html",
        }
    return found


def _quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round numbers to 16 bits: integers, and the step of each layer and head.

    The steps are rounded to seven digits, so that they are short on the page.

    Returns:
        Integers of the shape of ``x``, (layers, H, positions, features), and steps of shape
        (layers, H, 1, 1), in float64. Their product is close to ``x``.
    """
    x = x.detach().cpu().double()
    largest = x.abs().amax(dim=(2, 3), keepdim=True)
    steps = [float(f"{step:.7g}") for step in (largest / (LARGEST - 1)).flatten().tolist()]
    step = torch.tensor(steps, dtype=torch.float64).view_as(largest)
    return (x / step.masked_fill(step == 0.0, 1.0)).round().to(torch.int32), step


def _rounded(x: Tensor) -> Tensor:
    """Round numbers as the page does."""
    numbers, step = _quantize(x)
    return numbers * step


def compress(numbers: Tensor) -> str:
    """Compress integers of at most 16 bits: all low bytes, then all high bytes."""
    flat = numbers.flatten() & 0xFFFF  # two's complement
    return deflate(as_bytes(flat & 0xFF) + as_bytes(flat >> 8))


def deflate(data: bytes, strategy: int = zlib.Z_RLE) -> str:
    """Compress bytes, and return them as text.

    Only runs are searched: among numbers, other repeats are few, and looking for them takes much
    longer.
    """
    compressor = zlib.compressobj(9, strategy=strategy)
    return as_text(compressor.compress(data) + compressor.flush())


def as_text(data: bytes) -> str:
    """Return bytes in base 85, without characters that are escaped in the page's JSON."""
    size = 1 << 20  # the encoder needs 40 bytes for each of a part
    parts = (data[start : start + size] for start in range(0, len(data), size))
    text = "".join(base64.b85encode(part).decode() for part in parts)
    return text.translate(str.maketrans("<>&", ",./"))


def as_bytes(numbers: Tensor, dtype: torch.dtype = torch.uint8) -> bytes:
    """Return numbers as bytes, without numpy, which need not be installed."""
    flat = numbers.detach().to("cpu", dtype).flatten().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)
