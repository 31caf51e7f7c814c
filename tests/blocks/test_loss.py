"""Cross-entropy with label smoothing: values and gradients equal torch's."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from transformer_blocks import ModelWithLoss, build_language_model, linear_cross_entropy
from transformer_blocks.loss import cross_entropy

TARGET = torch.tensor([0, 1, 10, 2])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_loss_and_gradients_are_those_of_torch(label_smoothing: float, reduction: str) -> None:
    logits, target = torch.randn(7, 11, requires_grad=True), torch.randint(11, (7,))
    options: Any = {"label_smoothing": label_smoothing, "reduction": reduction}
    loss, expected = (f(logits, target, **options) for f in (cross_entropy, F.cross_entropy))
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), logits))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_no_tokens_have_a_loss_and_a_gradient_of_zero(
    reduction: str, label_smoothing: float
) -> None:
    weight, hidden = torch.randn(11, 6, requires_grad=True), torch.randn(0, 6, requires_grad=True)
    target = torch.empty(0, dtype=torch.int64)
    options: Any = {"label_smoothing": label_smoothing, "reduction": reduction}
    for loss in (
        cross_entropy(hidden @ weight.T, target, **options),
        linear_cross_entropy(hidden, weight, target, **options),
    ):
        gradients = torch.autograd.grad(loss, (hidden, weight))
        assert not loss.any()
        assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("unknown", [-100, -1, 11])
def test_no_target_outside_the_vocabulary_is_ignored_unless_asked(unknown: int) -> None:
    logits, target = torch.randn(2, 11), torch.tensor([3, unknown])
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(logits, target)
    loss = cross_entropy(logits, target, ignore_index=unknown)
    torch.testing.assert_close(loss, cross_entropy(logits[:1], target[:1]))


def test_a_model_that_is_already_wrapped_is_refused() -> None:
    """Its method ``loss`` would run, but neither compiled nor with averaged gradients."""
    model = build_language_model(20, num_layers=1, d_model=8, num_heads=2, d_ff=8)
    compiled: Any = torch.compile(model, backend="eager")
    for wrapped in (compiled, torch.nn.DataParallel(model)):
        with pytest.raises(TypeError, match="model must have a method loss"):
            ModelWithLoss(wrapped)


def test_a_loss_of_ones_own_takes_the_model_first() -> None:
    model = torch.nn.Linear(3, 4)
    step = ModelWithLoss(model, lambda model, x, y: F.mse_loss(model(x), y))
    x, y = torch.randn(2, 3), torch.randn(2, 4)
    torch.testing.assert_close(step(x, y=y), F.mse_loss(model(x), y))
    assert [*step.parameters()] == [*model.parameters()]
