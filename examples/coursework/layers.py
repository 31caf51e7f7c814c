"""Unit 8: encoder and decoder."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Unit, filled, normal

X, MEMORY = normal(2, 5, 18), normal(2, 7, 18, seed=1)
PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])[:, None, None, :]
OF_MEMORY = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])[:, None, None, :]
FUTURE = torch.ones(5, 5, dtype=torch.bool).triu(1)
AXES = "sequence position feature"
UNIT = Unit(__name__, "encoder and decoder", needs=("masks", "attention", "heads", "feed_forward"))
UNIT.calls(
    "EncoderLayer", AXES, sizes=(18, 3, 20), padding_does_not_change_other_positions=(X, PADDING)
)


def _theirs(layer: Any) -> Any:
    return filled(layer(18, 3, 20, batch_first=True))


def _converted(layer: Any) -> Any:
    from transformer_blocks.interop import from_torch

    return from_torch(_theirs(layer)).state_dict()


@UNIT.law(
    "EncoderLayer",
    AXES,
    expected=lambda: _theirs(nn.TransformerEncoderLayer)(X, src_mask=FUTURE),
)
def the_encoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.TransformerEncoderLayer."""
    layer = my.EncoderLayer(18, 3, 20).eval()
    layer.load_state_dict(_converted(nn.TransformerEncoderLayer))
    return layer(X, mask=FUTURE)


UNIT.calls(
    "DecoderLayer",
    AXES,
    sizes=(18, 3, 20),
    both_masks_of_the_decoder_are_obeyed=(X, MEMORY, PADDING, OF_MEMORY),
)


@UNIT.law("DecoderLayer", AXES)
def no_output_of_the_decoder_depends_on_a_later_position(my: Any) -> Any:
    """The change of the outputs if only the last target vector changes."""
    layer, changed = filled(my.DecoderLayer(18, 3, 20)), X.clone()
    changed[:, -1] = 1.0
    return layer(changed, MEMORY) - layer(X, MEMORY)


@UNIT.law(
    "DecoderLayer",
    AXES,
    expected=lambda: _theirs(nn.TransformerDecoderLayer)(X, MEMORY, tgt_mask=FUTURE),
)
def the_decoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.TransformerDecoderLayer."""
    layer = my.DecoderLayer(18, 3, 20).eval()
    layer.load_state_dict(_converted(nn.TransformerDecoderLayer))
    return layer(X, MEMORY)


UNIT.calls(
    "Encoder", AXES, sizes=(2, 18, 3, 20), the_encoder_applies_its_layers_in_turn=(X, PADDING)
)
UNIT.calls(
    "Decoder",
    AXES,
    sizes=(2, 18, 3, 20),
    the_decoder_applies_its_layers_in_turn=(X, MEMORY, PADDING, OF_MEMORY),
)
