"""Unit 9, solved."""

from torch import Tensor


def cross_entropy(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, padding_id: int = 0
) -> Tensor:
    log_probabilities = logits.log_softmax(-1)
    of_target = -log_probabilities.gather(1, target[:, None]).squeeze(1)
    uniform = -log_probabilities.mean(-1)
    losses = (1 - label_smoothing) * of_target + label_smoothing * uniform
    real = target != padding_id
    return losses[real].sum() / real.sum()
