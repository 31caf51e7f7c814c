"""A forward pass is recorded, and patched in place."""

import torch
from torch import nn

from transformer_blocks.inspection.record.values import OUTPUT, ForwardPass, Run, layouts

X = torch.randn(2, 3, 4)


def test_only_some_places_are_recorded_beside_the_output() -> None:
    forward_pass, place = ForwardPass(nn.Sequential(nn.Linear(4, 4)), X), ("0", "output", 0)
    assert [*forward_pass.run(Run(only={place}))] == [place, OUTPUT]


def test_what_follows_a_patched_value_is_computed_from_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    run = ForwardPass(model, X).run(Run({("0", "input", 0): -X}))
    torch.testing.assert_close(run[OUTPUT].tensor, model(-X))


def test_dimensions_may_be_in_any_order_only_if_it_is_asked_for() -> None:
    moved = X.permute(2, 0, 1)
    assert not [*layouts(moved, X.shape)]
    assert [each.equal(X) for each in layouts(moved, X.shape, any_order=True)] == [True]
