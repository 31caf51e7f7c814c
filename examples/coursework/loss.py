"""Unit 9: cross-entropy with label smoothing and padding."""

from typing import Any

import torch
import torch.nn.functional as F

from coursework.grader import Unit, normal

LOGITS, TARGET = 3 * normal(5, 6), torch.tensor([3, 5, 1, 0, 0])
UNIT = Unit(__name__, "cross-entropy with label smoothing")
UNIT.calls(
    "cross_entropy",
    "",
    without_padding_it_is_the_mean=(LOGITS[:3], TARGET[:3]),
    padding_does_not_contribute=(LOGITS, TARGET),
    another_padding_id_is_left_out=(LOGITS, TARGET, 0.0, 1),
    label_smoothing_is_spread_over_all_tokens=(LOGITS[:3], TARGET[:3], 0.3),
)


@UNIT.law(
    "cross_entropy",
    expected=lambda: F.cross_entropy(LOGITS, TARGET, ignore_index=0, label_smoothing=0.1),
)
def the_loss_equals_that_of_torch(my: Any) -> Any:
    """With label_smoothing=0.1 and padding."""
    return my.cross_entropy(LOGITS, TARGET, label_smoothing=0.1)


@UNIT.law("cross_entropy")
def large_logits_do_not_overflow(my: Any) -> Any:
    """Logits of some thousands, and the loss divided by 1000."""
    return my.cross_entropy(LOGITS * 1000, TARGET) / 1000


@UNIT.law("cross_entropy", "token logit")
def the_gradient_of_padding_is_zero(my: Any) -> Any:
    """The gradient of the logits."""
    logits = LOGITS.clone().requires_grad_()
    my.cross_entropy(logits, TARGET, label_smoothing=0.1).backward()
    return logits.grad
