r"""Loss: the cross-entropy of the next token, with label smoothing.

At each position, the decoder's last hidden vector is projected to one logit per token of the
vocabulary. The softmax turns the logits into probabilities, and the loss is minus the
log-probability of the target token, the *cross-entropy*. Its gradient with respect to the logits is
the softmax minus the target distribution. As long as the probability of the target token is below
one, gradient descent increases its logit, without bound.

*Label smoothing* bounds it (section 5.4 of the paper; "Rethinking the Inception Architecture for
Computer Vision", Szegedy et al. 2015, https://arxiv.org/abs/1512.00567, section 7). The target
distribution :math:`t` spreads the probability :math:`\varepsilon` evenly over all V tokens and
leaves only the rest to the target token :math:`y`:

.. math::

   \ell(z, y) = -\sum_v t_v \log \mathrm{softmax}(z)_v, \qquad
   t_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V}

The paper smooths with :math:`\varepsilon = 0.1`, which makes the perplexity worse and the BLEU
score better.

The logits are the largest tensor of a training step: V numbers per token. The examples are
therefore trained with :func:`~transformer_blocks.linear_cross_entropy`, which
computes the same loss from the hidden vectors in chunks and never stores all logits.

Next: :mod:`transformer_blocks.schedule`, the learning-rate schedule.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._contracts import Ids, Probability, Vectors, checked, one_of

__all__ = ["cross_entropy"]

NO_ID = torch.iinfo(torch.int64).min
"""An id that no token has."""


@checked
def cross_entropy(
    logits: Annotated[Tensor, Vectors("N V")],
    target: Annotated[Tensor, Ids("N")],
    *,
    label_smoothing: Probability = 0.0,
    ignore_index: int = NO_ID,
    reduction: Annotated[str, one_of("mean", "sum", "none")] = "mean",
) -> Tensor:
    r"""Compute the cross-entropy between logits and target tokens.

    The same as ``torch.nn.functional.cross_entropy``, written out. Padding must not contribute to
    the loss: ``ignore_index`` is its id, or only the real tokens are passed. In distributed
    training, use ``reduction="sum"`` and divide by the number of target tokens of all processes, so
    that every token has the same weight.

    Args:
        logits: Unnormalised log-probabilities of the vocabulary, of shape (N, V).
        target: Ids of the target tokens, int64, of shape (N,).
        label_smoothing: :math:`\varepsilon`, the probability that is spread evenly over the
            vocabulary, from 0 to 1. The paper uses 0.1.
        ignore_index: Id of the targets whose loss is zero, and which the mean does not count, such
            as padding. By default all count; torch ignores -100.
        reduction: ``"mean"`` or ``"sum"`` of the losses of all tokens, or ``"none"`` for one loss
            per token.

    Returns:
        The loss: a scalar, or of shape (N,) if ``reduction="none"``. Both the mean and the sum of
        no tokens are zero, and so are their gradients; torch's mean is NaN. The dtype is float32,
        or float64 if the logits have it.

    Raises:
        IndexError: If a target that counts is not in the vocabulary, on a CPU.
        TypeError: If an argument is of the wrong type, or ``target`` holds no integers.
        ValueError: If the shapes do not fit, ``label_smoothing`` is out of range or ``reduction``
            is unknown.

    Example:
        >>> import torch
        >>> import torch.nn.functional as F
        >>> from transformer_blocks.loss import cross_entropy
        >>> logits, target = torch.randn(3, 100), torch.tensor([3, 14, 15])
        >>> loss = cross_entropy(logits, target, label_smoothing=0.1)
        >>> expected = F.cross_entropy(logits, target, label_smoothing=0.1)
        >>> torch.allclose(loss, expected, atol=1e-5)
        True
        >>> uniform = cross_entropy(torch.zeros(3, 100), target)  # no token is preferred ...
        >>> torch.allclose(uniform.exp(), torch.tensor(100.0), atol=1e-3)  # ... a perplexity of V
        True
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(-1, dtype=dtype)  # (N, V)
    target_loss = F.nll_loss(log_probabilities, target, ignore_index=ignore_index, reduction="none")
    uniform_loss = -log_probabilities.mean(-1)  # (N,)
    losses = (1.0 - label_smoothing) * target_loss + label_smoothing * uniform_loss
    losses = losses.masked_fill(target == ignore_index, 0.0)
    if reduction == "none":
        return losses
    count = (target != ignore_index).sum().clamp(min=1) if reduction == "mean" else 1
    return losses.sum() / count
