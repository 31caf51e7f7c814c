"""Pre-norm and post-norm residual connections, and where dropout applies."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import PostNorm, PreNorm, Residual

both_orders = pytest.mark.parametrize("kind", [PostNorm, PreNorm])


def sublayer(x: Tensor) -> Tensor:
    return (3.0 * x).cos() + x.flip(1)


@pytest.mark.parametrize("custom_norm", [False, True])
def test_post_norm_normalises_the_sum_and_pre_norm_the_sublayers_input(custom_norm: bool) -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    weight, bias = torch.rand(2, 8, dtype=torch.float64)

    def norm(x: Tensor) -> Tensor:
        if custom_norm:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return F.layer_norm(x, (8,), weight, bias)

    def make(kind: type[Residual]) -> Residual:
        residual = kind(8, dropout=0.0, norm=nn.RMSNorm(8, eps=1e-6) if custom_norm else None)
        if not custom_norm:
            residual.norm.load_state_dict({"weight": weight, "bias": bias})
        return residual.double()

    torch.testing.assert_close(make(PostNorm)(x, sublayer), norm(x + sublayer(x)))
    torch.testing.assert_close(make(PreNorm)(x, sublayer), x + sublayer(norm(x)))


@both_orders
def test_dropout_applies_to_the_sublayers_output_and_never_to_the_residual_stream(
    kind: type[Residual],
) -> None:
    residual = kind(8, dropout=0.5, norm=nn.Identity())
    x = torch.full((4, 25, 8), 100.0)
    added = residual(x, torch.ones_like) - x
    assert set(added.unique().tolist()) == {0.0, 2.0}
    assert 0.8 < added.mean() < 1.2
    assert torch.equal(residual.eval()(x, torch.ones_like), x + 1.0)


@both_orders
def test_gradients_reach_the_input_even_if_the_sublayer_passes_none(kind: type[Residual]) -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    kind(8)(x, torch.zeros_like).pow(3).sum().backward()
    assert x.grad is not None
    assert (x.grad != 0.0).all()
