r"""Mixture of experts: many feed-forward networks, of which each token uses few.

Two thirds of a language model's parameters are in its feed-forward networks, and all of them are
multiplied with every token. A mixture of experts has E such networks, the *experts*, and a *router*
that chooses k of them for each token ("Outrageously Large Neural Networks", Shazeer et al. 2017,
https://arxiv.org/abs/1701.06538, section 2; in a Transformer: GShard, Lepikhin et al. 2020,
https://arxiv.org/abs/2006.16668, section 2.2). So a model can have the parameters of E networks at
the computing time of k:

.. math:: y = \sum_{e\,\in\,chosen(x)} w_e(x)\,\mathrm{FFN}_e(x)

Choice and weights come from the logits of a linear layer, in one of the ways of
:mod:`transformer_blocks.variants.routing`. The memory is that of all experts: gpt-oss-20b has 32 in
each layer and uses 4, DeepSeek-V3 has 256 and uses 8.

Most tokens need some of the same computation, which every expert would have to learn. *Shared
experts* compute it for all tokens, without a router ("DeepSeekMoE", Dai et al. 2024,
https://arxiv.org/abs/2401.06066, section 3.2); they are one network, whose output is added.

Early implementations gave every expert a fixed *capacity*, and dropped the tokens beyond it. Then
the output for a token depends on the other tokens of its batch. Here no token is dropped: an expert
computes all tokens that chose it, however many, in one call.

The experts of a layer are called one after another. With 8 experts, of which 2 are chosen, a
forward pass takes 2.4, 1.4 and 1.3 times as long as that of a dense network with as many active
parameters, and 0.6, 0.3 and 0.3 times as long as that of one with as many in all (256, 1,024 and
1,024 tokens of size 256, 512 and 1,024; processor time of one thread, ``benchmarks/experts.py``).

Next: :mod:`transformer_blocks.variants.sandwich_norm`, which also normalises outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Factory, Function, Size, checked
from transformer_blocks.fast.caching import has_values
from transformer_blocks.feed_forward import initialise
from transformer_blocks.variants.routing import Routing, softmax_over_chosen


class MixtureOfExperts(nn.Module):
    """A feed-forward network that consists of experts, of which each token uses ``top_k``.

    The output for a token depends on this token alone. Compiled, exported or vectorised by
    ``torch.vmap``, whose shapes cannot depend on the choice, every expert computes every token, and
    those that are not chosen have the weight zero.

    Args:
        d_model: Size of the input and output vectors.
        num_experts: Number of experts E.
        top_k: Number of experts k that each token uses.
        expert: Function without arguments that returns a new expert, a network from vectors to
            vectors of size ``d_model`` such as a :class:`~transformer_blocks.GatedFeedForward`.
        routing: A :class:`~transformer_blocks.Routing`: what chooses the experts
            and their weights.
        shared: A network whose output for every token is added; none if not given.
        bias: Whether the router has a bias, as in gpt-oss.

    Attributes:
        router: Linear layer from a token to a logit for each expert.

    Raises:
        TypeError: If ``expert`` does not return modules, or ``routing`` cannot be called.
        ValueError: If a size is not positive, ``top_k`` exceeds ``num_experts``, or ``expert``
            returns the same module twice.

    Example:
        >>> import torch
        >>> from transformer_blocks import GatedFeedForward, MixtureOfExperts
        >>> experts = MixtureOfExperts(
        ...     16, num_experts=8, top_k=2, expert=lambda: GatedFeedForward(16, 32)
        ... )
        >>> x = torch.randn(2, 5, 16)
        >>> alone = experts(x[1:, 3:4])  # a token without the others of its batch ...
        >>> torch.allclose(alone, experts(x)[1:, 3:4], atol=1e-6)  # ... has the same output
        True
    """

    read_parts: ClassVar[Sequence[str]] = ("router",)

    @checked
    def __init__(
        self,
        d_model: Size,
        *,
        num_experts: Size,
        top_k: Size,
        expert: Factory[Callable[[], nn.Module]],
        routing: Function[Routing] = softmax_over_chosen,
        shared: nn.Module | None = None,
        bias: bool = False,
    ) -> None:
        if top_k > num_experts:
            raise ValueError(f"top_k must be at most num_experts={num_experts}, got top_k={top_k}")
        super().__init__()
        self.router = nn.Linear(d_model, num_experts, bias=bias)
        self.routing, self.top_k = routing, top_k
        self.experts = nn.ModuleList(expert() for _ in range(num_experts))
        if len({*self.experts}) < num_experts:
            raise ValueError("expert must return a new module at each call, got the same one")
        self.shared = shared
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to every token the experts that are chosen for it, and the shared ones.

        Args:
            x: Input vectors, of shape (B, L, d_model); any leading dimensions are accepted.

        Returns:
            Output vectors, of the shape of ``x``.

        Raises:
            RuntimeError: If the last dimension of ``x`` is not d_model, or its dtype is not that of
                the weights.
        """
        tokens = x.reshape(-1, x.shape[-1])  # (T, d_model)
        weights, chosen = self.routing(self.router(tokens), self.top_k)  # (T, k)
        everything = torch.arange(tokens.shape[0], device=x.device)  # len would fix the size
        output, can_select = torch.zeros_like(tokens), _can_select(tokens)
        for number, expert in enumerate(self.experts):
            is_chosen = chosen == number
            weight = (weights * is_chosen).sum(-1, keepdim=True)  # (T, 1)
            rows = is_chosen.any(-1).nonzero().squeeze(-1) if can_select else everything
            if (
                not can_select or len(rows) or torch.is_grad_enabled()
            ):  # else there is nothing to do
                products = weight[rows] * expert(tokens[rows])
                output = output.index_add(0, rows, products.to(x.dtype))
        output = output if self.shared is None else output + self.shared(tokens)
        return output.view(x.shape)

    def extra_repr(self) -> str:
        """Show the numbers of experts when the module is printed."""
        return f"num_experts={len(self.experts)}, top_k={self.top_k}"


def _can_select(tokens: Tensor) -> bool:
    """Return whether rows can be selected by their values."""
    is_eager = has_values(tokens) and not torch.compiler.is_compiling()
    return is_eager and torch.func.debug_unwrap(tokens) is tokens  # not inside torch.vmap


@checked
@contextmanager
def record_router_logits(model: nn.Module) -> Iterator[list[Tensor]]:
    """Record the logits of all routers inside the ``with`` block, with their gradients.

    Args:
        model: Any module with mixtures of experts.

    Yields:
        A list that receives the logits of each call of a :class:`MixtureOfExperts`, in order, of
        shape (T, E), where T counts the tokens of the batch row by row.

    Example:
        >>> import torch
        >>> from transformer_blocks import (
        ...     balancing_loss,
        ...     FeedForward,
        ...     MixtureOfExperts,
        ...     record_router_logits,
        ... )
        >>> experts = MixtureOfExperts(
        ...     16, num_experts=4, top_k=2, expert=lambda: FeedForward(16, 32)
        ... )
        >>> x = torch.randn(2, 5, 16)
        >>> with record_router_logits(experts) as logits:
        ...     loss = experts(x).square().mean()
        >>> loss = loss + 0.01 * torch.stack([balancing_loss(each, 2) for each in logits]).mean()
        >>> loss.backward()  # through the weights of the experts, and through the balancing loss
    """
    found: list[Tensor] = []
    with ExitStack() as hooks:
        for part in model.modules():
            if isinstance(part, MixtureOfExperts):
                hook = part.router.register_forward_hook(lambda *call: found.append(call[2]))
                hooks.enter_context(hook)
        yield found
