r"""Attention as a layer: learned queries, keys and values, then several of them side by side.

Equation 1 has nothing to learn. What it compares is made by linear maps: :math:`W^Q` makes of each
vector a question, :math:`W^K` what it can be found by, :math:`W^V` what it hands over, and
:math:`W^O` turns the mixture into an answer. :class:`SingleHeadAttention` is that and no more.

The softmax of one head tends to settle on one thing at a time. :class:`MultiHeadAttention` splits
the width into H heads, each free to look somewhere else (section 3.2.2):

.. math::

   \mathrm{MultiHead}(Q, K, V) &= \mathrm{Concat}(head_1, \ldots, head_H) W^O \\
   head_i &= \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)

It costs no more than one wide head, since each has only d_model / H of the width.

Both serve all three uses of section 3.2.3. Self-attention passes one sequence three times.
Source-target attention, or cross-attention, asks with the translation and looks up keys and values
in the encoded source. The decoder's self-attention also hides the future.

Next chapter: :mod:`transformer_blocks.feed_forward`, the other half of every layer.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from transformer_blocks._checks import (
    check_callable,
    check_dropout,
    check_flag,
    check_instance,
    check_number,
    check_size,
    check_tensor,
    check_vectors,
    refuse,
)
from transformer_blocks.attention import (
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.cache import KeyValueCache, undo_on_error
from transformer_blocks.kernels import AttentionFunction, weights_of
from transformer_blocks.masks import check_mask


class SingleHeadAttention(nn.Module):
    """Attention with learned projections and one head: the whole idea, in four linear maps.

    Args:
        d_model: Width of what comes in and goes out; also that of the queries and keys.
        scale: What scores are multiplied by, 1 / sqrt(d_model) if not given. Pass ``scale=1.0``
            to see what goes wrong without it.
        bias: Whether the projections add a learned constant.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If ``d_model`` is not positive.

    Example:
        >>> x = 4 * torch.randn(1, 10, 256)
        >>> attention = SingleHeadAttention(256)
        >>> calm = attention.attention_weights(x, x).amax(-1).mean()
        >>> attention.scale = 1.0  # without 1 / sqrt(d) ...
        >>> wild = attention.attention_weights(x, x).amax(-1).mean()
        >>> bool(wild > 0.95 > calm)  # ... each query is left with a single key
        True
    """

    def __init__(self, d_model: int, *, scale: float | None = None, bias: bool = True) -> None:
        check_size(d_model=d_model)
        check_flag(bias=bias)
        if scale is not None:
            check_number(scale=scale)
        super().__init__()
        self.scale = scale
        self.query_projection = nn.Linear(d_model, d_model, bias=bias)
        self.key_projection = nn.Linear(d_model, d_model, bias=bias)
        self.value_projection = nn.Linear(d_model, d_model, bias=bias)
        self.output_projection = nn.Linear(d_model, d_model, bias=bias)
        initialise_projections(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Mix ``value`` vectors, weighting each by how well its ``key`` answers the ``query``.

        Args:
            query: What each position asks. Shape (B, L, d_model).
            key: What each position offers to match. Shape (B, S, d_model).
            value: What each position hands over. Shape (B, S, d_model).
            mask: Boolean, True hides a key. Shape (L, S) or broadcastable to (B, 1, L, S).
            causal: Also hide later positions.

        Returns:
            One mixed vector per query. Shape (B, L, d_model).

        Raises:
            TypeError: If an input is no tensor or differs from the weights in dtype, ``mask`` is
                not boolean, or ``causal`` neither True nor False.
            ValueError: If the shapes do not fit.
        """
        _check_inputs(self, ("query", query), ("key", key), ("value", value))
        mixed, _ = scaled_dot_product_attention(
            self.query_projection(query).unsqueeze(1),  # (B, 1, L, d_model): one head
            self.key_projection(key).unsqueeze(1),
            self.value_projection(value).unsqueeze(1),
            mask=mask,
            causal=causal,
            scale=self.scale,
        )
        return self.output_projection(mixed.squeeze(1))

    def attention_weights(
        self, query: Tensor, key: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Compute the weights that :meth:`forward` mixes with. Shape (B, 1, L, S)."""
        _check_inputs(self, ("query", query), ("key", key))
        return attention_weights(
            self.query_projection(query).unsqueeze(1),
            self.key_projection(key).unsqueeze(1),
            mask=mask,
            causal=causal,
            scale=self.scale,
        )


class MultiHeadAttention(nn.Module):
    """Attention with several heads, each of which may look somewhere else.

    Args:
        d_model: Width of the queries that come in and of what goes out.
        num_heads: H; divides d_model.
        key_width: Width of the keys that come in, if other than d_model.
        value_width: Width of the values that come in, if other than d_model.
        bias: Whether the projections add a learned constant; the paper's do not.
        dropout: Probability of dropping an attention weight while training. Off by default: the
            paper drops none, and it costs the fused kernel its speed and its small memory.
        attention_function: What computes attention; :func:`~transformer_blocks.scaled_dot_product_attention`
            is the readable one, :class:`~transformer_blocks.AdditiveAttention` the older one.

    Raises:
        TypeError: If an argument is of the wrong kind: a size no whole number, ``attention_function`` a class.
        ValueError: If a size is not positive, ``num_heads`` does not divide ``d_model``, or
            ``dropout`` is out of range.

    Example:
        >>> attention = MultiHeadAttention(16, num_heads=4)
        >>> x = torch.randn(2, 5, 16)  # two sentences of five tokens
        >>> before = attention(x, x, x, causal=True)
        >>> x[:, -1] += 1.0  # rewrite the last token ...
        >>> after = attention(x, x, x, causal=True)
        >>> torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)  # ... nobody earlier notices
        True
        >>> memory = torch.randn(2, 7, 16)  # seven other tokens to look up
        >>> attention(x, memory, memory).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attention_function: AttentionFunction = fused_attention,
    ) -> None:
        key_width = d_model if key_width is None else key_width
        value_width = d_model if value_width is None else value_width
        check_size(
            d_model=d_model, num_heads=num_heads, key_width=key_width, value_width=value_width
        )
        check_dropout(dropout=dropout)
        check_callable(attention_function=attention_function)
        check_flag(bias=bias)
        if d_model % num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads, "
                f"got d_model={d_model} and num_heads={num_heads}"
            )
        super().__init__()
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.dropout = dropout
        self.attention_function = attention_function
        self._weights_hooks: OrderedDict[int, Callable[[Tensor], None]] = OrderedDict()
        self.query_projection = nn.Linear(d_model, d_model, bias=bias)
        self.key_projection = nn.Linear(key_width, d_model, bias=bias)
        self.value_projection = nn.Linear(value_width, d_model, bias=bias)
        self.output_projection = nn.Linear(d_model, d_model, bias=bias)
        initialise_projections(self)

    @undo_on_error
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Mix ``value`` vectors, weighting each by how well its ``key`` answers the ``query``.

        Args:
            query: What each position asks. Shape (B, L, d_model).
            key: What each position offers to match. Shape (B, S, key_width).
            value: What each position hands over. Shape (B, S, value_width).
            mask: Boolean, True hides a key. Shape (L, S) or broadcastable to (B, H, L, S).
            causal: Also hide later positions, so that a word cannot read its own future.
            cache: For decoding, see :mod:`transformer_blocks.cache`; skip it at first reading. Keys
                and values of earlier steps. The new ones are added to it, and all
                of them are looked at; S counts both. Without ``key`` and ``value``, what it holds
                is looked at and nothing added.

        Returns:
            One mixed vector per query. Shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If an input is no tensor or differs from the weights in dtype, ``mask`` is
                not boolean, or ``causal`` neither True nor False.
            ValueError: If the shapes do not fit, or there is nothing to look at.
        """
        if cache is not None:
            check_instance(KeyValueCache, cache=cache)
        if key is not None and value is not None:
            _check_inputs(self, ("query", query), ("key", key), ("value", value))
            self._check_options(query, key, mask=mask, causal=causal, cache=cache)
            queries, keys, values = self._project_all(query, key, value)
            if cache is not None:
                keys, values = cache.append(keys, values)
        elif cache is not None and key is None and value is None:
            _check_inputs(self, ("query", query))
            self._check_options(query, None, mask=mask, causal=causal, cache=cache)
            queries = self._split_heads(self.query_projection(query))
            keys, values = cache.read()
        else:
            raise ValueError("key and value must be given, or a cache that holds some")
        mixed = self.attend(queries, keys, values, mask=mask, causal=causal)  # (B, H, L, d_k)
        joined = mixed.transpose(1, 2).flatten(2)  # (B, L, d_model)
        return self.output_projection(joined)

    def extra_repr(self) -> str:
        """Show the heads when the module is printed."""
        return f"num_heads={self.num_heads}"

    def project(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Make what is looked up: the keys and values of all heads, which a cache can keep.

        Args:
            key: Shape (B, S, key_width).
            value: Shape (B, S, value_width).

        Returns:
            Keys and values, each of shape (B, H, S, d_k).

        Raises:
            TypeError: If one is no tensor, or differs from the weights in dtype.
            ValueError: If one has another shape.
        """
        _check_inputs(self, ("key", key), ("value", value))
        return self._split_heads(self.key_projection(key)), self._split_heads(
            self.value_projection(value)
        )

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Run the kernel on what is projected.

        Args:
            queries: Shape (B, H, L, d_k).
            keys: Shape (B, H, S, d_k).
            values: Shape (B, H, S, d_k).
            mask: As in :meth:`forward`.
            causal: As in :meth:`forward`.

        Returns:
            The mixture of each head. Shape (B, H, L, d_k).
        """
        dropout = self.dropout if self.training else 0.0
        keys, values = self._share(keys), self._share(values)
        mixed = self.attention_function(
            queries, keys, values, mask=mask, causal=causal, dropout=dropout
        )
        mixed, weights = mixed if isinstance(mixed, tuple) and len(mixed) == 2 else (mixed, None)
        expected = *queries.shape[:3], values.shape[3]
        if not isinstance(mixed, Tensor):
            refuse(
                "attention_function",
                "a function that returns an output, or a pair of it and weights",
                mixed,
            )
        if mixed.shape != expected:
            raise ValueError(
                f"kernel must return an output of shape (B, H, L, d_k) = {expected}, "
                f"got {tuple(mixed.shape)}"
            )
        if weights is not None:
            check_tensor("weights of the kernel", weights)
            if weights.shape != (*queries.shape[:3], keys.shape[2]):
                raise ValueError(
                    "weights of the kernel must have shape (B, H, L, S) = "
                    f"{(*queries.shape[:3], keys.shape[2])}, got {tuple(weights.shape)}"
                )
            for hook in self._weights_hooks.values():
                hook(weights)
        return mixed

    def register_weights_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Have a function called with the attention weights, wherever the kernel returns them.

        Args:
            hook: Called in each :meth:`forward` with the second part of what the kernel returns,
                of shape (B, H, L, S). A kernel that returns its output alone calls nothing.

        Returns:
            A handle whose ``remove()`` ends it.

        Raises:
            TypeError: If ``hook`` cannot be called.
        """
        check_callable(hook=hook)
        handle = RemovableHandle(self._weights_hooks)
        self._weights_hooks[handle.id] = hook
        return handle

    def _project_all(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        return (
            self._split_heads(self.query_projection(query)),
            self._split_heads(self.key_projection(key)),
            self._split_heads(self.value_projection(value)),
        )

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Compute the weights that :meth:`forward` mixes with, before dropout.

        To see those of a whole model, use :func:`~transformer_blocks.record_attention`. A cache is
        read and left as it is.

        Returns:
            Each row sums to one, or to zero where a query may see nothing. Shape (B, H, L, S).
        """
        _check_inputs(self, ("query", query))
        if cache is not None:
            check_instance(KeyValueCache, cache=cache)
        keys = [] if cache is None or not cache.length else [cache.read()[0]]
        if key is not None:
            _check_inputs(self, ("key", key))
            keys.append(self._split_heads(self.key_projection(key)))
        if not keys:
            raise ValueError("key must be given, or a cache that holds some")
        self._check_options(query, key, mask=mask, causal=causal, cache=cache)
        return weights_of(self.attention_function)(
            self._split_heads(self.query_projection(query)),
            self._share(torch.cat(keys, dim=2)),  # (B, H, S, d_k)
            mask=mask,
            causal=causal,
        )

    def _check_options(
        self,
        query: Tensor,
        key: Tensor | None,
        *,
        mask: Tensor | None,
        causal: bool,
        cache: KeyValueCache | None,
    ) -> None:
        """Raise unless mask and flag are what every kernel takes, before anything is computed."""
        check_flag(causal=causal)
        if mask is not None:
            check_mask(
                mask,
                batch=query.shape[0],
                heads=self.num_heads,
                queries=query.shape[1],
                keys=(0 if cache is None else cache.length) + (0 if key is None else key.shape[1]),
                device=query.device,
            )

    def _share(self, x: Tensor) -> Tensor:
        """Give every head its keys or values: here each has its own."""
        return x

    def _split_heads(self, x: Tensor) -> Tensor:
        """Cut the width into heads: (B, L, d_model) to (B, H, L, d_k)."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)


def initialise_projections(layer: "SingleHeadAttention | MultiHeadAttention") -> None:
    """Give the projections Xavier's uniform weights and no bias."""
    for projection in (
        layer.query_projection,
        layer.key_projection,
        layer.value_projection,
        layer.output_projection,
    ):
        nn.init.xavier_uniform_(projection.weight)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)


def _check_inputs(
    layer: SingleHeadAttention | MultiHeadAttention, *inputs: tuple[str, Tensor]
) -> None:
    """Raise unless each input is what its projection takes."""
    for name, x in inputs:
        projection: Any = layer._modules[f"{name}_projection"]  # quicker than by attribute
        check_vectors(name, x, getattr(projection, "in_features", None), projection)
