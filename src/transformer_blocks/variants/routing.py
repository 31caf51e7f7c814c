r"""Routing: which experts compute a token, and with which weights.

In a mixture of experts (:mod:`transformer_blocks.variants.mixture_of_experts`), a linear layer, the
*router*, computes one logit for each expert. Routing turns the logits z of a token into the k
experts that are chosen for it and their weights w ("Outrageously Large Neural Networks", Shazeer et
al. 2017, https://arxiv.org/abs/1701.06538, section 2.1). Published models have three ways:

- **A softmax over the chosen experts** (Mixtral, https://arxiv.org/abs/2401.04088, section 2.1;
  gpt-oss; Qwen3): the k largest logits are chosen, and the weights sum to one,
  :math:`w = \mathrm{softmax}(\mathrm{TopK}(z))`.
- **A softmax over all experts** (Switch Transformer, https://arxiv.org/abs/2101.03961, section
  2.1): :math:`w_e = \mathrm{softmax}(z)_e` for the chosen e. The weights sum to less than one. With
  k = 1, this is the way that gives the router a gradient: over one chosen expert, the softmax is 1.
- **A sigmoid for each expert, and a bias for the choice** (DeepSeek-V3,
  https://arxiv.org/abs/2412.19437, section 2.1.2): with :math:`s_e = \sigma(z_e)`, those k experts
  are chosen that have the largest :math:`s_e + b_e`, and :math:`w_e = s_e / \sum_{chosen} s`. The
  bias decides who is chosen, never with which weight.

A router left alone prefers the experts that learned first. Two remedies are common. A *balancing
loss* is added to the loss of the model (Shazeer et al., section 4; in this form Switch Transformer,
equation 4): with :math:`f_e` the share of the choices that fell on expert e, and :math:`P_e` the
mean of its probability over all tokens,

.. math:: E \sum_{e=1}^{E} f_e P_e,

which is 1 if all E experts are chosen equally often. Only :math:`P_e` has a gradient. DeepSeek-V3
instead changes the biases after each update, without a gradient: down for an expert with more
tokens than the mean, up for one with fewer ("Auxiliary-Loss-Free Load Balancing", Wang et al. 2024,
https://arxiv.org/abs/2408.15664, section 3).

In each of the three, a token's experts depend on that token alone. Where experts choose their
tokens ("expert choice", Zhou et al. 2022, https://arxiv.org/abs/2202.09368), or drop those beyond a
capacity, a token depends on the others in its batch, and in a language model on later ones.

Next: :mod:`transformer_blocks.variants.mixture_of_experts`, which calls the chosen experts.
"""

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import PositiveNumber, Size, checked
from transformer_blocks.attention import to_full_precision


class Routing(Protocol):
    """Protocol of what chooses the experts of each token.

    The choice for a token may depend on no other token.
    """

    def __call__(self, logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        """Choose experts.

        Args:
            logits: The router's output, of shape (T, E).
            top_k: Number of experts of a token, k.

        Returns:
            The weights of the chosen experts, and their numbers, each of shape (T, k).
        """
        ...


def softmax_over_chosen(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Choose the experts with the largest logits; their weights sum to one.

    Args:
        logits: The router's output, of shape (T, E).
        top_k: Number of experts of a token, k.

    Returns:
        Weights and numbers of the chosen experts, each of shape (T, k).

    Example:
        >>> import torch
        >>> from transformer_blocks import softmax_over_all, softmax_over_chosen
        >>> logits = torch.tensor([[2.0, 0.0, 1.0, 0.0]])
        >>> weights, chosen = softmax_over_chosen(logits, 2)
        >>> chosen, weights.sum()
        (tensor([[0, 2]]), tensor(1.))
        >>> bool(softmax_over_all(logits, 2)[0].sum() < 1)  # the others keep their share
        True
    """
    best, chosen = to_full_precision(logits).topk(top_k)
    return best.softmax(-1).to(logits.dtype), chosen


def softmax_over_all(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Choose the experts with the largest logits; each has its probability among all experts.

    Args:
        logits: The router's output, of shape (T, E).
        top_k: Number of experts of a token, k.

    Returns:
        Weights and numbers of the chosen experts, each of shape (T, k).
    """
    weights, chosen = to_full_precision(logits).softmax(-1).topk(top_k)
    return weights.to(logits.dtype), chosen


class SigmoidRouting(nn.Module):
    """Routing by a sigmoid for each expert, with biases that balance the choice.

    Args:
        num_experts: Number of experts E.
        scale: Factor of the weights; DeepSeek-V3 has 2.5.
        num_groups: Number of groups of E / ``num_groups`` adjacent experts.
        top_groups: Number of groups whose experts can be chosen for a token: those with the largest
            sum of the two largest s + b. DeepSeek-V3 has 4 of 8, each on other devices.

    Attributes:
        bias: The biases b, of shape (E,): a buffer that is saved, and has no gradient.

    Raises:
        ValueError: If a number is not positive, the groups are not equal, or ``top_groups`` exceeds
            ``num_groups``.

    Example:
        >>> import torch
        >>> from transformer_blocks import SigmoidRouting
        >>> routing, logits = SigmoidRouting(4), torch.tensor([[3.0, 2.0, 1.0, 0.0]]).repeat(9, 1)
        >>> for _ in range(300):  # whatever the logits prefer ...
        ...     routing.balance(logits, 1, rate=0.002)
        >>> routing(logits, 1)[1][0].item() > 0  # ... the others are chosen in time
        True
    """

    bias: Tensor

    @checked
    def __init__(
        self,
        num_experts: Size,
        *,
        scale: PositiveNumber = 1.0,
        num_groups: Size = 1,
        top_groups: Size = 1,
    ) -> None:
        if num_experts % num_groups or top_groups > num_groups:
            raise ValueError(
                "num_groups must divide num_experts, and be at least top_groups, got "
                f"num_experts={num_experts}, num_groups={num_groups} and top_groups={top_groups}"
            )
        super().__init__()
        self.scale, self.num_groups, self.top_groups = scale, num_groups, top_groups
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        """Choose the experts with the largest s + b; the weights are the normalised s.

        Args:
            logits: The router's output, of shape (T, E).
            top_k: Number of experts of a token, k.

        Returns:
            Weights and numbers of the chosen experts, each of shape (T, k).
        """
        scores = to_full_precision(logits).sigmoid()
        groups = (scores.detach() + self.bias).unflatten(-1, (self.num_groups, -1))
        if self.top_groups < self.num_groups:
            two = groups.topk(min(2, groups.shape[-1])).values.sum(-1)  # (T, num_groups)
            others = torch.ones_like(two, dtype=torch.bool)
            others = others.scatter(-1, two.topk(self.top_groups).indices, False)
            groups = groups.masked_fill(others[..., None], -math.inf)
        chosen = groups.flatten(-2).topk(top_k).indices  # (T, k)
        weights = scores.gather(-1, chosen)
        return (self.scale * weights / weights.sum(-1, keepdim=True)).to(logits.dtype), chosen

    @torch.no_grad()
    def balance(self, logits: Tensor, top_k: int, *, rate: float = 0.001) -> None:
        """Change the biases after an update, so that the experts are chosen equally often.

        Args:
            logits: The router's output for the tokens of the update, of shape (T, E).
            top_k: Number of experts of a token, k.
            rate: The amount by which each bias changes.
        """
        shares = choice_shares(self(logits, top_k)[1], logits)
        self.bias -= rate * (shares - shares.mean()).sign()


def choice_shares(chosen: Tensor, logits: Tensor) -> Tensor:
    """Return the share of the choices that fell on each expert, of shape (E,)."""
    counts = F.one_hot(chosen, logits.shape[-1]).flatten(0, -2)
    return to_full_precision(logits.new_ones(())) * counts.sum(0) / counts.sum()


@checked
def balancing_loss(logits: Tensor, top_k: Size) -> Tensor:
    """Compute the balancing loss of a layer.

    Add it to the loss of the model with a small factor; Switch Transformer has 0.01. It is for
    routing by a softmax.

    Args:
        logits: The router's output for all tokens of a batch but the padding, of shape (T, E);
            :func:`~transformer_blocks.record_router_logits` collects them.
        top_k: Number of experts of a token, k.

    Returns:
        The loss, a scalar: 1 if the experts are chosen equally often, up to E / k if the same k
        are chosen always.

    Example:
        >>> import torch
        >>> from transformer_blocks import balancing_loss
        >>> even = 9 * torch.eye(4)  # each of four tokens prefers another expert
        >>> round(balancing_loss(even, 1).item(), 2), round(balancing_loss(even[:1], 1).item(), 2)
        (1.0, 4.0)
    """
    probabilities = to_full_precision(logits).softmax(-1)
    shares = choice_shares(logits.topk(top_k).indices, logits)
    return logits.shape[-1] * (shares * probabilities.flatten(0, -2).mean(0)).sum()
