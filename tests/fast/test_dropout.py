"""Dropout: its probability, its scale, its gradients, and equality with torch's."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_blocks import Dropout
from transformer_blocks.fast.dropout import apply_dropout


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_elements_are_zero_with_the_probability_and_the_others_are_scaled_as_torch_does(
    probability: float,
) -> None:
    n = 400_000
    deviation = math.sqrt(n * probability * (1 - probability))
    for dropped in (
        apply_dropout(torch.ones(n), probability),
        F.dropout(torch.ones(n), probability),
    ):
        zeros = int((dropped == 0).sum())
        assert abs(zeros - n * probability) < 5 * deviation
        assert dropped.unique().tolist() == [0.0, pytest.approx(1 / (1 - probability), rel=2e-4)]
        limit = 6 * deviation / n / (1 - probability)
        assert float(dropped.mean()) == pytest.approx(1.0, abs=limit)


@pytest.mark.parametrize("probability", [1.4 / 65536, 0.1, 0.3, 0.9, 1 - 1.4 / 65536])
def test_the_scale_fits_the_rounded_probability_so_that_the_expectation_is_exact(
    probability: float,
) -> None:
    zeros = round(probability * 65536)  # of 65,536 equally probable values
    scaled = apply_dropout(torch.ones(400_000, dtype=torch.float64), probability).max()
    assert float(scaled) * (65536 - zeros) / 65536 == pytest.approx(1.0, rel=1e-12)


def test_the_four_elements_of_one_draw_are_independent() -> None:
    is_zero = (apply_dropout(torch.ones(400_000), 0.3) == 0).double().view(-1, 4)
    torch.testing.assert_close(is_zero.mean(0), torch.full((4,), 0.3).double(), rtol=0, atol=0.008)
    assert float((is_zero.T.corrcoef() - torch.eye(4)).abs().max()) < 0.02
    neighbours = torch.stack((is_zero[:-1, 3], is_zero[1:, 0]))
    assert abs(float(neighbours.corrcoef()[0, 1])) < 0.02


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5, 7), (2, 0, 4)])
def test_shape_and_dtype_are_those_of_the_input_also_if_it_does_not_fill_the_draws(
    shape: tuple[int, ...],
) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        dropped = apply_dropout(torch.ones(shape, dtype=dtype), 0.5)
        assert (dropped.shape, dropped.dtype) == (shape, dtype)


def test_it_is_differentiable_twice_and_in_forward_mode() -> None:
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)

    def seeded(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return apply_dropout(x, 0.4) ** 3

    assert torch.autograd.gradcheck(seeded, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(seeded, x)


def test_the_backward_pass_needs_one_byte_per_element() -> None:
    stored: list[torch.Tensor] = []

    def store(x: torch.Tensor) -> torch.Tensor:
        stored.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(store, lambda x: x):
        apply_dropout(torch.ones(50, requires_grad=True), 0.4)
    assert sum(x.nbytes for x in stored) == 50


def test_samples_of_a_vmap_have_random_masks_of_their_own() -> None:
    gradients = torch.func.vmap(
        torch.func.grad(lambda x: apply_dropout(x, 0.5).sum()), randomness="different"
    )(torch.ones(8, 100))
    assert set(gradients.unique().tolist()) == {0.0, 2.0}
    assert len({tuple(row) for row in gradients.tolist()}) == 8


def test_a_probability_of_zero_of_one_and_below_the_resolution() -> None:
    x = torch.randn(50)
    assert torch.equal(apply_dropout(x, 0.0), x)
    assert torch.equal(apply_dropout(x, 1.0), torch.zeros(50))
    assert torch.equal(apply_dropout(x, 1e-9), x)


def test_the_module_is_torchs_except_for_the_random_numbers() -> None:
    dropout = Dropout(0.5)
    assert isinstance(dropout, nn.Dropout)
    x = torch.ones(1000)
    torch.manual_seed(0)
    expected = apply_dropout(x, 0.5)
    assert not torch.equal(dropout(x), expected)
    torch.manual_seed(0)
    assert torch.equal(dropout(x), expected)
    assert torch.equal(dropout.eval()(x), x)
    changed = Dropout(0.5, inplace=True)(x)
    assert changed is x
    assert bool((x == 0).any())


def test_compiled_code_uses_torchs_dropout() -> None:
    compiled = torch.compile(Dropout(0.5), backend="eager", fullgraph=True)
    assert set(compiled(torch.ones(100)).unique().tolist()) == {0.0, 2.0}


def test_random_numbers_are_made_on_the_device_of_the_input() -> None:
    with torch.device("meta"):
        assert not apply_dropout(torch.ones(8, device="cpu"), 0.5).is_meta
