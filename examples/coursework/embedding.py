"""Unit 2: token embeddings and tied logits."""

from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Mistake, Unit, filled, normal, parameters

TOKENS = torch.tensor([[3, 0, 6], [2, 3, 1]])


def answer(
    *,
    factor: Any = lambda weight: weight.shape[1] ** 0.5,
    of_logits: Any = lambda weight: 1.0,
    std: Any = lambda d_model: d_model**-0.5,
) -> dict[str, Any]:
    """Choose each row of the weights by its number."""

    class TokenEmbedding(nn.Module):
        """Rows of the weights."""

        def __init__(self, vocabulary_size: int, d_model: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(vocabulary_size, d_model) * std(d_model))

        def forward(self, tokens: Tensor) -> Tensor:
            """Embed tokens."""
            rows = [torch.stack([self.weight[each] for each in row]) for row in tokens.tolist()]
            return torch.stack(rows) * factor(self.weight)

    def output_logits(hidden: Tensor, embedding: TokenEmbedding) -> Tensor:
        logits = (hidden[:, :, None] * embedding.weight).sum(-1)
        return logits * of_logits(embedding.weight)

    return {"TokenEmbedding": TokenEmbedding, "output_logits": output_logits}


UNIT = Unit(
    "token embeddings",
    answer,
    [
        Mistake("no factor", {"factor": lambda weight: 1.0}),
        Mistake("divided by the factor", {"factor": lambda weight: weight.shape[1] ** -0.5}),
        Mistake("the factor is d_model", {"factor": lambda weight: weight.shape[1]}),
        Mistake(
            "the factor is that of the vocabulary",
            {"factor": lambda weight: weight.shape[0] ** 0.5},
        ),
        Mistake(
            "the logits have the factor too", {"of_logits": lambda weight: weight.shape[1] ** 0.5}
        ),
        Mistake("weights of variance 1", {"std": lambda d_model: 1.0}),
        Mistake("weights of variance 1 / d_model^2", {"std": lambda d_model: 1 / d_model}),
    ],
)


@UNIT.law("TokenEmbedding")
def the_weights_are_one_parameter(my: Any) -> Any:
    """Name and shape."""
    return parameters(my.TokenEmbedding(7, 4))


@UNIT.law("TokenEmbedding", "sequence position feature")
def each_token_has_its_row_times_the_root_of_d_model(my: Any) -> Any:
    """Repeated tokens, too."""
    return filled(my.TokenEmbedding(7, 4))(TOKENS)


@UNIT.law("TokenEmbedding")
def the_first_weights_have_the_standard_deviation_one_over_root_d_model(my: Any) -> Any:
    """Measured in units of 1 / sqrt(d_model), to one decimal."""
    return round(float(my.TokenEmbedding(5000, 16).weight.detach().std()) * 4, 1)


@UNIT.law("output_logits", "sequence position token")
def the_logits_are_dot_products_with_the_rows(my: Any) -> Any:
    """Without the factor."""
    return my.output_logits(normal(2, 3, 4), filled(my.TokenEmbedding(7, 4)))


@UNIT.law("output_logits", "token feature")
def both_uses_of_the_weights_are_trained(my: Any) -> Any:
    """The gradient of the weights."""
    embedding = filled(my.TokenEmbedding(7, 4))
    my.output_logits(embedding(TOKENS), embedding).square().sum().backward()
    return embedding.weight.grad
