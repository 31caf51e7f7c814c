"""Unit 2: token embeddings and tied logits."""

from typing import Any

import torch

from coursework.grader import Unit, filled, normal

TOKENS = torch.tensor([[3, 0, 6], [2, 3, 1]])
UNIT = Unit(__name__, "token embeddings")
UNIT.calls(
    "TokenEmbedding",
    "sequence position feature",
    sizes=(7, 6),
    each_token_has_its_row_times_sqrt_d_model=(TOKENS,),
)


@UNIT.law("TokenEmbedding")
def the_first_weights_have_the_standard_deviation_1_over_sqrt_d_model(my: Any) -> Any:
    """Their standard deviation in units of 1 / sqrt(d_model), to one decimal."""
    return round(float(my.TokenEmbedding(5000, 12).weight.detach().std()) * 12**0.5, 1)


@UNIT.law("output_logits", "sequence position token")
def the_logits_are_dot_products_with_the_rows(my: Any) -> Any:
    """output_logits(hidden, embedding)."""
    return my.output_logits(normal(2, 3, 6), filled(my.TokenEmbedding(7, 6)))


@UNIT.law("output_logits", "token feature")
def both_uses_of_the_weights_are_trained(my: Any) -> Any:
    """The gradient of the weights."""
    embedding = filled(my.TokenEmbedding(7, 6))
    my.output_logits(embedding(TOKENS), embedding).square().sum().backward()
    return embedding.weight.grad
