"""Query-key normalisation: RMSNorm by hand, then attention."""

import pytest
import torch
from torch import nn

from transformer_blocks import QueryKeyNorm, fused_attention, scaled_dot_product_attention


@pytest.mark.parametrize("causal", [False, True])
def test_queries_and_keys_are_divided_by_their_root_mean_square(causal: bool) -> None:
    query, key, value = torch.randn(3, 2, 3, 5, 8, dtype=torch.float64).unbind()
    attention_function = QueryKeyNorm(8).double()
    nn.init.normal_(attention_function.query_norm.get_parameter("weight"))
    nn.init.normal_(attention_function.key_norm.get_parameter("weight"))

    def normalise(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt() * gain

    expected = fused_attention(
        normalise(query, attention_function.query_norm.get_parameter("weight")),
        normalise(key, attention_function.key_norm.get_parameter("weight")),
        value,
        causal=causal,
    )
    torch.testing.assert_close(attention_function(query, key, value, causal=causal), expected)


def test_a_score_is_bounded_however_long_the_vectors() -> None:
    query, key, value = torch.randn(3, 1, 1, 9, 16).mul(1e4).unbind()
    attention_function = QueryKeyNorm(16, attention_function=scaled_dot_product_attention)
    weights = attention_function.attention_weights(query, key).detach()
    largest = weights.log().amax(-1) - weights.log().amin(-1)
    assert largest.max() <= 2 * 16**0.5 + 1e-4  # |q||k| / sqrt(d_k) is sqrt(d_k) at most
    plain = scaled_dot_product_attention(query, key, value)[1]
    assert plain.amax(-1).min() > 0.999  # which is what it is for


def test_the_norm_may_be_another() -> None:
    attention_function = QueryKeyNorm(8, norm=nn.LayerNorm)
    assert isinstance(attention_function.key_norm, nn.LayerNorm)
    assert attention_function.query_norm is not attention_function.key_norm
    with pytest.raises(ValueError, match="d_k"):
        QueryKeyNorm(0)
