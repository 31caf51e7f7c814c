"""Unit 10: Adam and the schedule of its learning rate."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Unit, normal

UNIT = Unit(__name__, "Adam and its learning rate")


@UNIT.law("noam_rate", "update")
def the_rate_rises_linearly_and_falls_as_an_inverse_root(my: Any) -> Any:
    """1000 times the rates of the updates 1, 2000, 4000 and 16000, d_model=512."""
    return torch.tensor([1000 * my.noam_rate(t, 512) for t in (1, 2000, 4000, 16000)])


@UNIT.law("noam_rate", "update")
def the_warm_up_is_an_argument(my: Any) -> Any:
    """The rates of the updates 1, 5 and 9, d_model=20, warmup_steps=5."""
    return torch.tensor([my.noam_rate(step, 20, 5) for step in (1, 5, 9)])


def _train(make: Any, eps: float) -> Any:
    """Return parameters after each of four updates of changing rates."""
    parameters = [nn.Parameter(normal(2, 2)), nn.Parameter(normal(3, seed=1))]
    adam, seen = make(parameters, lr=0.1, betas=(0.8, 0.95), eps=eps), []
    groups = getattr(adam, "param_groups", None)  # torch's rate is in its groups
    for update in range(4):
        if groups:
            groups[0]["lr"] = 0.1 / (update + 1)
        adam.lr = 0.1 / (update + 1)
        for number, parameter in enumerate(parameters):
            parameter.grad = normal(*parameter.shape, seed=10 * update + number) / 10
        adam.step()
        seen.append(torch.cat([each.detach().flatten() for each in parameters]))
    return torch.stack(seen)


@UNIT.law("Adam", "update parameter", expected=lambda: _train(torch.optim.Adam, 1e-9))
def the_updates_equal_those_of_torch(my: Any) -> Any:
    """Two parameters after each of four updates, with a rate that changes."""
    return _train(my.Adam, 1e-9)


@UNIT.law("Adam", "update parameter")
def eps_is_added_to_the_root(my: Any) -> Any:
    """The same with eps=0.1, as large as the gradients."""
    return _train(my.Adam, 0.1)


def _one_with_a_gradient() -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    return parameters


@UNIT.law("Adam", "parameter")
def a_parameter_without_a_gradient_remains(my: Any) -> Any:
    """Two parameters, of which the second has no gradient."""
    parameters = _one_with_a_gradient()
    my.Adam(parameters, lr=0.5).step()
    return torch.cat([each.detach() for each in parameters])


@UNIT.law("Adam", expected=lambda: [True, True])
def the_gradients_are_discarded(my: Any) -> Any:
    """Whether each grad is None after zero_grad()."""
    parameters = _one_with_a_gradient()
    my.Adam(parameters, lr=0.5).zero_grad()
    return [each.grad is None for each in parameters]
