"""The answer to unit 10: updates each number of each parameter in a loop."""

from typing import Any


def noam_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Compute the rate."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


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
        first, second = self.betas
        for parameter, moments in zip(self.parameters, self.moments, strict=True):
            if parameter.grad is None:
                continue
            numbers = parameter.detach().view(-1)
            for i, g in enumerate(parameter.grad.double().view(-1).tolist()):
                moments[2 * i] = first * moments[2 * i] + (1 - first) * g
                moments[2 * i + 1] = second * moments[2 * i + 1] + (1 - second) * g * g
                mean = moments[2 * i] / (1 - first**self.count)
                square = moments[2 * i + 1] / (1 - second**self.count)
                numbers[i] -= self.lr * mean / (square**0.5 + self.eps)

    def zero_grad(self) -> None:
        """Discard the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
