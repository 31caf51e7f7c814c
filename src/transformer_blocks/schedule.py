r"""Learning-rate schedule: linear warm-up, then inverse square root decay.

At the start of training, the gradients of a post-norm Transformer are large in its upper layers
(Xiong et al. 2020, https://arxiv.org/abs/2002.04745), and Adam estimates their moments from few
updates. With the full learning rate, training can diverge there. The paper's schedule, known as the
*Noam schedule*, therefore increases the rate linearly from almost zero for ``warmup_steps`` updates
and then decreases it with the inverse square root of the step (section 5.3, equation 3):

.. math:: rate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup\_steps^{-1.5})

Next: :mod:`transformer_blocks.cache`, keys and values cached for decoding.
"""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer_blocks._contracts import Size, checked


@checked
def noam_rate(step: Size, *, d_model: Size, warmup_steps: Size = 4000) -> float:
    """Compute the learning rate of the Noam schedule at a training step (equation 3).

    Args:
        step: Number of the parameter update, counted from 1.
        d_model: Size of the model's hidden vectors; the rate is proportional to d_model ** -0.5.
        warmup_steps: Number of updates during which the rate increases; the paper uses 4000.

    Returns:
        The learning rate of that update.

    Raises:
        TypeError: If the step or a size is not an integer.
        ValueError: If the step or a size is not positive.

    Example:
        >>> from transformer_blocks import noam_rate
        >>> [f"{noam_rate(step, d_model=512):.6f}" for step in (2000, 4000, 16000)]
        ['0.000349', '0.000699', '0.000349']
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


@checked
def noam_schedule(optimizer: Optimizer, *, d_model: Size, warmup_steps: Size = 4000) -> LambdaLR:
    """Attach the Noam schedule to an optimizer; call the schedule's ``step()`` after each update.

    The rate multiplies the optimizer's own ``lr``, so ``lr=1.0`` gives the paper's rates. The paper
    uses Adam with ``betas=(0.9, 0.98)`` and ``eps=1e-9``.

    Args:
        optimizer: The torch optimizer whose learning rate is set.
        d_model: Size of the model's hidden vectors; the rate is proportional to d_model ** -0.5.
        warmup_steps: Number of updates during which the rate increases; the paper uses 4000.

    Returns:
        The scheduler; the optimizer's learning rate is already that of step 1.

    Raises:
        TypeError: If ``optimizer`` is not a torch optimizer, or a size is not an integer.
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import noam_rate, noam_schedule
        >>> weight = nn.Parameter(torch.zeros(1))
        >>> adam = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        >>> schedule = noam_schedule(adam, d_model=512)
        >>> adam.param_groups[0]["lr"] == noam_rate(1, d_model=512)
        True
    """
    return LambdaLR(
        optimizer,
        lambda updates: noam_rate(updates + 1, d_model=d_model, warmup_steps=warmup_steps),
    )
