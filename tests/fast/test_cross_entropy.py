"""Cross-entropy in chunks: values and gradients equal torch's from all logits at once."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.pairs import every_pair
from torch import Tensor

from transformer_blocks.fast import cross_entropy
from transformer_blocks.fast.cross_entropy import linear_cross_entropy
from transformer_blocks.loss import cross_entropy as plain_cross_entropy


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", 4)


def inputs(tokens: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(tokens, 6, dtype=dtype, requires_grad=True)
    weight = torch.randn(11, 6, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(11, (tokens,))


def reference(hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Tensor:
    """Compute the loss from all logits at once."""
    return plain_cross_entropy(hidden @ weight.T, target, **options)


@every_pair(
    {
        "tokens": [1, 3, 4, 5, 17],
        "size": [1.0, 1000.0],  # of the logits, whose exponentials would overflow
        "label_smoothing": [0.0, 0.1, 1.0],
        "reduction": [{}, {"reduction": "mean"}, {"reduction": "sum"}],
    }
)
def test_loss_and_gradients_are_those_of_torch(
    tokens: int, size: float, label_smoothing: float, reduction: dict[str, Any]
) -> None:
    hidden, weight, target = inputs(tokens)
    tensors = size * hidden, weight, target
    options: Any = {"label_smoothing": label_smoothing, **reduction}
    loss, expected = (f(*tensors, **options) for f in (linear_cross_entropy, reference))
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(3.0 * loss, (hidden, weight), retain_graph=True)
    gradients = torch.autograd.grad(3.0 * expected, (hidden, weight))
    torch.testing.assert_close(found, gradients)


def test_a_frozen_weight_gets_no_gradient() -> None:
    hidden, weight, target = inputs(5)
    linear_cross_entropy(hidden, weight.detach(), target).backward()
    assert hidden.grad is not None
    assert weight.grad is None
    expected = torch.autograd.grad(reference(hidden, weight, target), hidden)[0]
    torch.testing.assert_close(hidden.grad, expected)


def test_a_second_derivative_is_refused() -> None:
    hidden, weight, target = inputs(5)
    loss = linear_cross_entropy(hidden, weight, target)
    with pytest.raises(RuntimeError, match="can be differentiated once, not twice"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_under_autocast_logits_have_half_precision_and_the_sum_has_full() -> None:
    hidden, weight, target = inputs(50, torch.float32)
    options: Any = {"label_smoothing": 0.1, "reduction": "sum"}
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, target, **options)
    assert loss.dtype == torch.float32
    rounded = hidden.detach().bfloat16() @ weight.detach().bfloat16().T
    of_rounded = F.cross_entropy(rounded.double(), target, **options)
    torch.testing.assert_close(loss.double(), of_rounded, rtol=1e-6, atol=0)
    exact = reference(hidden, weight, target, **options)
    assert abs(float(exact.detach()) - float(of_rounded)) > 1e-3
    loss.backward()
    expected = torch.autograd.grad(exact, (hidden, weight))
    assert hidden.grad is not None
    assert weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(hidden.grad, expected[0], rtol=0.1, atol=0.05)
    torch.testing.assert_close(weight.grad, expected[1], rtol=0.1, atol=0.2)


@pytest.mark.parametrize("unknown", [11, -1])
def test_ids_outside_the_vocabulary_are_refused(unknown: int) -> None:
    hidden, weight, _ = inputs(2)
    with pytest.raises(RuntimeError, match=rf"^index {unknown} is out of bounds"):
        linear_cross_entropy(hidden, weight, torch.tensor([0, unknown]))
