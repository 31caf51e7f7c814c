r"""Gated attention: an output gate, with which a query scales what each head returns.

Between the values and the output projection of multi-head attention there is no nonlinearity, and
the weights of a head sum to one, so every head contributes something at every position. Gated
attention ("Gated Attention for Large Language Models", Qiu et al. 2025,
https://arxiv.org/abs/2505.06708, section 2.2) multiplies the output of each head elementwise by a
*gate*, the sigmoid of another projection of the query's vector x:

.. math:: head_i' = \sigma(x W_i^G) \odot head_i

The paper compares places and forms of the gate in models of up to 15 billion parameters: here,
after the attention and separately for each head, it improves them most. Many gates are close to
zero, and the first token no longer gets most of the weight. Qwen3-Next has this gate. With
``headwise=True``, one number scales the whole output of a head, with few more parameters and most
of the effect (the paper's table 1).

Next: :mod:`transformer_blocks.variants.latent_attention`, which compresses keys and values.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Function, Size, checked
from transformer_blocks.attention import AttentionFunction
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.feed_forward import initialise
from transformer_blocks.multi_head import MultiHeadAttention, QueryKeyTransform


class GatedAttention(MultiHeadAttention):
    """Multi-head attention whose heads are scaled by gates before the output projection.

    Args:
        d_model: As in :class:`~transformer_blocks.MultiHeadAttention`, as all arguments but the
            last.
        num_heads: Number of heads H.
        num_key_value_heads: Number of key and value heads.
        d_k: Size of a head.
        bias: Whether the projections have a bias, that to the gates too.
        dropout: Dropout probability of the attention weights.
        attention_function: What computes attention.
        transforms: Transforms of queries and keys.
        headwise: Whether a head has one gate, and not one for each of its d_k elements.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: As :class:`~transformer_blocks.MultiHeadAttention`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import GatedAttention
        >>> attention = GatedAttention(16, num_heads=4)
        >>> x = torch.randn(1, 5, 16)
        >>> before = attention(x, x, x)
        >>> _ = nn.init.constant_(attention.gate_projection.bias[:4], -1e4)  # close the first head
        >>> same = attention.attention_weights(x, x)  # it attends as before ...
        >>> _ = nn.init.zeros_(attention.output_projection.weight[:, 4:])
        >>> bool(attention(x, x, x).any())  # ... and contributes nothing
        False
    """

    @checked
    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        *,
        num_key_value_heads: Size | None = None,
        d_k: Size | None = None,
        bias: bool = True,
        dropout: DropoutProbability = 0.0,
        attention_function: Function[AttentionFunction] = fused_attention,
        transforms: Sequence[QueryKeyTransform] = (),
        headwise: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            num_heads,
            num_key_value_heads=num_key_value_heads,
            d_k=d_k,
            bias=bias,
            dropout=dropout,
            attention_function=attention_function,
            transforms=transforms,
        )
        gates = num_heads if headwise else num_heads * self.d_k
        self.gate_projection = nn.Linear(d_model, gates, bias=bias)
        initialise(self)

    def project_output(self, heads: Tensor, query: Tensor) -> Tensor:
        """Scale the heads' outputs by their gates, concatenate and project them.

        Args:
            heads: The output of each head, of shape (B, H, L, d_k).
            query: The query sequence, of shape (B, L, d_model), from which the gates are computed.

        Returns:
            One output vector per query, of shape (B, L, d_model).
        """
        gates = torch.sigmoid(self.gate_projection(query))  # (B, L, H * d_k), or (B, L, H)
        gates = gates.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, L, d_k or 1)
        return super().project_output(gates * heads, query)
