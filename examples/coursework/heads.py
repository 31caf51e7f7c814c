"""Unit 6: multi-head attention."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Unit, filled, normal
from transformer_blocks.interop import from_torch

X, MEMORY = normal(2, 4, 8), normal(2, 4, 8, seed=1)
FUTURE = torch.ones(4, 4, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False] * 4, [False] * 2 + [True] * 2])[:, None, None, :]
OTHERS = normal(2, 4, 8, seed=2)
AXES = "batch query feature"
UNIT = Unit(__name__, "multi-head attention", needs=("attention",))
UNIT.calls("split_heads", "batch head position feature", head_h_has_consecutive_features=(X, 4))
UNIT.calls(
    "merge_heads", "batch position feature", the_heads_are_concatenated=(normal(2, 2, 5, 4),)
)


@UNIT.law("split_heads", "batch position feature", expected=lambda: X)
def merged_heads_are_the_input_again(my: Any) -> Any:
    """merge_heads(split_heads(x, 4))."""
    return my.merge_heads(my.split_heads(X, 4))


UNIT.calls(
    "MultiHeadAttention",
    AXES,
    sizes=(8, 2),
    queries_and_keys_and_values_may_be_of_different_sequences=(X, MEMORY, OTHERS),
    a_mask_hides_keys=(X, X, X, FUTURE),
    a_padding_mask_hides_keys_in_all_heads=(X, X, X, PADDING),
)


def _torch_layer() -> Any:
    return filled(nn.MultiheadAttention(8, 2, batch_first=True))


@UNIT.law(
    "MultiHeadAttention",
    AXES,
    expected=lambda: _torch_layer()(X, MEMORY, OTHERS, attn_mask=FUTURE)[0],
)
def the_output_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.MultiheadAttention."""
    layer = my.MultiHeadAttention(8, 2)
    layer.load_state_dict(from_torch(_torch_layer()).state_dict())
    return layer(X, MEMORY, OTHERS, mask=FUTURE)
