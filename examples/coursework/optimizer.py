"""Unit 10: Adam and the schedule of its learning rate."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Mistake, Unit, normal


def answer(
    *,
    rate: Any = lambda step, warmup: min(step**-0.5, step * warmup**-1.5),
    size: Any = lambda d_model: d_model**-0.5,
    correct: Any = lambda beta, step: 1 - beta**step,
    divide: Any = lambda mean, square, eps: mean / (square**0.5 + eps),
    order: int = 1,
    discard: Any = lambda parameter: setattr(parameter, "grad", None),
) -> dict[str, Any]:
    """Update each number of each parameter in a loop."""

    def noam_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
        return float(size(d_model) * rate(step, warmup_steps))

    class Adam:
        """Means of the gradients and of their squares, number by number."""

        def __init__(
            self, parameters: Any, lr: float, betas: Any = (0.9, 0.98), eps: float = 1e-9
        ) -> None:
            self.parameters, self.lr, self.betas, self.eps = list(parameters), lr, betas, eps
            self.count, self.moments = 0, [[0.0, 0.0] * each.numel() for each in self.parameters]

        def step(self) -> None:
            """Update the parameters."""
            self.count += 1
            first, second = self.betas[::order]
            for parameter, moments in zip(self.parameters, self.moments, strict=True):
                if parameter.grad is None:
                    continue
                numbers = parameter.detach().view(-1)
                for i, g in enumerate(parameter.grad.double().view(-1).tolist()):
                    moments[2 * i] = first * moments[2 * i] + (1 - first) * g
                    moments[2 * i + 1] = second * moments[2 * i + 1] + (1 - second) * g * g
                    mean = moments[2 * i] / correct(first, self.count)
                    square = moments[2 * i + 1] / correct(second, self.count)
                    numbers[i] -= self.lr * divide(mean, square, self.eps)

        def zero_grad(self) -> None:
            """Discard the gradients."""
            for parameter in self.parameters:
                discard(parameter)

    return {"noam_rate": noam_rate, "Adam": Adam}


UNIT = Unit(
    "Adam and its learning rate",
    answer,
    [
        Mistake("no correction of the bias", {"correct": lambda beta, step: 1.0}),
        Mistake(
            "the steps are counted from zero",
            {"correct": lambda beta, step: 1 - beta ** max(step - 1, 1)},
        ),
        Mistake("the steps are counted from two", {"correct": lambda b, step: 1 - b ** (step + 1)}),
        Mistake(
            "eps is added inside the root",
            {"divide": lambda mean, square, eps: mean / (square + eps) ** 0.5},
        ),
        Mistake("no square root", {"divide": lambda mean, square, eps: mean / (square + eps)}),
        Mistake("no eps", {"divide": lambda mean, square, eps: mean / max(square, 1e-30) ** 0.5}),
        Mistake("the parameters ascend", {"divide": lambda m, s, eps: -m / (s**0.5 + eps)}),
        Mistake("the betas are exchanged", {"order": -1}),
        Mistake("the rate never falls", {"rate": lambda step, warmup: step * warmup**-1.5}),
        Mistake("the rate is not warmed up", {"rate": lambda step, warmup: step**-0.5}),
        Mistake(
            "the larger of both rates", {"rate": lambda step, w: max(step**-0.5, step * w**-1.5)}
        ),
        Mistake("the rate does not depend on d_model", {"size": lambda d_model: 1.0}),
        Mistake("the gradients remain", {"discard": lambda parameter: None}),
    ],
)


@UNIT.law("noam_rate", "update")
def the_rate_rises_linearly_and_falls_as_an_inverse_root(my: Any) -> Any:
    """Before, at and after the last update of the warm-up; in units of 0.001."""
    return torch.tensor([1000 * my.noam_rate(t, 512) for t in (1, 2000, 4000, 16000)])


@UNIT.law("noam_rate", "update")
def the_warm_up_is_an_argument(my: Any) -> Any:
    """Five updates of warm-up."""
    return torch.tensor([my.noam_rate(step, 16, 5) for step in (1, 5, 9)])


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
    """Four updates of two parameters, with a rate that changes."""
    return _train(my.Adam, 1e-9)


@UNIT.law("Adam", "update parameter")
def eps_is_added_to_the_root(my: Any) -> Any:
    """An eps as large as the gradients."""
    return _train(my.Adam, 0.1)


@UNIT.law("Adam", "parameter")
def a_parameter_without_a_gradient_remains(my: Any) -> Any:
    """The second has none."""
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    my.Adam(parameters, lr=0.5).step()
    return torch.cat([each.detach() for each in parameters])


@UNIT.law("Adam", expected=lambda: [True, True])
def the_gradients_are_discarded(my: Any) -> Any:
    """None afterwards."""
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    my.Adam(parameters, lr=0.5).zero_grad()
    return [each.grad is None for each in parameters]
