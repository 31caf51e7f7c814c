"""Unit 6: multi-head attention."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Unit, filled, normal

X, MEMORY, OTHERS = normal(2, 5, 18), normal(2, 7, 18, seed=1), normal(2, 7, 18, seed=2)
FUTURE = torch.ones(5, 7, dtype=torch.bool).triu(3)
PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])[:, None, None, :]
AXES = "batch query feature"
UNIT = Unit(__name__, "multi-head attention", needs=("attention",))
UNIT.calls("split_heads", "batch head position feature", head_h_has_consecutive_features=(X, 3))
UNIT.calls(
    "merge_heads", "batch position feature", the_heads_are_concatenated=(normal(2, 3, 5, 6),)
)


@UNIT.law("split_heads", "batch position feature", expected=lambda: X)
def merged_heads_are_the_input_again(my: Any) -> Any:
    """merge_heads(split_heads(x, 3))."""
    return my.merge_heads(my.split_heads(X, 3))


UNIT.calls(
    "MultiHeadAttention",
    AXES,
    sizes=(18, 3),
    queries_and_keys_and_values_may_be_of_different_sequences=(X, MEMORY, OTHERS),
    as_many_queries_as_keys=(X, MEMORY[:, 2:], OTHERS[:, 2:]),
    a_mask_hides_keys=(X, MEMORY, MEMORY, FUTURE),
    a_padding_mask_hides_keys_in_all_heads=(X, MEMORY, OTHERS, PADDING),
)
for _heads, _with in ((3, ""), (1, "_with_one_head")):
    _laws: dict[str, Any] = {
        "a_memory_is_attended_to": (X, MEMORY, MEMORY),
        "a_padding_mask_is_obeyed": (X, MEMORY, MEMORY, PADDING),
        "all_positions_are_attended_to": (X, X, X),
        "a_causal_mask_is_obeyed": (X, X, X, FUTURE[:, 2:]),
        "a_padding_mask_is_obeyed_in_self_attention": (X, X, X, PADDING[..., 2:]),
        "a_causal_mask_with_padding_is_obeyed": (X, X, X, FUTURE[:, 2:] | PADDING[..., 2:]),
    }
    _named = {law + _with: arguments for law, arguments in _laws.items()}
    UNIT.calls("MultiHeadAttention", AXES, sizes=(18, _heads), **_named)


def _torch_layer() -> Any:
    return filled(nn.MultiheadAttention(18, 3, batch_first=True))


@UNIT.law(
    "MultiHeadAttention",
    AXES,
    expected=lambda: _torch_layer()(X, MEMORY, OTHERS, attn_mask=FUTURE)[0],
)
def the_output_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.MultiheadAttention."""
    layer, theirs = my.MultiHeadAttention(18, 3), _torch_layer()
    for kind in ("weight", "bias"):
        parts = *getattr(theirs, f"in_proj_{kind}").chunk(3), getattr(theirs.out_proj, kind)
        for name, part in zip(("query", "key", "value", "output"), parts, strict=True):
            getattr(getattr(layer, f"{name}_projection"), kind).data = part.detach()
    return layer(X, MEMORY, OTHERS, mask=FUTURE)
