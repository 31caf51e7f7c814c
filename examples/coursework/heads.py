"""Unit 6: multi-head attention."""

from typing import Any

import torch
from torch import Tensor, nn

from coursework.grader import Mistake, Unit, filled, normal, parameters
from transformer_blocks import MultiHeadAttention, scaled_dot_product_attention
from transformer_blocks.interop import from_torch

X, MEMORY = normal(2, 4, 8), normal(2, 4, 8, seed=1)
FUTURE = torch.ones(4, 4, dtype=torch.bool).triu(1)
OTHERS = normal(2, 4, 8, seed=2)


def answer(
    *,
    split: Any = lambda x, h: torch.stack(x.chunk(h, -1), 1),
    merge: Any = lambda heads: torch.cat(heads.unbind(1), -1),
    project: Any = lambda layer, x: layer.output_projection(x),
    scale: Any = lambda layer: None,
    is_masked: bool = True,
    source: int = 2,
) -> dict[str, Any]:
    """Attend in each head with the library's attention."""

    class Heads(MultiHeadAttention):
        """The layer; its parameters are those of the library's."""

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Any:  # type: ignore[override]
            """Project, attend, and merge."""
            queries = split(self.query_projection(query), self.num_heads)
            keys = split(self.key_projection(key), self.num_heads)
            values = split(self.value_projection((query, key, value)[source]), self.num_heads)
            heads, _ = scaled_dot_product_attention(
                queries, keys, values, mask=mask if is_masked else None, scale=scale(self)
            )
            return project(self, merge(heads))

    return {"split_heads": split, "merge_heads": merge, "MultiHeadAttention": Heads}


def _cut(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _join(heads: Tensor) -> Tensor:
    return heads.reshape(heads.shape[0], heads.shape[2], -1)


def _interleave(x: Tensor, num_heads: int) -> Tensor:
    return torch.stack([x[:, :, head::num_heads] for head in range(num_heads)], 1)


UNIT = Unit(
    "multi-head attention",
    answer,
    [
        Mistake(
            "heads are cut without a transpose", {"split": _cut}, "heads_cut_without_transpose"
        ),
        Mistake(
            "heads are joined without a transpose",
            {"merge": _join},
            "heads_joined_without_transpose",
        ),
        Mistake(
            "heads are cut and joined without a transpose",
            {"split": _cut, "merge": _join},
            "heads_cut_without_transpose",
        ),
        Mistake(
            "features of a head are interleaved",
            {
                "split": _interleave,
                "merge": lambda heads: torch.stack(heads.unbind(1), -1).flatten(2),
            },
        ),
        Mistake(
            "the scores are scaled by d_model",
            {"scale": lambda layer: (layer.num_heads * layer.d_k) ** -0.5},
            "scale_of_all_heads",
        ),
        Mistake("no output projection", {"project": lambda layer, x: x}),
        Mistake("the mask is not passed", {"is_masked": False}, "bidirectional_mask_in_decoder"),
        Mistake("values are made of the keys", {"source": 1}),
        Mistake("values are made of the queries", {"source": 0}),
    ],
    needs=("attention",),
)


@UNIT.law("split_heads", "batch head position feature")
def head_h_has_consecutive_features(my: Any) -> Any:
    """Four heads."""
    return my.split_heads(X, 4)


@UNIT.law("merge_heads", "batch position feature")
def the_heads_are_concatenated(my: Any) -> Any:
    """Two heads of four features."""
    return my.merge_heads(normal(2, 2, 5, 4))


@UNIT.law("split_heads", "batch position feature", expected=lambda: X)
def merged_heads_are_the_input_again(my: Any) -> Any:
    """The inverse."""
    return my.merge_heads(my.split_heads(X, 4))


@UNIT.law("MultiHeadAttention")
def the_projections_have_their_names_and_shapes(my: Any) -> Any:
    """As the docstring lists them."""
    return parameters(my.MultiHeadAttention(8, 2))


@UNIT.law("MultiHeadAttention", "batch query feature")
def queries_and_keys_and_values_may_be_of_different_sequences(my: Any) -> Any:
    """Cross-attention."""
    return filled(my.MultiHeadAttention(8, 2))(X, MEMORY, OTHERS)


@UNIT.law("MultiHeadAttention", "batch query feature")
def a_mask_hides_keys(my: Any) -> Any:
    """A causal mask."""
    return filled(my.MultiHeadAttention(8, 4))(X, X, X, mask=FUTURE)


@UNIT.law("MultiHeadAttention", "batch query feature")
def a_padding_mask_hides_keys_in_all_heads(my: Any) -> Any:
    """Another mask for each sequence."""
    mask = torch.tensor([[False] * 4, [False] * 2 + [True] * 2])[:, None, None, :]
    return filled(my.MultiHeadAttention(8, 2))(X, X, X, mask=mask)


def _torch_layer() -> Any:
    return filled(nn.MultiheadAttention(8, 2, batch_first=True))


@UNIT.law(
    "MultiHeadAttention",
    "batch query feature",
    expected=lambda: _torch_layer()(X, MEMORY, OTHERS, attn_mask=FUTURE)[0],
)
def the_output_equals_that_of_torch_with_the_same_weights(my: Any) -> Any:
    """Weights copied from ``nn.MultiheadAttention``."""
    layer = my.MultiHeadAttention(8, 2)
    layer.load_state_dict(from_torch(_torch_layer()).state_dict())
    return layer(X, MEMORY, OTHERS, mask=FUTURE)
