"""The loss in pieces equals torch's in one, and so do its gradients."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import transformer_blocks.loss
from transformer_blocks import linear_cross_entropy


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_blocks.loss, "CHUNK", 4)


def inputs(tokens: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(tokens, 6, dtype=dtype, requires_grad=True)
    weight = torch.randn(11, 6, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(11, (tokens,))


def whole(hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    return F.cross_entropy(
        hidden @ weight.T, target, reduction="sum", label_smoothing=label_smoothing
    )


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_loss_and_gradients_are_those_of_torch(tokens: int, label_smoothing: float) -> None:
    hidden, weight, target = inputs(tokens)
    loss = linear_cross_entropy(hidden, weight, target, label_smoothing=label_smoothing)
    expected = whole(hidden, weight, target, label_smoothing)
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(3.0 * loss, (hidden, weight))
    torch.testing.assert_close(found, torch.autograd.grad(3.0 * expected, (hidden, weight)))


def test_the_gradient_passes_torchs_own_check() -> None:
    hidden, weight, target = inputs(6)
    assert torch.autograd.gradcheck(
        lambda h, w: linear_cross_entropy(h, w, target, label_smoothing=0.2), (hidden, weight)
    )


def test_scores_beyond_what_exp_can_take_are_no_trouble() -> None:
    hidden, weight, target = inputs(5)
    huge = (1000.0 * hidden).detach().requires_grad_()
    loss = linear_cross_entropy(huge, weight, target, label_smoothing=0.1)
    torch.testing.assert_close(loss, whole(huge, weight, target, 0.1))
    loss.backward()
    assert huge.grad is not None
    assert bool(huge.grad.isfinite().all())


def test_a_weight_or_a_hidden_that_does_not_learn_gets_no_gradient() -> None:
    hidden, weight, target = inputs(5)
    linear_cross_entropy(hidden, weight.detach(), target).backward()
    assert hidden.grad is not None
    assert weight.grad is None
    expected = torch.autograd.grad(whole(hidden, weight, target, 0.0), hidden)[0]
    torch.testing.assert_close(hidden.grad, expected)


def test_without_gradients_none_are_computed() -> None:
    hidden, weight, target = inputs(5)
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, target)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, whole(hidden, weight, target, 0.0).detach())


def test_no_token_has_no_loss_and_no_gradient() -> None:
    hidden, weight, target = inputs(0)
    loss = linear_cross_entropy(hidden, weight, target, label_smoothing=0.1)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert weight.grad is not None
    assert not weight.grad.any()


def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    hidden, weight, target = inputs(5)
    loss = linear_cross_entropy(hidden, weight, target)
    with pytest.raises(RuntimeError, match="can be differentiated once, not twice"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_under_autocast_products_are_short_and_the_sum_is_not() -> None:
    hidden, weight, target = inputs(50, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, target, label_smoothing=0.1)
    assert loss.dtype == torch.float32
    short = hidden.detach().bfloat16() @ weight.detach().bfloat16().T  # rounded to 8 bits
    of_short = F.cross_entropy(short.double(), target, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(loss.double(), of_short, rtol=1e-6, atol=0)
    assert abs(float(whole(hidden, weight, target, 0.1).detach()) - float(of_short)) > 1e-3
    loss.backward()
    expected = torch.autograd.grad(whole(hidden, weight, target, 0.1), (hidden, weight))
    assert hidden.grad is not None
    assert weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(hidden.grad, expected[0], rtol=0.1, atol=0.05)
    torch.testing.assert_close(weight.grad, expected[1], rtol=0.1, atol=0.2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"hidden": torch.randn(2, 3, 6)},
            ValueError,
            r"\(N, d_model\), \(V, d_model\) and \(N,\)",
        ),
        ({"weight": torch.randn(11, 5)}, ValueError, r"got \(4, 6\), \(11, 5\) and \(4,\)"),
        ({"target": torch.zeros(5, dtype=torch.int64)}, ValueError, r"and \(5,\)$"),
        ({"target": torch.zeros(4)}, TypeError, r"int64 ids, got dtype=torch\.float32"),
        ({"target": torch.tensor([0, 1, 11, 2])}, IndexError, r"must be in 0\.\.10, got 11"),
        ({"target": torch.tensor([0, -1, 1, 2])}, IndexError, r"must be in 0\.\.10, got -1"),
        ({"label_smoothing": 1.5}, ValueError, r"label_smoothing must be in \[0, 1\], got 1\.5"),
        ({"label_smoothing": float("nan")}, ValueError, "label_smoothing must be"),
    ],
)
def test_bad_inputs_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {
        "hidden": torch.randn(4, 6),
        "weight": torch.randn(11, 6),
        "target": torch.randint(11, (4,)),
    } | change
    with pytest.raises(error, match=message):
        linear_cross_entropy(**given)
