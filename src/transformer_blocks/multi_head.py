r"""Multi-head attention: attention with learned projections and several heads.

Equation 1 has no parameters. An attention layer learns four linear projections: :math:`W^Q`,
:math:`W^K` and :math:`W^V` project the input vectors to queries, keys and values, and :math:`W^O`
projects the output. :class:`SingleHeadAttention` computes just this.

The output of a single head is one average over all positions that it attends to.
:class:`MultiHeadAttention` splits the projected vectors into H heads, each of which can attend to
different positions (section 3.2.2):

.. math::

   \mathrm{MultiHead}(Q, K, V) &= \mathrm{Concat}(head_1, \ldots, head_H) W^O \\
   head_i &= \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)

Each head has only d_k = d_model / H dimensions, so the total cost is similar to that of one head
with all d_model dimensions. Some later models have heads of another size. The paper's projections
have no biases; here they have biases unless ``bias=False``, as in ``torch.nn.MultiheadAttention``.

Both layers serve the three uses of section 3.2.3. In self-attention, queries, keys and values are
projections of the same sequence. In cross-attention, the queries come from the decoder, the keys
and values from the encoder's output. The decoder's self-attention also masks future positions.

Next: :mod:`transformer_blocks.feed_forward`, the sublayer that follows attention.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer_blocks._checks import (
    check_callable,
    check_dropout,
    check_flag,
    check_instance,
    check_modules,
    check_number,
    check_size,
    check_tensor,
    check_vectors,
    names_arguments,
    raise_type_error,
)
from transformer_blocks.attention import (
    AttentionFunction,
    attention_weights,
    scaled_dot_product_attention,
    weights_of,
)
from transformer_blocks.cache import KeyValueCache, undo_on_error
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.masks import check_mask


class SingleHeadAttention(nn.Module):
    """Attention with learned projections and one head.

    Args:
        d_model: Size of the input and output vectors, and of the queries and keys.
        scale: Factor of the scores; 1 / sqrt(d_model) if not given. Pass ``scale=1.0`` to see what
            goes wrong without it.
        bias: Whether the projections have a bias; the paper's have none.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If ``d_model`` is not positive.

    Example:
        >>> x = 4 * torch.randn(1, 10, 256)
        >>> attention = SingleHeadAttention(256)
        >>> scaled = attention.attention_weights(x, x).amax(-1).mean()
        >>> attention.scale = 1.0  # without 1 / sqrt(d_model) ...
        >>> unscaled = attention.attention_weights(x, x).amax(-1).mean()
        >>> bool(unscaled > 0.95 > scaled)  # ... the softmax saturates: one key gets all the weight
        True
    """

    attention_function = staticmethod(scaled_dot_product_attention)

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

    @names_arguments
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Compute attention from ``query`` to ``key`` and ``value``.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, d_model).
            value: Value sequence, of shape (B, S, d_model).
            mask: Boolean mask; True hides a key from a query. Shape (L, S), or broadcastable to
                (B, 1, L, S).
            causal: Also mask future positions.

        Returns:
            One output vector per query, of shape (B, L, d_model).

        Raises:
            TypeError: If an input is not a tensor or differs from the weights in dtype, ``mask`` is
                not boolean, or ``causal`` is neither True nor False.
            ValueError: If the shapes do not fit.
        """
        _check_vectors(self, "query", query)
        _check_vectors(self, "key", key)
        _check_vectors(self, "value", value)
        output, _ = self.attention_function(
            self.query_projection(query).unsqueeze(1),  # (B, 1, L, d_model): one head
            self.key_projection(key).unsqueeze(1),
            self.value_projection(value).unsqueeze(1),
            mask=mask,
            causal=causal,
            scale=self.scale,
        )
        return self.output_projection(output.squeeze(1))

    def attention_weights(
        self, query: Tensor, key: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Compute the attention weights of :meth:`forward`, of shape (B, 1, L, S).

        The arguments are those of :meth:`forward`.
        """
        _check_vectors(self, "query", query)
        _check_vectors(self, "key", key)
        return attention_weights(
            self.query_projection(query).unsqueeze(1),
            self.key_projection(key).unsqueeze(1),
            mask=mask,
            causal=causal,
            scale=self.scale,
        )


class QueryKeyTransform(nn.Module):
    """Base class of transforms of queries and keys, which returns both unchanged.

    :class:`MultiHeadAttention` applies its transforms before attention, and to keys before they
    enter the cache: each key is transformed once, not at every decoding step. Examples are
    :class:`~transformer_blocks.RotaryPositionalEncoding` and
    :class:`~transformer_blocks.QueryKeyNorm`.

    In a batch of prompts that are padded at the left, positions are those in the padded sequence.
    The scores should therefore depend on the difference of two positions alone, or on no position.

    Example:
        >>> class Sharpen(QueryKeyTransform):
        ...     "Multiplies all scores by ten."
        ...
        ...     def transform_queries(self, queries, *, start):
        ...         return 10 * queries
        >>> attention = MultiHeadAttention(16, num_heads=4, transforms=[Sharpen()])
        >>> x = torch.randn(1, 5, 16)
        >>> sharp = attention.attention_weights(x, x).amax(-1).mean()
        >>> plain = MultiHeadAttention(16, num_heads=4)
        >>> _ = plain.load_state_dict(attention.state_dict())
        >>> bool(sharp > plain.attention_weights(x, x).amax(-1).mean())
        True
    """

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        """Transform the queries of all heads.

        Args:
            queries: Query vectors, of shape (B, H, L, d_k).
            start: Position of the first query, counted from 0. The last query has the position of
                the last key.

        Returns:
            The transformed queries, of the same shape.
        """
        return queries

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        """Transform the keys of all heads.

        Args:
            keys: Key vectors, of shape (B, H, S, d_k), or of fewer heads.
            start: Position of the first key, counted from 0, which is the number of cached keys.

        Returns:
            The transformed keys, of the same shape.
        """
        return keys


class MultiHeadAttention(nn.Module):
    """Multi-head attention: several heads, each of which can attend to different positions.

    Args:
        d_model: Size of the query and output vectors.
        num_heads: Number of heads H.
        d_k: Size of the queries, keys and values of one head. If not given, it is d_model / H, and
            H must divide ``d_model``.
        key_width: Size of the key vectors that :meth:`forward` receives; ``d_model`` if not given.
        value_width: Size of the value vectors that :meth:`forward` receives; ``d_model`` if not
            given.
        bias: Whether the projections have a bias; those of the paper have none.
        dropout: Probability of setting an attention weight to zero in training mode. 0 by default:
            the paper has no dropout here, and with it the fused kernel loses its speed and its low
            memory use.
        attention_function: An :class:`~transformer_blocks.AttentionFunction`, which computes
            attention from the queries, keys and values of all heads; for example
            :func:`~transformer_blocks.scaled_dot_product_attention`, the explicit implementation,
            or an :class:`~transformer_blocks.AdditiveAttention`.
        transforms: Transforms of queries and keys, applied in this order; for example a
            :class:`~transformer_blocks.RotaryPositionalEncoding`. Pass new ones to every layer.

    Raises:
        TypeError: If an argument is of the wrong type, for example a size that is not an integer,
            or a class as ``attention_function``.
        ValueError: If a size is not positive, ``d_k`` is not given and ``num_heads`` does not
            divide ``d_model``, or ``dropout`` is out of range.

    Example:
        >>> attention = MultiHeadAttention(16, num_heads=4)
        >>> x = torch.randn(2, 5, 16)  # a batch of two sequences of five tokens
        >>> before = attention(x, x, x, causal=True)
        >>> x[:, -1] += 1.0  # change the last token ...
        >>> after = attention(x, x, x, causal=True)
        >>> torch.allclose(
        ...     before[:, :-1], after[:, :-1], atol=1e-6
        ... )  # ... no earlier output changes
        True
        >>> memory = torch.randn(2, 7, 16)  # cross-attention to seven other tokens
        >>> attention(x, memory, memory).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_k: int | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attention_function: AttentionFunction = fused_attention,
        transforms: Sequence[QueryKeyTransform] = (),
    ) -> None:
        key_width = d_model if key_width is None else key_width
        value_width = d_model if value_width is None else value_width
        check_size(
            d_model=d_model, num_heads=num_heads, key_width=key_width, value_width=value_width
        )
        check_dropout(dropout=dropout)
        check_callable(attention_function=attention_function)
        check_flag(bias=bias)
        if d_k is not None:
            check_size(d_k=d_k)
        elif d_model % num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads, "
                f"got d_model={d_model} and num_heads={num_heads}"
            )
        d_k = d_model // num_heads if d_k is None else d_k
        listed = check_modules("transforms", transforms)
        for number, transform in enumerate(listed):
            check_instance(QueryKeyTransform, **{f"transforms[{number}]": transform})
        super().__init__()
        self.num_heads = num_heads
        self.d_k = d_k
        self.dropout = dropout
        self.attention_function = attention_function
        self.query_projection = nn.Linear(d_model, num_heads * d_k, bias=bias)
        self.key_projection = nn.Linear(key_width, num_heads * d_k, bias=bias)
        self.value_projection = nn.Linear(value_width, num_heads * d_k, bias=bias)
        self.output_projection = nn.Linear(num_heads * d_k, d_model, bias=bias)
        self.transforms = nn.ModuleList(listed)
        initialise_projections(self)

    @names_arguments
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
        """Compute multi-head attention from ``query`` to ``key`` and ``value``.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, key_width); for self-attention, ``query`` again.
            value: Value sequence, of shape (B, S, value_width).
            mask: Boolean mask; True hides a key from a query. Shape (L, S), or broadcastable to
                (B, H, L, S).
            causal: Also mask future positions, so that no position attends to a later one.
            cache: Keys and values of earlier decoding steps (:mod:`transformer_blocks.cache`; skip
                it at first reading). The new keys and values are appended, and the queries attend
                to all of them; in the shape of ``mask``, S counts all of them. ``key`` and
                ``value`` may be left out with a cache only; nothing is appended then.

        Returns:
            One output vector per query, of shape (B, L, d_model); one tensor, not a pair of output
            and weights, as ``torch.nn.MultiheadAttention`` returns it.

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If an input is not a tensor or differs from the weights in dtype, ``mask`` is
                not boolean, or ``causal`` is neither True nor False.
            ValueError: If the shapes do not fit, or there are no keys to attend to.
        """
        self._check_inputs(query, key, value, mask=mask, causal=causal, cache=cache)
        queries, keys, values = self._project_heads(query, key, value)  # (B, H, L, d_k)
        queries, keys, values = self._transform_and_cache(queries, keys, values, cache)
        heads = self.attend(queries, keys, values, mask=mask, causal=causal)  # (B, H, L, d_k)
        return self.output_projection(self._merge_heads(heads))  # (B, L, d_model)

    def extra_repr(self) -> str:
        """Show the number of heads when the module is printed."""
        return f"num_heads={self.num_heads}"

    def project(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Project to the keys and values of all heads, in the form in which a cache stores them.

        Args:
            key: Key sequence, of shape (B, S, key_width).
            value: Value sequence, of shape (B, S, value_width).

        Returns:
            Transformed keys, and values, each of shape (B, H, S, d_k).

        Raises:
            TypeError: If an input is not a tensor or differs from the weights in dtype.
            ValueError: If an input has another shape.
        """
        _check_vectors(self, "key", key)
        _check_vectors(self, "value", value)
        keys = self._split_heads(self.key_projection(key))
        return self._transform_keys(keys, 0), self._split_heads(self.value_projection(value))

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Call the attention function with projected and transformed queries, keys and values.

        Args:
            queries: Query vectors, of shape (B, H, L, d_k).
            keys: Key vectors, of shape (B, H, S, d_k).
            values: Value vectors, of shape (B, H, S, d_k).
            mask: Boolean mask; True hides a key from a query. Shape (L, S), or broadcastable to
                (B, H, L, S).
            causal: Also mask future positions.

        Returns:
            The output of each head, of shape (B, H, L, d_k).
        """
        dropout = self.dropout if self.training else 0.0
        output: Any = self.attention_function(
            queries, keys, values, mask=mask, causal=causal, dropout=dropout
        )
        weights = None
        if isinstance(output, tuple) and len(output) == 2:
            output, weights = output
        _check_output(output, (*queries.shape[:3], values.shape[3]))
        if weights is not None:
            _check_weights(weights, (*queries.shape[:3], keys.shape[2]))
        return output

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Compute the attention weights of :meth:`forward`, before dropout.

        The arguments are those of :meth:`forward`; a cache is read and not changed. An attention
        function without a method ``attention_weights`` is taken to compute equation 1. To record
        the weights of a whole model, use :func:`~transformer_blocks.record_attention`, which
        compares them with the output.

        Returns:
            Attention weights, of shape (B, H, L, S). Those of a query sum to one, or are all zero
            if every key is masked.
        """
        self._check_inputs(query, key, mask=mask, causal=causal, cache=cache)
        parts = [cache.read()[0]] if cache is not None and cache.length else []
        if key is not None:
            new = self._split_heads(self.key_projection(key))
            parts.append(self._transform_keys(new, 0 if cache is None else cache.length))
        if not parts:
            raise ValueError("key must be given, or a cache that holds some")
        keys = torch.cat(parts, dim=2)  # (B, H, S, d_k)
        queries = self._split_heads(self.query_projection(query))
        queries = self._transform_queries(queries, keys.shape[2] - queries.shape[2])
        return weights_of(self.attention_function)(queries, keys, mask=mask, causal=causal)

    def _project_heads(
        self, query: Tensor, key: Tensor | None, value: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Project to the queries of all heads, and to the new keys and values if there are any."""
        queries = self._split_heads(self.query_projection(query))
        if key is None or value is None:
            return queries, None, None
        keys = self._split_heads(self.key_projection(key))
        return queries, keys, self._split_heads(self.value_projection(value))

    def _transform_and_cache(
        self,
        queries: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the transforms, append new keys and values to the cache, and read all of it."""
        if keys is None or values is None:
            keys, values = cast(KeyValueCache, cache).read()
        elif cache is None:
            keys = self._transform_keys(keys, 0)
        else:
            keys, values = cache.append(self._transform_keys(keys, cache.length), values)
        return self._transform_queries(queries, keys.shape[2] - queries.shape[2]), keys, values

    def _transform_queries(self, queries: Tensor, start: int) -> Tensor:
        transforms: Any = self._modules["transforms"]  # faster than the attribute
        for transform in transforms:
            queries = transform.transform_queries(queries, start=start)
        return queries

    def _transform_keys(self, keys: Tensor, start: int) -> Tensor:
        transforms: Any = self._modules["transforms"]
        for transform in transforms:
            keys = transform.transform_keys(keys, start=start)
        return keys

    def _split_heads(self, x: Tensor) -> Tensor:
        """Split each vector into heads: (B, L, H * d_k) to (B, H, L, d_k)."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def _merge_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the heads: (B, H, L, d_k) to (B, L, H * d_k)."""
        return heads.transpose(1, 2).flatten(2)

    def _check_inputs(
        self,
        query: Tensor,
        key: Tensor | None,
        *value: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        cache: KeyValueCache | None,
    ) -> None:
        """Check all arguments of a call, before anything is computed or appended to the cache."""
        if cache is not None:
            check_instance(KeyValueCache, cache=cache)
        is_missing = key is None
        if (is_missing and cache is None) or (value and (value[0] is None) != is_missing):
            names = "key and value" if value else "key"
            raise ValueError(f"{names} must be given, or a cache that holds some")
        _check_vectors(self, "query", query)
        if key is not None:
            _check_vectors(self, "key", key)
        if value and value[0] is not None:
            _check_vectors(self, "value", value[0])
        check_flag(causal=causal)
        if mask is not None:
            cached, new = 0 if cache is None else cache.length, 0 if key is None else key.shape[1]
            check_mask(
                mask,
                batch=query.shape[0],
                heads=self.num_heads,
                queries=query.shape[1],
                keys=cached + new,
                device=query.device,
            )


def initialise_projections(layer: SingleHeadAttention | MultiHeadAttention) -> None:
    """Initialise the projections with Xavier uniform weights and zero biases."""
    for projection in (
        layer.query_projection,
        layer.key_projection,
        layer.value_projection,
        layer.output_projection,
    ):
        nn.init.xavier_uniform_(projection.weight)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)


def _check_vectors(layer: SingleHeadAttention | MultiHeadAttention, name: str, x: Tensor) -> None:
    """Check that an input fits its projection."""
    projection: Any = layer._modules[f"{name}_projection"]  # faster than the attribute
    check_vectors(name, x, getattr(projection, "in_features", None), projection)


def _check_output(output: object, shape: tuple[int, ...]) -> None:
    """Check the output of an attention function."""
    if not isinstance(output, Tensor):
        rule = "a function that returns an output, or an output and its attention weights"
        raise_type_error("attention_function", rule, output)
    if output.shape != shape:
        raise ValueError(
            f"attention_function must return an output of shape (B, H, L, d_k) = {shape}, "
            f"got {tuple(output.shape)}"
        )


def _check_weights(weights: Tensor, shape: tuple[int, ...]) -> None:
    """Check the attention weights that an attention function returns with its output."""
    check_tensor("weights of attention_function", weights)
    if weights.shape != shape:
        raise ValueError(
            f"weights of attention_function must have shape (B, H, L, S) = {shape}, "
            f"got {tuple(weights.shape)}"
        )
