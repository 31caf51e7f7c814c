"""Unit 9: the loss. Chapter 14 of the book; section 5.4 of the paper."""

from torch import Tensor


def cross_entropy(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, padding_id: int = 0
) -> Tensor:
    """Compute the mean cross-entropy of the target tokens that are not padding.

    With label smoothing e, the target distribution gives e / V to each of the V tokens, and the
    rest, 1 - e, to the target token in addition. Large logits must not overflow. Padding
    contributes neither a loss nor to the number of tokens by which the sum is divided.

    Args:
        logits: Logits, of shape (N, V).
        target: Ids of the target tokens, of shape (N,).
        label_smoothing: e, from 0 to 1.
        padding_id: Id of the padding token.

    Returns:
        The loss, a scalar.
    """
    raise NotImplementedError
