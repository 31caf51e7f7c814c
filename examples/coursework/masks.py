"""Unit 4: which keys a query must not attend to."""

from typing import Any

import torch
from torch import Tensor

from coursework.grader import Mistake, Unit


def answer(
    *,
    hides: Any = lambda query, key: key > query,
    is_aligned_right: bool = True,
    is_padding: Any = lambda token, padding_id: token == padding_id,
    are_queries: bool = False,
) -> dict[str, Any]:
    """Build masks cell by cell."""

    def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
        keys = query_length if key_length is None else key_length
        first = keys - query_length if is_aligned_right else 0
        rows = [[hides(first + i, j) for j in range(keys)] for i in range(query_length)]
        return torch.tensor(rows)

    def padding_mask(tokens: Tensor, padding_id: int = 0) -> Tensor:
        mask = torch.tensor(
            [[is_padding(each, padding_id) for each in row] for row in tokens.tolist()]
        )
        return mask[:, None, :, None] if are_queries else mask[:, None, None, :]

    return {"causal_mask": causal_mask, "padding_mask": padding_mask}


UNIT = Unit(
    "masks",
    answer,
    [
        Mistake("True allows", {"hides": lambda query, key: key <= query}),
        Mistake(
            "the causal mask is aligned to the top left",
            {"is_aligned_right": False},
            "top_left_causal_mask",
        ),
        Mistake("a position cannot attend to itself", {"hides": lambda query, key: key >= query}),
        Mistake(
            "a position attends to the next one", {"hides": lambda query, key: key > query + 1}
        ),
        Mistake("the past is hidden", {"hides": lambda query, key: key < query}),
        Mistake(
            "nothing is hidden",
            {"hides": lambda query, key: False},
            "bidirectional_mask_in_decoder",
        ),
        Mistake(
            "the padding mask is inverted",
            {"is_padding": lambda token, padding_id: token != padding_id},
            "inverted_padding_mask",
        ),
        Mistake(
            "the padding mask is over the queries",
            {"are_queries": True},
            "padding_mask_over_queries",
        ),
        Mistake("the padding id is always 0", {"is_padding": lambda token, padding_id: token == 0}),
    ],
)
TOKENS = torch.tensor([[7, 8, 9, 1], [5, 1, 0, 0]])


@UNIT.law("causal_mask", "query key")
def a_position_attends_to_itself_and_to_the_past(my: Any) -> Any:
    """Square masks."""
    return my.causal_mask(5)


@UNIT.law("causal_mask", "query key")
def the_last_query_attends_to_every_key(my: Any) -> Any:
    """More keys than queries."""
    return my.causal_mask(2, 5)


@UNIT.law("causal_mask", "query key")
def a_decoding_step_attends_to_all_of_the_past(my: Any) -> Any:
    """One query."""
    return my.causal_mask(1, 3)


@UNIT.law("causal_mask")
def a_causal_mask_is_boolean(my: Any) -> Any:
    """Neither numbers nor infinities."""
    return str(my.causal_mask(3).dtype)


@UNIT.law("padding_mask", "sequence head query key")
def the_padding_among_the_keys_is_hidden(my: Any) -> Any:
    """The default padding id."""
    return my.padding_mask(TOKENS)


@UNIT.law("padding_mask", "sequence head query key")
def the_padding_id_is_an_argument(my: Any) -> Any:
    """Another id."""
    return my.padding_mask(TOKENS, 1)


@UNIT.law("padding_mask")
def a_padding_mask_is_boolean(my: Any) -> Any:
    """It can be combined with a causal mask."""
    return str(my.padding_mask(TOKENS).dtype)
