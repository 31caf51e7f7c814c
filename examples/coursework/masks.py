"""Unit 4: which keys a query must not attend to."""

import torch

from coursework.grader import Unit

TOKENS = torch.tensor([[7, 8, 9, 1], [5, 1, 0, 0]])
UNIT = Unit(__name__, "causal and padding masks")
UNIT.calls(
    "causal_mask",
    "query key",
    a_position_attends_to_itself_and_to_the_past=(5,),
    the_last_query_attends_to_every_key=(3, 7),
    a_decoding_step_attends_to_all_of_the_past=(1, 3),
)


UNIT.calls(
    "padding_mask",
    "sequence head query key",
    the_padding_among_the_keys_is_hidden=(TOKENS,),
    the_padding_id_is_an_argument=(TOKENS, 1),
)
