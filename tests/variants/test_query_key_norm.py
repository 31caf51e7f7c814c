"""Query-key normalisation: RMSNorm of queries and keys, then attention."""

import torch
from torch import nn

from transformer_blocks import QueryKeyNorm


def test_queries_and_keys_are_divided_by_their_root_mean_square() -> None:
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    transform = QueryKeyNorm(8).double()
    for norm, found in (
        (transform.query_norm, transform.transform_queries),
        (transform.key_norm, transform.transform_keys),
    ):
        gain = nn.init.normal_(norm.get_parameter("weight"))
        root = (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt()
        torch.testing.assert_close(found(x, start=0), x / root * gain)


def test_the_norm_can_be_exchanged() -> None:
    transform = QueryKeyNorm(8, norm=nn.LayerNorm)
    assert isinstance(transform.key_norm, nn.LayerNorm)
    assert transform.query_norm is not transform.key_norm
