"""An attention function of your own: base classes for other scores than dot products."""

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Mask, checked, unchecked
from transformer_blocks.attention import (
    KeyHeads,
    QueryHeads,
    ValueHeads,
    attention_scores,
    combine_masks,
    masked_softmax,
    matmul_by_head,
)
from transformer_blocks.fast.dropout import apply_dropout

__all__ = ["DistanceBias", "ExplicitAttention"]


class ExplicitAttention(nn.Module):
    """Base class of attention functions whose subclasses compute the attention scores.

    This class masks the scores, applies the softmax and computes the weighted sum of the values. It
    stores the L x S attention weights of every head, and returns them with the output.

    Example:
        >>> import torch
        >>> from transformer_blocks import ExplicitAttention
        >>> class UniformAttention(ExplicitAttention):
        ...     "Attends to all keys that are not masked with the same weight."
        ...
        ...     def attention_scores(self, query, key, scale):
        ...         return torch.zeros(*query.shape[:3], key.shape[2])
        >>> value = torch.tensor([1.0, 2.0, 6.0]).view(1, 1, 3, 1)
        >>> output, weights = UniformAttention()(value, value, value, causal=True)
        >>> output.flatten()  # each output is the mean of the values up to its position
        tensor([1.0000, 1.5000, 3.0000])
    """

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        """Compute the attention scores; a subclass defines how.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k). A key head that several query heads share is
                repeated for each of them.
            scale: Factor of the scores; the default of the subclass if None.

        Returns:
            Scores before masking and softmax, of shape (B, H, L, S), in float32 or float64.
        """
        raise NotImplementedError

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Compute weights from scores: by a softmax over the keys that are not masked.

        Args:
            scores: Scores, of shape (B, H, L, S).
            mask: Boolean mask; True hides. Broadcastable to (B, H, L, S).

        Returns:
            Weights, of shape (B, H, L, S).
        """
        return masked_softmax(scores, mask)

    @checked
    def attention_weights(
        self,
        query: QueryHeads,
        key: KeyHeads,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Compute the attention weights; see :func:`~transformer_blocks.attention_weights`.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k), or of fewer heads.
            mask: Boolean mask; True hides a key from a query. Shape (L, S) or (B|1, H|1, L|1, S).
            causal: Also mask future positions. With L < S the last query attends to every key.
            scale: Factor of the scores; the default of the subclass if not given.

        Returns:
            Attention weights, of shape (B, H, L, S). Those of a query sum to one (to less with an
            attention sink), or are all zero if every key is masked.

        Raises:
            TypeError: If the dtypes differ, or ``mask`` is not boolean.
            ValueError: If the shapes do not fit.
        """
        if (times := query.shape[1] // key.shape[1]) > 1:
            key = key.repeat_interleave(times, dim=1)
        scores = self.attention_scores(query, key, scale)
        return self.normalise(scores, combine_masks(query, key, mask, causal)).to(query.dtype)

    @checked
    def forward(
        self,
        query: QueryHeads,
        key: KeyHeads,
        value: ValueHeads,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        dropout: DropoutProbability = 0.0,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute attention with the scores of :meth:`attention_scores`.

        The arguments are those of :func:`~transformer_blocks.scaled_dot_product_attention`.

        Returns:
            The output, of shape (B, H, L, d_v), and the attention weights before dropout, of shape
            (B, H, L, S).

        Raises:
            TypeError: If the dtypes differ, or ``mask`` is not boolean.
            ValueError: If the shapes do not fit, or ``dropout`` is out of range.
        """
        weights = _weights(self, query, key, mask=mask, causal=causal, scale=scale)
        return matmul_by_head(apply_dropout(weights, dropout), value), weights


_weights = unchecked(ExplicitAttention.attention_weights)


class DistanceBias(ExplicitAttention):
    """Base class of attention functions that add a bias for the distance to every score.

    The last query has the position of the last key, so they work for self-attention, and for
    decoding with a cache. Padding at the left of a sequence changes no distance between its tokens,
    and no score. They do not suit cross-attention, as the distance between positions of two
    sequences is not defined.
    """

    uses_positions = True

    def biases(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute the bias of each distance; a subclass defines how.

        Args:
            distance: Position of the key minus position of the query, int64, of shape (L, S).
            dtype: The dtype of the scores.

        Returns:
            Biases of the scores of each head, of shape (H, L, S).
        """
        raise NotImplementedError

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        """Compute the scores of equation 1 and add the biases.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k).
            scale: Factor of the dot products, not of the biases; 1 / sqrt(d_k) if not given.

        Returns:
            Scores, of shape (B, H, L, S).

        Raises:
            ValueError: If the number of heads does not fit, or there are more queries than keys.
        """
        (heads, length), key_length = query.shape[1:3], key.shape[2]
        if length > key_length:
            raise ValueError(
                f"there must be no more queries than keys, got L={length} and S={key_length}"
            )
        scores = attention_scores(query, key, scale)  # (B, H, L, S)
        positions = torch.arange(key_length, device=scores.device)
        distance = positions - positions[key_length - length :, None]  # (L, S)
        biases = self.biases(distance, scores.dtype)  # (H, L, S)
        if len(biases) != heads:
            raise ValueError(
                f"query must have shape (B, {len(biases)}, L, d_k), got {tuple(query.shape)}"
            )
        return scores + biases
