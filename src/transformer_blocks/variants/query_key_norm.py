r"""Query-key normalisation: scores that cannot run away.

A score is a dot product, and nothing in training keeps queries and keys short. In large models they
grow until each softmax sees a single key and the gradient is gone; some trainings break off there
("Scaling Vision Transformers to 22 Billion Parameters", Dehghani et al. 2023,
https://arxiv.org/abs/2302.05442, section 2). If queries and keys are normalised first, a score can
be no larger than the learned gains allow:

.. math:: \mathrm{softmax}\left(\frac{\mathrm{norm}(q)\,\mathrm{norm}(k)^T}{\sqrt{d_k}}\right)

The idea is from "Query-Key Normalization for Transformers" (Henry et al. 2020,
https://arxiv.org/abs/2010.04245), which divides by the length; today's models use RMSNorm, which
divides by the root of the mean square, and learns a gain for each of the d_k numbers.

Next chapter: :mod:`transformer_blocks.variants.grouped_query`, which shrinks the cache.
"""

from collections.abc import Callable

from torch import Tensor, nn

from transformer_blocks._checks import check_factory, check_module, check_size, check_vectors
from transformer_blocks.attention import fused_attention
from transformer_blocks.kernels import AttentionFunction, PreparingKernel


class QueryKeyNorm(PreparingKernel):
    """A kernel that normalises queries and keys, then leaves the rest to another.

    All heads share the gains. With rotary positions, normalise first and turn then, as
    ``QueryKeyNorm(d_k, attention_function=RotaryPositionalEncoding(d_k))``.

    Args:
        d_k: Width of a head.
        norm: Makes a normalisation from the width; called for the queries and for the keys.
        attention_function: What computes attention with the normalised queries and keys.

    Raises:
        TypeError: If ``norm`` makes no modules, or ``attention_function`` is a class.
        ValueError: If ``d_k`` is not positive.

    Example:
        >>> kernel = QueryKeyNorm(d_k=8, attention_function=scaled_dot_product_attention)
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> _, weights = kernel(query, key, value)
        >>> _, louder = kernel(1000 * query, key, value)  # who shouts ...
        >>> torch.allclose(weights, louder, atol=1e-5)  # ... is heard as anyone
        True
    """

    def __init__(
        self,
        d_k: int,
        *,
        norm: Callable[[int], nn.Module] = nn.RMSNorm,
        attention_function: AttentionFunction = fused_attention,
    ) -> None:
        check_size(d_k=d_k)
        check_factory(norm=norm)
        super().__init__(attention_function)
        self.d_k = d_k
        self.query_norm, self.key_norm = norm(d_k), norm(d_k)
        check_module(norm=self.query_norm)

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Normalise each vector. Shapes (B, H, L, d_k) and (B, H, S, d_k)."""
        query_norm, key_norm = self.query_norm, self.key_norm
        check_vectors("query", query, self.d_k, query_norm, leading=("B", "H", "L"))
        check_vectors("key", key, self.d_k, key_norm, leading=("B", "H", "S"))
        return query_norm(query), key_norm(key)
