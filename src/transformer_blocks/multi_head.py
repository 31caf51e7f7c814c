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
with all d_model dimensions. The matrices :math:`W_i^Q` of all heads are stored side by side, as the
weight of one linear layer, whose output is then split into heads; so are those of keys and values.
Some later models have heads of another size. The paper's projections have no biases; here they have
biases unless ``bias=False``, as in ``torch.nn.MultiheadAttention``.

**Grouped-query attention: several query heads share one head of keys and values.** Memory bandwidth
often limits autoregressive decoding: each step reads the weights once for the whole batch, and the
cached keys and values of every sequence. With many or long sequences, the cache dominates. In
grouped-query attention (GQA, Ainslie et al. 2023, https://arxiv.org/abs/2305.13245, section 2.2) it
is smaller: the H query heads form G groups, and each group has one key head and one value head.
With heads and groups numbered from 1:

.. math:: head_i = \mathrm{Attention}(Q W_i^Q,\ K W_{g(i)}^K,\ V W_{g(i)}^V),
          \qquad g(i) = \lceil i\,G / H \rceil

.. code-block:: text

   multi-head attention      grouped-query attention      multi-query attention
   H = 4, G = 4              H = 4, G = 2                 H = 4, G = 1

   queries   q q q q         queries   q q q q            queries   q q q q
             | | | |                   \ / \ /                      \ \ / /
   keys,     k k k k         keys,      k   k             keys,        k
   values    v v v v         values     v   v             values       v

The cache is smaller by a factor of H / G. G = H is multi-head attention, G = 1 is multi-query
attention ("Fast Transformer Decoding", Shazeer 2019, https://arxiv.org/abs/1911.02150). Fewer key
and value heads can reduce quality. Ainslie et al. report that models with several groups, trained
further from multi-head models, come close to the quality of multi-head attention.

Both layers serve the three uses of section 3.2.3. In self-attention, queries, keys and values are
projections of the same sequence. In cross-attention, the queries come from the decoder, the keys
and values from the encoder's output. The decoder's self-attention also masks future positions.

Next: :mod:`transformer_blocks.feed_forward`, the sublayer that follows attention.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from torch import Tensor, nn

from transformer_blocks._contracts import (
    DropoutProbability,
    Function,
    Size,
    Vectors,
    check_mask,
    checked,
    unchecked,
)
from transformer_blocks.attention import (
    AttentionFunction,
    attention_weights,
    call_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.cache import KeyValueCache
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.feed_forward import initialise

_fused_attention = unchecked(fused_attention)  # skips the second check: forward has checked inputs

QueryInput = Annotated[Tensor, Vectors("B L d_model")]
KeyInput = Annotated[Tensor, Vectors("B S key_width")]
ValueInput = Annotated[Tensor, Vectors("B S value_width")]


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
        >>> import torch
        >>> from transformer_blocks import SingleHeadAttention
        >>> x = 4 * torch.randn(1, 10, 256)
        >>> attention = SingleHeadAttention(256)
        >>> scaled = attention.attention_weights(x, x).amax(-1).mean()
        >>> attention.scale = 1.0  # without 1 / sqrt(d_model) ...
        >>> unscaled = attention.attention_weights(x, x).amax(-1).mean()
        >>> bool(unscaled > 0.95 > scaled)  # ... the softmax saturates: one key gets all the weight
        True
    """

    # An attribute, not an argument: `record_attention` wraps it.
    attention_function = staticmethod(scaled_dot_product_attention)

    @checked
    def __init__(self, d_model: Size, *, scale: float | None = None, bias: bool = True) -> None:
        super().__init__()
        # The sizes that the shapes of QueryInput, KeyInput and ValueInput name.
        self.d_model = self.key_width = self.value_width = d_model
        self.scale = scale
        self.query_projection = nn.Linear(d_model, d_model, bias=bias)
        self.key_projection = nn.Linear(d_model, d_model, bias=bias)
        self.value_projection = nn.Linear(d_model, d_model, bias=bias)
        self.output_projection = nn.Linear(d_model, d_model, bias=bias)
        initialise(self)

    @checked
    def forward(
        self,
        query: QueryInput,
        key: KeyInput,
        value: ValueInput,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Compute attention from ``query`` to ``key`` and ``value``.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, d_model).
            value: Value sequence, of shape (B, S, d_model).
            mask: Boolean mask; True hides a key from a query. Shape (L, S) or
                (B|1, 1, L|1, S).
            causal: Also mask future positions.

        Returns:
            One output vector per query, of shape (B, L, d_model).

        Raises:
            TypeError: If an input is not a floating-point tensor, ``mask`` is not boolean, or
                ``causal`` is neither True nor False.
            ValueError: If the shapes do not fit.
        """
        queries = self.query_projection(query).unsqueeze(1)  # (B, 1, L, d_model): one head
        keys = self.key_projection(key).unsqueeze(1)
        values = self.value_projection(value).unsqueeze(1)
        output, _ = self.attention_function(
            queries, keys, values, mask=mask, causal=causal, scale=self.scale
        )
        return self.output_projection(output.squeeze(1))

    @checked
    def attention_weights(
        self, query: QueryInput, key: KeyInput, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Compute the attention weights of :meth:`forward`, of shape (B, 1, L, S).

        It takes the arguments of :meth:`forward` except ``value``.
        """
        queries = self.query_projection(query).unsqueeze(1)
        keys = self.key_projection(key).unsqueeze(1)
        return attention_weights(queries, keys, mask=mask, causal=causal, scale=self.scale)


class QueryKeyTransform(nn.Module):
    """Base class of transforms of queries and keys, which returns both unchanged.

    :class:`MultiHeadAttention` applies its transforms before attention, and to keys before they
    enter the cache: each key is transformed once, not at every decoding step. Examples are
    :class:`~transformer_blocks.RotaryPositionalEncoding` and
    :class:`~transformer_blocks.QueryKeyNorm`.

    Padding at the left of a prompt shifts the positions of all its tokens by the same number. It
    must not change the scores: a transform uses no positions, or changes the scores by their
    differences only, as RoPE does. One that uses positions sets ``uses_positions = True``; a
    decoder layer then refuses it for cross-attention.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, QueryKeyTransform
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
            start: Position of the first query, S - L, so that the last query has the position of
                the last key.

        Returns:
            The transformed queries, of the same shape.
        """
        return queries

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        """Transform the keys of all heads.

        Args:
            keys: Key vectors, of shape (B, H, S, d_k), or of fewer heads.
            start: Position of the first key: the number of keys in the cache, 0 without one.

        Returns:
            The transformed keys, of the same shape.
        """
        return keys


class MultiHeadAttention(nn.Module):
    """Multi-head attention: several heads, each of which can attend to different positions.

    Args:
        d_model: Size of the query and output vectors.
        num_heads: Number of heads H.
        num_key_value_heads: Number of key and value heads G, which divides ``num_heads``; H if not
            given. With fewer, H / G consecutive query heads share a head of keys and values.
        d_k: Size of the queries, keys and values of one head. If not given, it is d_model / H, and
            H must divide ``d_model``.
        key_width: Size of the key vectors that :meth:`forward` receives; ``d_model`` if not given.
        value_width: Size of the value vectors that :meth:`forward` receives; ``d_model`` if not
            given.
        bias: Whether the projections have a bias; those of the paper have none.
        dropout: Probability of setting an attention weight to zero in training mode. 0 by default:
            the paper has no dropout here, and with it the fused kernel loses its speed and its low
            memory use on a CPU.
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
            divide ``d_model``, ``num_key_value_heads`` does not divide ``num_heads``, or
            ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention
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
        >>> grouped = MultiHeadAttention(16, num_heads=4, num_key_value_heads=2)
        >>> keys, values = grouped.project(x, x)
        >>> keys.shape  # what a cache holds: two heads, not four
        torch.Size([2, 2, 5, 4])
    """

    @checked
    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        *,
        num_key_value_heads: Size | None = None,
        d_k: Size | None = None,
        key_width: Size | None = None,
        value_width: Size | None = None,
        bias: bool = True,
        dropout: DropoutProbability = 0.0,
        attention_function: Function[AttentionFunction] = fused_attention,
        transforms: Sequence[QueryKeyTransform] = (),
    ) -> None:
        groups = num_key_value_heads or num_heads
        _check_divides("num_heads", num_heads, "num_key_value_heads", groups)
        if d_k is None:
            _check_divides("d_model", d_model, "num_heads", num_heads)
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.key_width, self.value_width = key_width or d_model, value_width or d_model
        self.num_key_value_heads, self.d_k = groups, d_k or d_model // num_heads
        self.dropout, self.attention_function = dropout, attention_function
        self.query_projection = nn.Linear(d_model, num_heads * self.d_k, bias=bias)
        self.key_projection = nn.Linear(self.key_width, groups * self.d_k, bias=bias)
        self.value_projection = nn.Linear(self.value_width, groups * self.d_k, bias=bias)
        self.output_projection = nn.Linear(num_heads * self.d_k, d_model, bias=bias)
        self.transforms: Any = nn.ModuleList(transforms)
        initialise(self)

    @checked
    def forward(
        self,
        query: QueryInput,
        key: KeyInput | None = None,
        value: ValueInput | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Compute multi-head attention from ``query`` to ``key`` and ``value``.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, key_width); for self-attention, ``query`` again. Left
                out with ``value`` if ``cache`` holds all keys and values.
            value: Value sequence, of shape (B, S, value_width).
            mask: Boolean mask; True hides a key from a query. Shape (L, S) or
                (B|1, H|1, L|1, S).
            causal: Also mask future positions, so that no position attends to a later one.
            cache: Projected keys and values (:mod:`transformer_blocks.cache`; skip it at first
                reading). The S in the shape of ``mask`` then counts all keys, cached and new.

                - Self-attention: pass ``key`` and ``value``. They are appended to those of earlier
                  decoding steps, and the queries attend to all.
                - Cross-attention: leave them out. The cache holds what :meth:`project` returned for
                  the memory, and is only read.

        Returns:
            One output vector per query, of shape (B, L, d_model). (``torch.nn.MultiheadAttention``
            returns a pair of outputs and weights.)

        Raises:
            RuntimeError: If keys or values that are to be cached require gradients.
            TypeError: If an input is not a floating-point tensor, ``mask`` is not boolean, or
                ``causal`` is neither True nor False.
            ValueError: If the shapes do not fit, or ``key`` or ``value`` is missing.
        """
        if key is not None and value is not None:
            queries, keys, values = self.project_heads(query, key, value)
            keys = self.transform_keys(keys, start=0 if cache is None else cache.length)
            if cache is not None:
                keys, values = cache.write(keys, values)
        elif key is None and value is None and cache is not None:  # which holds them
            queries = self.split_heads(self.query_projection(query))
            keys, values = cache.read()
            if keys.shape[0] != query.shape[0]:
                sizes = f"{query.shape[0]} and {keys.shape[0]}"
                raise ValueError(f"query and key must agree in batch size B, got {sizes}")
        else:
            raise ValueError("key and value must both be passed, or a cache that holds them")
        queries = self.transform_queries(queries, start=keys.shape[2] - queries.shape[2])
        heads = self.attend(queries, keys, values, mask=mask, causal=causal)  # (B, H, L, d_k)
        output = self.project_output(heads, query)  # (B, L, d_model)
        if cache is not None:
            cache.advance(keys.shape[2] - cache.length)  # at the end: a failed step can be repeated
        return output

    @checked
    def project(self, key: KeyInput, value: ValueInput) -> tuple[Tensor, Tensor]:
        """Project to the keys and values of all heads, in the form in which a cache stores them.

        Args:
            key: Key sequence, of shape (B, S, key_width).
            value: Value sequence, of shape (B, S, value_width).

        Returns:
            Transformed keys, and values, each of shape (B, G, S, d_k).

        Raises:
            TypeError: If an input is not a floating-point tensor.
            ValueError: If an input has another shape.
        """
        keys = self.transform_keys(self.split_heads(self.key_projection(key)), start=0)
        return keys, self.split_heads(self.value_projection(value))

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Call the attention function with projected and transformed queries, keys and values.

        Only ``mask`` is checked here: queries, keys and values are projected from checked inputs.

        Args:
            queries: Query vectors, of shape (B, H, L, d_k).
            keys: Key vectors, of shape (B, G, S, d_k).
            values: Value vectors, of shape (B, G, S, d_k).
            mask: Boolean mask; True hides a key from a query. Shape (L, S) or
                (B|1, H|1, L|1, S).
            causal: Also mask future positions.

        Returns:
            The output of each head, of shape (B, H, L, d_k).
        """
        if mask is not None:
            check_mask("mask", mask, (*queries.shape[:3], keys.shape[2]))
        dropout = self.dropout if self.training else 0.0
        options: Any = {"mask": mask, "causal": causal, "dropout": dropout}
        if self.attention_function is fused_attention:
            return _fused_attention(queries, keys, values, **options)
        return call_attention(self.attention_function, queries, keys, values, options)

    @checked
    def attention_weights(
        self, query: QueryInput, key: KeyInput, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Compute the attention weights of :meth:`forward` without a cache, before dropout.

        It takes the arguments of :meth:`forward` except ``value`` and ``cache``. To record the
        weights of a whole model, or with a cache, use :func:`~transformer_blocks.record_attention`.

        Returns:
            Attention weights, of shape (B, H, L, S). Those of a query sum to one (to less with an
            attention sink), or are all zero if every key is masked.

        Raises:
            ValueError: If the weights of the attention function are not known: it has no method
                ``attention_weights``, and does not return them.
        """
        queries = self.split_heads(self.query_projection(query))  # (B, H, L, d_k)
        queries = self.transform_queries(queries, start=key.shape[1] - query.shape[1])
        keys = self.transform_keys(self.split_heads(self.key_projection(key)), start=0)
        options = {"mask": mask, "causal": causal}
        return compute_weights(self.attention_function, queries, keys, options)

    def project_heads(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """Project to the queries, keys and values of all heads, before they are transformed.

        A subclass may compute all three by one matrix product; :meth:`project` and
        :meth:`attention_weights` still use the separate projections.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, key_width).
            value: Value sequence, of shape (B, S, value_width).

        Returns:
            Queries, of shape (B, H, L, d_k); keys and values, of shape (B, G, S, d_k).
        """
        queries, keys = self.query_projection(query), self.key_projection(key)
        values = self.value_projection(value)
        return self.split_heads(queries), self.split_heads(keys), self.split_heads(values)

    def project_output(self, heads: Tensor, query: Tensor) -> Tensor:
        """Concatenate the heads' outputs and project them.

        A subclass may change them first, for example multiply them by a gate, the sigmoid of
        another projection of ``query``.

        Args:
            heads: The output of each head, of shape (B, H, L, d_k).
            query: The query sequence that :meth:`forward` received, of shape (B, L, d_model).

        Returns:
            One output vector per query, of shape (B, L, d_model).
        """
        return self.output_projection(self.merge_heads(heads))

    def split_heads(self, x: Tensor) -> Tensor:
        """Split each vector into heads: (B, L, H * d_k) to (B, H, L, d_k)."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the heads: (B, H, L, d_k) to (B, L, H * d_k)."""
        return heads.transpose(1, 2).flatten(2)

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        """Apply the transforms in turn to queries; the first has the position ``start``."""
        for transform in self.transforms:
            queries = transform.transform_queries(queries, start=start)
        return queries

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        """Apply the transforms in turn to keys; the first has the position ``start``."""
        for transform in self.transforms:
            keys = transform.transform_keys(keys, start=start)
        return keys

    def extra_repr(self) -> str:
        """Show the numbers of heads when the module is printed."""
        heads, groups = self.num_heads, self.num_key_value_heads
        return f"num_heads={heads}" + f", num_key_value_heads={groups}" * (groups != heads)


def _check_divides(name: str, size: int, divisor: str, parts: int) -> None:
    """Raise unless the second of two sizes divides the first."""
    if size % parts:
        rule = f"{name} must be divisible by {divisor}"
        raise ValueError(f"{rule}, got {name}={size} and {divisor}={parts}")


def offered_weights(function: Callable[..., Any]) -> Callable[..., Tensor] | None:
    """Return the function that computes the weights of an attention function; None if unknown."""
    if function in (fused_attention, scaled_dot_product_attention):
        return attention_weights
    return getattr(function, "attention_weights", None)


def compute_weights(
    function: Callable[..., Any], queries: Tensor, keys: Tensor, options: dict[str, Any]
) -> Tensor:
    """Compute the weights of the attention function of a layer, before dropout.

    Raises:
        ValueError: If it has no method ``attention_weights``, and does not return them.
    """
    if (offered := offered_weights(function)) is not None:
        return offered(queries, keys, **options)
    result = function(queries, keys, keys, dropout=0.0, **options)  # any values: weights need none
    if isinstance(result, tuple) and result[1] is not None:
        weights: Tensor = result[1]
        return weights
    rule = "attention_function must return its weights, or have a method attention_weights"
    raise ValueError(f"{rule}, got {function!r}")
