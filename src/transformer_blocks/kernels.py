"""Kernels: what computes attention can be exchanged.

A layer that attends makes queries, keys and values, and leaves it to its *kernel* to mix them. The
two functions of the last chapter are kernels: they compute the same, one to be read and one to be
run. But another kernel may compute something else. Three ways lead there: any function that takes
the arguments of :class:`AttentionFunction`; a :class:`ExplicitAttention`, which finds the weights in
another way; and a :class:`PreparingKernel`, which changes queries and keys before another kernel
sees them. The last can be put around each other, and so do positions and normalisations get into
attention without a layer that knows of them.

Whatever a kernel does, it obeys the mask rule, and aligns ``causal`` to the bottom right.

Next chapter: :mod:`transformer_blocks.variants.additive`, the first way to compare, and the slower one.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from transformer_blocks._checks import check_callable, check_dropout
from transformer_blocks.attention import attention_weights, check_inputs, check_mask_fits
from transformer_blocks.fast.dropout import drop


class AttentionFunction(Protocol):
    """What a module asks of an attention function; write your own and pass it as ``attention_function=``.

    A kernel returns the mixed values, of shape (B, H, L, d_v), or a pair of them and the attention
    weights before dropout, of shape (B, H, L, S). It must obey the mask rule of
    :mod:`transformer_blocks.masks`, and ``causal`` aligned to the bottom right. One whose weights
    are not those of equation 1, and that does not return them, also has a method
    ``attention_weights``, with the arguments of :func:`attention_weights`, so that
    :func:`~transformer_blocks.record_attention` can see them.
    """

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Mix ``value``; see :func:`~transformer_blocks.scaled_dot_product_attention`."""
        ...


class ExplicitAttention(nn.Module):
    """A kernel that is told by its weights; a subclass says what they are.

    Example:
        >>> class Mean(ExplicitAttention):
        ...     "Looks at all that it may see alike."
        ...
        ...     def attention_weights(self, query, key, *, mask=None, causal=False, scale=None):
        ...         return attention_weights(0 * query, key, mask=mask, causal=causal)
        >>> value = torch.tensor([1.0, 2.0, 6.0]).view(1, 1, 3, 1)
        >>> mixed, weights = Mean()(value, value, value, causal=True)
        >>> mixed.flatten()
        tensor([1.0000, 1.5000, 3.0000])
    """

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Say how much of each value a query takes; for subclasses to tell.

        Returns:
            Each row sums to one, or to zero where a query may see nothing. Shape (B, H, L, S).
        """
        raise NotImplementedError

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mix ``value`` by these weights; the arguments are those of every kernel.

        Returns:
            The mixed values, shape (B, H, L, d_v), and the weights before dropout, (B, H, L, S).

        Raises:
            TypeError: If the dtypes differ, or the mask is not boolean.
            ValueError: If the shapes do not fit, or ``dropout`` is out of range.
        """
        check_inputs(query, key, value, causal=causal, scale=scale)
        check_dropout(dropout=dropout)
        if mask is not None:  # which the subclass may forget to check
            check_mask_fits(mask, query, key)
        weights = self.attention_weights(query, key, mask=mask, causal=causal, scale=scale)
        return drop(weights, dropout) @ value, weights


class PreparingKernel(nn.Module):
    """A kernel that does something to queries and keys, then leaves the rest to another.

    Args:
        attention_function: What computes attention with what :meth:`prepare` returns.

    Raises:
        TypeError: If ``attention_function`` is a class, or cannot be called.

    Example:
        >>> class Sharp(PreparingKernel):
        ...     "Asks ten times as loudly."
        ...
        ...     def prepare(self, query, key):
        ...         return 10 * query, key
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> sharp = Sharp(fused_attention)
        >>> a, b = sharp(query, key, value), fused_attention(10 * query, key, value)
        >>> torch.allclose(a, b)
        True
    """

    def __init__(self, attention_function: AttentionFunction) -> None:
        check_callable(attention_function=attention_function)
        super().__init__()
        self.attention_function = attention_function

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Change queries and keys; for subclasses to say how."""
        raise NotImplementedError

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Prepare, then mix; the arguments are those of every kernel."""
        check_inputs(query, key, value, causal=causal, scale=scale)
        query, key = self.prepare(query, key)
        return self.attention_function(
            query, key, value, mask=mask, causal=causal, dropout=dropout, scale=scale
        )

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Say how much of each value a query takes. Shape (B, H, L, S)."""
        check_inputs(query, key, key, causal=causal, scale=scale)
        query, key = self.prepare(query, key)
        return weights_of(self.attention_function)(
            query, key, mask=mask, causal=causal, scale=scale
        )


def weights_of(attention_function: AttentionFunction) -> Callable[..., Tensor]:
    """Find what computes a kernel's weights: its own method, or equation 1."""
    return getattr(attention_function, "attention_weights", attention_weights)
