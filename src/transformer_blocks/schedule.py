r"""The learning rate that the paper trained with: rise, then fall.

The first gradients of a fresh post-norm Transformer point anywhere, and Adam trusts them fully.
So the rate starts at nothing, grows for ``warmup_steps``, and from there shrinks as one over the
square root of the step (section 5.3, equation 3):

.. math:: rate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5})

Next chapter: :mod:`transformer_blocks.cache`, what decoding need not compute again.
"""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer_blocks._checks import check_instance, check_size


def noam_rate(step: int, *, d_model: int, warmup_steps: int = 4000) -> float:
    """Compute the paper's learning rate at a step, counted from 1 (equation 3).

    Raises:
        ValueError: If the step or a size is not positive.

    Example:
        >>> [f"{noam_rate(step, d_model=512):.6f}" for step in (2000, 4000, 16000)]
        ['0.000349', '0.000699', '0.000349']
    """
    check_size(step=step, d_model=d_model, warmup_steps=warmup_steps)
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def noam_schedule(optimizer: Optimizer, *, d_model: int, warmup_steps: int = 4000) -> LambdaLR:
    """Let an optimizer follow the paper's learning rate; call ``.step()`` after each update.

    The rate multiplies the optimizer's own ``lr``, so give it ``lr=1.0`` for the paper's. The
    paper's Adam has ``betas=(0.9, 0.98)`` and ``eps=1e-9``.

    Args:
        optimizer: Any torch optimizer.
        d_model: Width of the model: wider ones take smaller steps.
        warmup_steps: Updates until the rate is highest.

    Returns:
        A scheduler, already at step 1.

    Raises:
        TypeError: If ``optimizer`` is no optimizer, or a size no whole number.
        ValueError: If a size is not positive.

    Example:
        >>> weight = nn.Parameter(torch.zeros(1))
        >>> adam = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        >>> schedule = noam_schedule(adam, d_model=512)
        >>> adam.param_groups[0]["lr"] == noam_rate(1, d_model=512)
        True
    """
    check_instance(Optimizer, optimizer=optimizer)
    check_size(d_model=d_model, warmup_steps=warmup_steps)
    return LambdaLR(
        optimizer,
        lambda done: noam_rate(done + 1, d_model=d_model, warmup_steps=warmup_steps),
    )
