"""Unit 8: encoder and decoder."""

from typing import Any

import torch
from torch import nn

from coursework.grader import Unit, filled, normal
from transformer_blocks import causal_mask
from transformer_blocks.interop import from_torch

X, MEMORY = normal(2, 4, 8), normal(2, 3, 8, seed=1)
PADDING = torch.tensor([[False] * 4, [False, False, True, True]])[:, None, None, :]
OF_MEMORY = torch.tensor([[False] * 3, [False, True, True]])[:, None, None, :]
AXES = "sequence position feature"
UNIT = Unit(__name__, "encoder and decoder", needs=("masks", "attention", "heads", "feed_forward"))
UNIT.calls(
    "EncoderLayer", AXES, sizes=(8, 2, 16), padding_does_not_change_other_positions=(X, PADDING)
)


def _theirs(layer: Any) -> Any:
    return filled(layer(8, 2, 16, batch_first=True))


@UNIT.law(
    "EncoderLayer",
    AXES,
    expected=lambda: _theirs(nn.TransformerEncoderLayer)(X, src_mask=causal_mask(4)),
)
def the_encoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.TransformerEncoderLayer."""
    layer = my.EncoderLayer(8, 2, 16).eval()
    layer.load_state_dict(from_torch(_theirs(nn.TransformerEncoderLayer)).state_dict())
    return layer(X, mask=causal_mask(4))


UNIT.calls(
    "DecoderLayer",
    AXES,
    sizes=(8, 2, 16),
    both_masks_of_the_decoder_are_obeyed=(X, MEMORY, PADDING, OF_MEMORY),
)


@UNIT.law("DecoderLayer", AXES)
def no_output_of_the_decoder_depends_on_a_later_position(my: Any) -> Any:
    """The change of the outputs if only the last target vector changes."""
    layer, changed = filled(my.DecoderLayer(8, 2, 16)), X.clone()
    changed[:, -1] = 1.0
    return layer(changed, MEMORY) - layer(X, MEMORY)


@UNIT.law(
    "DecoderLayer",
    AXES,
    expected=lambda: _theirs(nn.TransformerDecoderLayer)(X, MEMORY, tgt_mask=causal_mask(4)),
)
def the_decoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """The output with the weights of an nn.TransformerDecoderLayer."""
    layer = my.DecoderLayer(8, 2, 16).eval()
    layer.load_state_dict(from_torch(_theirs(nn.TransformerDecoderLayer)).state_dict())
    return layer(X, MEMORY)


UNIT.calls(
    "Encoder", AXES, sizes=(2, 8, 2, 16), the_encoder_applies_its_layers_in_turn=(X, PADDING)
)
UNIT.calls(
    "Decoder",
    AXES,
    sizes=(2, 8, 2, 16),
    the_decoder_applies_its_layers_in_turn=(X, MEMORY, PADDING, OF_MEMORY),
)
