"""Unit 9: cross-entropy with label smoothing and padding."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.grader import Mistake, Unit, normal

LOGITS, TARGET = 3 * normal(5, 6), torch.tensor([3, 5, 1, 0, 0])


def answer(
    *,
    count: Any = lambda target, real: real.sum(),
    real: Any = lambda target, padding_id: target != padding_id,
    of_padding: float = 0.0,
    others: int = 0,
    activation: Any = lambda logits: logits,
    is_mean: bool = True,
) -> dict[str, Any]:
    """Sum the losses in float64, one token at a time."""

    def cross_entropy(
        logits: Tensor, target: Tensor, label_smoothing: float = 0.0, padding_id: int = 0
    ) -> Tensor:
        is_real = real(target, padding_id)
        total = torch.zeros((), dtype=torch.float64)
        for row, token, counts in zip(activation(logits.double()), target, is_real, strict=True):
            log_probabilities = row - row.logsumexp(0)
            size = len(row) - others
            uniform = (log_probabilities.sum() - others * log_probabilities[token]) / size
            of_target = (1 - label_smoothing) * log_probabilities[token]
            total = total - (of_target + label_smoothing * uniform) * counts
            total = total - of_padding * label_smoothing * uniform * ~counts
        return total / count(target, is_real) if is_mean else total

    return {"cross_entropy": cross_entropy}


UNIT = Unit(
    "the loss",
    answer,
    [
        Mistake(
            "padding counts in the denominator",
            {"count": lambda target, real: len(target)},
            "padding_in_the_denominator",
        ),
        Mistake("padding is not left out", {"real": lambda target, padding_id: target == target}),
        Mistake(
            "the padding id is always 0",
            {"real": lambda target, padding_id: target != 0},
        ),
        Mistake(
            "the smoothing of padding remains",
            {"of_padding": 1.0},
            "smoothing_of_padding",
        ),
        Mistake(
            "the smoothing of padding remains, and padding counts in the denominator",
            {"of_padding": 1.0, "count": lambda target, real: len(target)},
            "smoothing_of_padding",
        ),
        Mistake("the smoothing is spread over the other tokens only", {"others": 1}),
        Mistake("a softmax is applied twice", {"activation": lambda logits: logits.softmax(-1)}),
        Mistake("the sum is not divided", {"is_mean": False}),
    ],
)


@UNIT.law("cross_entropy")
def without_padding_it_is_the_mean(my: Any) -> Any:
    """No smoothing."""
    return my.cross_entropy(LOGITS[:3], TARGET[:3])


@UNIT.law("cross_entropy")
def padding_does_not_contribute(my: Any) -> Any:
    """Two of five targets are padding."""
    return my.cross_entropy(LOGITS, TARGET)


@UNIT.law("cross_entropy")
def another_padding_id_is_left_out(my: Any) -> Any:
    """Padding with 1."""
    return my.cross_entropy(LOGITS, TARGET, padding_id=1)


@UNIT.law("cross_entropy")
def label_smoothing_is_spread_over_all_tokens(my: Any) -> Any:
    """No padding."""
    return my.cross_entropy(LOGITS[:3], TARGET[:3], label_smoothing=0.3)


@UNIT.law(
    "cross_entropy",
    expected=lambda: F.cross_entropy(LOGITS, TARGET, ignore_index=0, label_smoothing=0.1),
)
def the_loss_equals_that_of_torch(my: Any) -> Any:
    """Smoothing and padding."""
    return my.cross_entropy(LOGITS, TARGET, label_smoothing=0.1)


@UNIT.law("cross_entropy")
def large_logits_do_not_overflow(my: Any) -> Any:
    """Logits of some thousands."""
    return my.cross_entropy(LOGITS * 1000, TARGET) / 1000


@UNIT.law("cross_entropy", "token logit")
def the_gradient_of_padding_is_zero(my: Any) -> Any:
    """The gradient with respect to the logits."""
    logits = LOGITS.clone().requires_grad_()
    my.cross_entropy(logits, TARGET, label_smoothing=0.1).backward()
    return logits.grad
