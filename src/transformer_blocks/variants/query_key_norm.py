r"""Query-key normalisation: bound the attention scores.

A score is a dot product, and nothing in training bounds the norms of queries and keys. In large
models they can grow until the softmax saturates; Dehghani et al. observed that training diverged
then ("Scaling Vision Transformers to 22 Billion Parameters", 2023,
https://arxiv.org/abs/2302.05442, section 2). If queries and keys are normalised first, only the
learned gains of the normalisation scale the scores:

.. math:: \mathrm{softmax}\left(\frac{\mathrm{norm}(q)\,\mathrm{norm}(k)^T}{\sqrt{d_k}}\right)

The idea is from "Query-Key Normalization for Transformers" (Henry et al. 2020,
https://arxiv.org/abs/2010.04245), which divides by the Euclidean norm and learns one factor in
place of 1 / sqrt(d_k). Dehghani et al. use layer normalisation. The default here is RMSNorm, which
divides by the root mean square and learns a gain for each of the d_k elements. While all gains are
1, a score is at most sqrt(d_k).

Next: :mod:`transformer_blocks.variants.sinks`, with which a query can attend to nothing.
"""

from collections.abc import Callable

from torch import Tensor, nn

from transformer_blocks._contracts import Factory, Size, check, checked
from transformer_blocks.multi_head import QueryKeyTransform


class QueryKeyNorm(QueryKeyTransform):
    """A transform that normalises queries and keys.

    All heads of a layer share the gains. To combine it with rotary positional encoding, normalise
    first: ``transforms=[QueryKeyNorm(d_k), RotaryPositionalEncoding(d_k)]``.

    Args:
        d_k: Size of the queries and keys of one head.
        norm: Class of the normalisation layers, or a function that returns one; it is called as
            ``norm(d_k)``, once for the queries and once for the keys.

    Raises:
        TypeError: If ``norm`` does not return modules.
        ValueError: If ``d_k`` is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, QueryKeyNorm
        >>> attention = MultiHeadAttention(16, num_heads=2, transforms=[QueryKeyNorm(d_k=8)])
        >>> x = torch.randn(1, 5, 16)
        >>> weights = attention.attention_weights(x, x)
        >>> with torch.no_grad():
        ...     _ = attention.query_projection.weight.mul_(1000)  # the queries grow ...
        >>> torch.allclose(weights, attention.attention_weights(x, x), atol=1e-5)  # ... no effect
        True
    """

    @checked
    def __init__(
        self, d_k: Size, *, norm: Factory[Callable[[int], nn.Module]] = nn.RMSNorm
    ) -> None:
        super().__init__()
        self.d_k = d_k
        self.query_norm, self.key_norm = norm(d_k), norm(d_k)
        check(nn.Module, norm=self.query_norm)

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        """Normalise each query.

        Args:
            queries: Query vectors, of shape (B, H, L, d_k).
            start: Position of the first query; not used.

        Returns:
            The normalised queries, of the same shape.

        Raises:
            RuntimeError: If the size of the queries is not that of the norm.
        """
        return self.query_norm(queries)

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        """Normalise each key.

        Args:
            keys: Key vectors, of shape (B, H, S, d_k).
            start: Position of the first key; not used.

        Returns:
            The normalised keys, of the same shape.

        Raises:
            RuntimeError: If the size of the keys is not that of the norm.
        """
        return self.key_norm(keys)
