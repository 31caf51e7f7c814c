r"""Learning-rate schedule: linear warm-up, then inverse square root decay.

At the start of training, the gradients of a post-norm Transformer are large in its upper layers
(Xiong et al. 2020, https://arxiv.org/abs/2002.04745), and Adam estimates their moments from few
updates. With the full learning rate, training can diverge there. The paper's schedule, known as the
*Noam schedule*, therefore increases the rate linearly from almost zero for ``warmup_steps`` updates
and then decreases it with the inverse square root of the step (section 5.3, equation 3):

.. math:: rate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup\_steps^{-1.5})

Next: :mod:`transformer_blocks.cache`, keys and values cached for decoding.
"""

from transformer_blocks._contracts import Size, checked


@checked
def noam_rate(step: Size, *, d_model: Size, warmup_steps: Size = 4000) -> float:
    """Compute the learning rate of the Noam schedule at a training step (equation 3).

    A training loop assigns it to the optimizer before each update; the paper uses Adam with
    ``betas=(0.9, 0.98)`` and ``eps=1e-9``.

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
        >>> import torch
        >>> weight = torch.zeros(1, requires_grad=True)
        >>> adam = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        >>> schedule = torch.optim.lr_scheduler.LambdaLR(  # in a loop of torch's own schedules
        ...     adam, lambda updates: noam_rate(updates + 1, d_model=512)
        ... )
        >>> adam.param_groups[0]["lr"] == noam_rate(1, d_model=512)
        True
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
