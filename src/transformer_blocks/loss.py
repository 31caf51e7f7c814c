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

A model is trained by calling :class:`ModelWithLoss`, the module that returns the loss.

Next: :mod:`transformer_blocks.schedule`, the learning-rate schedule.
"""

from collections.abc import Callable
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import Ids, Module, Probability, Vectors, checked, one_of

__all__ = ["ModelWithLoss", "cross_entropy"]

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


class ModelWithLoss(nn.Module):
    """A model and its loss as one module: calling it computes the loss.

    ``torch.compile``, ``DistributedDataParallel`` and FSDP act when a module is *called*. They wrap
    this module, not the model, because a method of the model bypasses them:
    ``torch.compile(model).loss(x)`` runs the code that is not compiled, and
    ``DistributedDataParallel(model).module.loss(x)`` leaves each process with its own gradients.

    Args:
        model: The model that is trained. Its parameters are those of this module.
        loss: Function of the model and of the arguments of a call that returns the loss; by default
            the model's method ``loss``.

    Raises:
        TypeError: If there is no ``loss`` and the model has no such method. One that
            ``torch.compile`` or ``DistributedDataParallel`` has already wrapped has none.

    Example:
        >>> import torch
        >>> from transformer_blocks import ModelWithLoss, build_language_model
        >>> model = build_language_model(50, num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> step = ModelWithLoss(model)  # torch.compile(step), DistributedDataParallel(step) ...
        >>> tokens = torch.randint(50, (2, 10))
        >>> torch.equal(step(tokens), model.loss(tokens))
        True
    """

    @checked
    def __init__(self, model: Module[nn.Module], loss: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        compute_loss = getattr(type(model), "loss", None) if loss is None else loss
        if compute_loss is None:
            raise TypeError(
                f"model must have a method loss, got {type(model).__name__}; wrap this module by "
                "torch.compile or DistributedDataParallel, not the model"
            )
        self.model, self.compute_loss = model, compute_loss

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Compute the loss of the model; the arguments are those of ``loss``."""
        loss: Tensor = self.compute_loss(self.model, *inputs, **options)
        return loss
