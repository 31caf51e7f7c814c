"""A router's softmax over the chosen experts only.

A router computes a logit for each expert, of which a token uses the largest few. Some models were
trained with weights from a softmax over the chosen experts, which sum to one, others from a softmax
over all experts, which sum to less. OLMoE and DeepSeekMoE are of the second kind, Mixtral is of the
first.

A training library computed the softmax over the chosen ones for all. Which experts are chosen is
the same in both cases, and every output is a scaled one: a model still writes text, only worse. In
December 2024 the setting was missed when OLMoE was to be trained further.

:theme: weights
:source: https://github.com/ServiceNow/Fast-LLM/issues/83
:found by: equivalence
"""

import torch
from torch import Tensor, nn

from transformer_blocks import MixtureOfExperts, softmax_over_all
from transformer_blocks.inspection import Difference, first_difference


class Broken(nn.Module):
    """Four experts, of which a token uses two; the weights are published ones."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of the two experts of each token."""
        best, chosen = logits.topk(2)
        # the fault: the published weights were trained with a softmax over all experts
        return best.softmax(dim=-1), chosen

    def forward(self, x: Tensor) -> Tensor:
        """Compute the weighted sum of the experts' outputs for vectors (T, 16)."""
        weights, chosen = self.weights(self.router(x))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)  # (T, 4, 16)
        found = outputs.gather(1, chosen[..., None].expand(-1, -1, 16))
        return (found * weights[..., None]).sum(dim=1)


class Mended(Broken):
    """Computes the softmax first, and chooses then."""

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of the two experts of each token."""
        best, chosen = logits.softmax(dim=-1).topk(2)
        return best, chosen


def examine(model: Broken) -> Difference:
    """Compare with a mixture of experts that has the same weights."""
    theirs = MixtureOfExperts(
        16, num_experts=4, top_k=2, expert=lambda: nn.Linear(16, 16), routing=softmax_over_all
    )
    theirs.load_state_dict(model.state_dict())
    return first_difference(model, theirs, torch.randn(6, 16))
