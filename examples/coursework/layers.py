"""Unit 8: encoder and decoder."""

from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Mistake, Unit, filled, normal, parameters
from transformer_blocks import FeedForward, MultiHeadAttention, PostNorm, PreNorm, causal_mask
from transformer_blocks.interop import from_torch

X, MEMORY = normal(2, 4, 8), normal(2, 3, 8, seed=1)
PADDING = torch.tensor([[False] * 4, [False, False, True, True]])[:, None, None, :]
OF_MEMORY = torch.tensor([[False] * 3, [False, True, True]])[:, None, None, :]


def answer(
    *,
    residual: Any = PostNorm,
    future: Any = causal_mask,
    of_target: Any = lambda mask: mask,
    of_memory: Any = lambda mask: mask,
    source: Any = lambda x, memory: memory,
    stack: Any = lambda make, count: nn.ModuleList(make() for _ in range(count)),
    order: Any = list,
) -> dict[str, Any]:
    """Assemble the library's attention, feed-forward network and residual connection."""

    class EncoderLayer(nn.Module):
        """Self-attention and a feed-forward network."""

        def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
            super().__init__()
            self.self_attention = MultiHeadAttention(d_model, num_heads)
            self.self_attention_residual = residual(d_model, dropout=dropout)
            self.feed_forward = FeedForward(d_model, d_ff)
            self.feed_forward_residual = residual(d_model, dropout=dropout)

        def forward(self, x: Tensor, mask: Any = None) -> Any:
            """Apply both sublayers."""
            mask = of_target(mask)
            x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=mask))
            return self.feed_forward_residual(x, self.feed_forward)

    class DecoderLayer(EncoderLayer):
        """The same with cross-attention."""

        def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
            super().__init__(d_model, num_heads, d_ff, dropout)
            self.cross_attention = MultiHeadAttention(d_model, num_heads)
            self.cross_attention_residual = residual(d_model, dropout=dropout)

        def forward(  # type: ignore[override]
            self, x: Tensor, memory: Any = None, mask: Any = None, memory_mask: Any = None
        ) -> Any:
            """Apply the three sublayers."""
            hidden, mask = future(x.shape[1]), of_target(mask)
            hidden = hidden if mask is None else hidden | mask
            x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=hidden))

            def attend(y: Tensor) -> Any:
                keys = source(y, memory)
                mask = of_memory(memory_mask) if keys is memory else None
                return self.cross_attention(y, keys, keys, mask=mask)

            x = self.cross_attention_residual(x, attend)
            return self.feed_forward_residual(x, self.feed_forward)

    class Stack(nn.Module):
        """Layers in turn."""

        def __init__(self, layer: Any, count: int, *sizes: Any) -> None:
            super().__init__()
            self.layers = stack(lambda: layer(*sizes), count)

        def forward(self, x: Tensor, *memory: Any, **masks: Any) -> Tensor:
            """Apply the layers."""
            for layer in order(self.layers):
                x = layer(x, *memory, **masks)
            return x

    return {
        "EncoderLayer": EncoderLayer,
        "DecoderLayer": DecoderLayer,
        "Encoder": lambda *sizes: Stack(EncoderLayer, *sizes),
        "Decoder": lambda *sizes: Stack(DecoderLayer, *sizes),
    }


def _no_mask(mask: Any) -> None:
    return None


UNIT = Unit(
    "encoder and decoder",
    answer,
    [
        Mistake(
            "no causal mask",
            {"future": lambda length: torch.zeros(length, length, dtype=torch.bool)},
            "bidirectional_mask_in_decoder",
        ),
        Mistake("the past is hidden", {"future": lambda length: causal_mask(length).T}),
        Mistake("the padding mask of the target is not used", {"of_target": _no_mask}),
        Mistake(
            "the mask of the memory is not passed",
            {"of_memory": _no_mask},
            "cross_attention_without_source_mask",
        ),
        Mistake("cross-attention to the target itself", {"source": lambda x, memory: x}),
        Mistake("PreNorm instead of PostNorm", {"residual": PreNorm}),
        Mistake(
            "one layer is applied several times",
            {"stack": lambda make, count: nn.ModuleList([make()] * count)},
            "copied_layers",
        ),
        Mistake(
            "the layers are in a list that torch does not see",
            {"stack": lambda make, count: [make() for _ in range(count)]},
            "layers_in_a_list",
        ),
        Mistake("only the first layer is applied", {"order": lambda layers: layers[:1]}),
        Mistake("the layers are applied from the last", {"order": lambda layers: layers[::-1]}),
    ],
    needs=("masks", "attention", "heads", "feed_forward"),
)


def _theirs(layer: Any) -> Any:
    return filled(layer(8, 2, 16, batch_first=True))


@UNIT.law("EncoderLayer")
def an_encoder_layer_has_the_parts_of_the_docstring(my: Any) -> Any:
    """Names and shapes of the parameters."""
    return parameters(my.EncoderLayer(8, 2, 16))


@UNIT.law("EncoderLayer", "sequence position feature")
def padding_does_not_change_other_positions(my: Any) -> Any:
    """A mask of the second sequence."""
    return filled(my.EncoderLayer(8, 2, 16))(X, mask=PADDING)


@UNIT.law(
    "EncoderLayer",
    "sequence position feature",
    expected=lambda: _theirs(nn.TransformerEncoderLayer)(X, src_mask=causal_mask(4)),
)
def the_encoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """Weights copied from ``nn.TransformerEncoderLayer``."""
    layer = my.EncoderLayer(8, 2, 16).eval()
    layer.load_state_dict(from_torch(_theirs(nn.TransformerEncoderLayer)).state_dict())
    return layer(X, mask=causal_mask(4))


@UNIT.law("DecoderLayer")
def a_decoder_layer_has_the_parts_of_the_docstring(my: Any) -> Any:
    """Names and shapes of the parameters."""
    return parameters(my.DecoderLayer(8, 2, 16))


@UNIT.law("DecoderLayer", "sequence position feature")
def no_output_of_the_decoder_depends_on_a_later_position(my: Any) -> Any:
    """How much the outputs change if the last position of the target does."""
    layer, changed = filled(my.DecoderLayer(8, 2, 16)), X.clone()
    changed[:, -1] = 1.0
    return layer(changed, MEMORY) - layer(X, MEMORY)


@UNIT.law("DecoderLayer", "sequence position feature")
def both_masks_of_the_decoder_are_obeyed(my: Any) -> Any:
    """Padding in the target and in the source."""
    return filled(my.DecoderLayer(8, 2, 16))(X, MEMORY, mask=PADDING, memory_mask=OF_MEMORY)


@UNIT.law(
    "DecoderLayer",
    "sequence position feature",
    expected=lambda: _theirs(nn.TransformerDecoderLayer)(X, MEMORY, tgt_mask=causal_mask(4)),
)
def the_decoder_layer_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """Weights copied from ``nn.TransformerDecoderLayer``."""
    layer = my.DecoderLayer(8, 2, 16).eval()
    layer.load_state_dict(from_torch(_theirs(nn.TransformerDecoderLayer)).state_dict())
    return layer(X, MEMORY)


@UNIT.law("Encoder")
def each_layer_of_the_encoder_has_parameters_of_its_own(my: Any) -> Any:
    """Names and shapes of the parameters."""
    return parameters(my.Encoder(2, 8, 2, 16))


@UNIT.law("Encoder", "sequence position feature")
def the_encoder_applies_its_layers_in_turn(my: Any) -> Any:
    """Two layers, with a mask."""
    return filled(my.Encoder(2, 8, 2, 16))(X, mask=PADDING)


@UNIT.law("Decoder", "sequence position feature")
def the_decoder_applies_its_layers_in_turn(my: Any) -> Any:
    """Two layers, with masks."""
    return filled(my.Decoder(2, 8, 2, 16))(X, MEMORY, mask=PADDING, memory_mask=OF_MEMORY)
