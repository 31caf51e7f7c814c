"""A forward pass is recorded, patched in place, and ended by a value that is rejected."""

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks.inspection.record.values import (
    OUTPUT,
    ForwardPass,
    RejectedValueError,
    Run,
    Value,
    layouts,
)

X = torch.randn(2, 3, 4)


class Catching(nn.Module):
    """Catches every error of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.layer(x)
        except Exception:
            return x


def test_a_rejected_value_ends_the_pass_also_if_the_model_catches_the_error() -> None:
    accepted: list[Value] = []

    def accept(value: Value) -> bool:
        accepted.append(value)
        return True

    forward_pass, place = ForwardPass(Catching(), X), ("layer", "output", 0)
    run = forward_pass.run(Run(only={place: accept}))
    assert [*run] == [place, OUTPUT]
    assert accepted == [run[place]]
    with pytest.raises(RejectedValueError):
        forward_pass.run(Run(only={place: lambda value: False}))


def test_what_follows_a_patched_value_is_computed_from_it() -> None:
    run = ForwardPass(model := Catching(), X).run(Run({("layer", "input", 0): -X}))
    torch.testing.assert_close(run[OUTPUT].tensor, model.layer(-X))


def test_dimensions_may_be_in_any_order_only_if_it_is_asked_for() -> None:
    moved = X.permute(2, 0, 1)
    assert not [*layouts(moved, X.shape)]
    assert [each.equal(X) for each in layouts(moved, X.shape, any_order=True)] == [True]
