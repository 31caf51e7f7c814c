r"""Loss: how wrong the next word was, in one number.

The model gives a score to every word of the vocabulary. The softmax turns scores into chances, and
the loss is minus the logarithm of the chance that the right word got, the *cross-entropy*. Pure, it
wants the right word to have all of the chance, which no score is high enough for. *Label smoothing*
(section 5.4; Szegedy et al. 2015, https://arxiv.org/abs/1512.00567) gives a share
:math:`\varepsilon` of the target to all V words alike, so that there is an end to being sure:

.. math::

   \ell(z, y) = -\sum_v t_v \log \mathrm{softmax}(z)_v, \qquad
   t_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V}

The scores are the largest thing in a training step: V numbers for each token, and their gradient as
many again. But once a token's scores are there, so is their gradient, softmax minus target, and
then they are needed no more. :func:`linear_cross_entropy` therefore takes a few hundred tokens at a
time, from the last hidden vectors straight to gradients.

Next chapter: :mod:`transformer_blocks.schedule`, how large a step to take.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks._checks import check_number, check_size, check_tensor, is_autocast

CHUNK = 512
"""Tokens whose scores are there at one time."""


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, *, label_smoothing: float = 0.0
) -> Tensor:
    """Sum the cross-entropy of tokens, without ever holding all their scores.

    The same as ``F.cross_entropy(hidden @ weight.T, target, reduction="sum", label_smoothing=...)``
    in about 0.7 of the time. Divide it by the number of tokens, of the whole batch on all machines,
    and no token counts more than another. Padding has no loss: leave it out.

    Args:
        hidden: What the model knows of each next token. Shape (N, d_model).
        weight: Of the output projection. Shape (V, d_model).
        target: The right tokens. Shape (N,).
        label_smoothing: Share of the target that all words get, from 0 to 1.

    Returns:
        One number; zero where there is no token.

    Raises:
        RuntimeError: If a second derivative is asked for: there is only a first.
        IndexError: If a target is not in 0..V-1 (on a CPU).
        TypeError: If ``hidden`` and ``weight`` are not of one dtype, ``target`` does not hold int64
            ids, or something is of another kind.
        ValueError: If shapes or devices do not fit, or ``label_smoothing`` is out of range.

    Example:
        >>> hidden, weight = torch.randn(5, 16), torch.randn(100, 16)
        >>> target = torch.tensor([3, 1, 4, 1, 5])
        >>> loss = linear_cross_entropy(hidden, weight, target, label_smoothing=0.1)
        >>> scores = hidden @ weight.T  # (5, 100), which the other never holds
        >>> same = F.cross_entropy(scores, target, label_smoothing=0.1, reduction="sum")
        >>> torch.allclose(loss, same)
        True
    """
    _check(hidden, weight, target, label_smoothing)
    device = hidden.device.type
    if is_autocast(hidden):
        hidden, weight = (x.to(torch.get_autocast_dtype(device)) for x in (hidden, weight))
    return _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, target, label_smoothing
    )


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss, with its gradients computed on the way there."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float
    ) -> Tensor:
        words = len(weight)
        total = torch.zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        total = total.to(hidden.device)
        learns = any(ctx.needs_input_grad)
        hidden_gradient = torch.empty_like(hidden) if learns else None
        weight_gradient = torch.zeros_like(weight, dtype=total.dtype) if learns else None
        chunk = CHUNK if hidden.device.type == "cpu" else 16 * CHUNK  # a GPU has more to fill
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            x, right = hidden[rows], target[rows, None]
            scores = (x @ weight.T).to(total.dtype)  # (chunk, V)
            log_sum = scores.logsumexp(-1, keepdim=True)
            given = (1.0 - label_smoothing) * scores.gather(1, right)
            spread = label_smoothing * scores.mean(-1, keepdim=True)
            total += (log_sum - given - spread).sum()
            if hidden_gradient is not None and weight_gradient is not None:
                chances = scores.sub_(log_sum).exp_()
                chances -= label_smoothing / words  # minus the target: this is the gradient
                chances.scatter_add_(1, right, torch.full_like(given, label_smoothing - 1.0))
                gradient = chances.to(x.dtype)
                hidden_gradient[rows] = gradient @ weight
                weight_gradient += gradient.T @ x
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # as with create_graph=True
            raise RuntimeError("linear_cross_entropy can be differentiated once, not twice")
        hidden_gradient, weight_gradient = ctx.saved_tensors
        (factor,) = outer
        of_hidden = hidden_gradient * factor.to(hidden_gradient.dtype)
        return of_hidden, weight_gradient * factor, None, None


def _check(hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> None:
    """Raise unless these are vectors, a matrix for their width, and an id for each."""
    for name, x in (("hidden", hidden), ("weight", weight), ("target", target)):
        check_tensor(name, x)
    check_number(label_smoothing=label_smoothing)
    fits = hidden.dim() == weight.dim() == 2 and hidden.shape[1] == weight.shape[1]
    if not fits or target.shape != hidden.shape[:1]:
        raise ValueError(
            "hidden, weight and target must have shapes (N, d_model), (V, d_model) and (N,), got "
            f"{tuple(hidden.shape)}, {tuple(weight.shape)} and {tuple(target.shape)}"
        )
    check_size(V=len(weight), d_model=weight.shape[1])
    casts = is_autocast(hidden)
    real = hidden.is_floating_point() and weight.is_floating_point()
    if not real or (hidden.dtype != weight.dtype and not casts):
        raise TypeError(
            "hidden and weight must be floating-point tensors of one dtype, "
            f"got {hidden.dtype} and {weight.dtype}"
        )
    if target.dtype != torch.int64:
        raise TypeError(f"target must hold int64 ids, got dtype={target.dtype}")
    if not hidden.device == weight.device == target.device:
        raise ValueError(
            "hidden, weight and target must be on one device, "
            f"got {hidden.device}, {weight.device} and {target.device}"
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}")
    if target.device.type == "cpu" and not torch.compiler.is_compiling():
        unknown = (target < 0) | (target >= len(weight))
        if unknown.any():
            raise IndexError(
                f"target ids must be in 0..{len(weight) - 1}, got {target[unknown][0].item()}"
            )
