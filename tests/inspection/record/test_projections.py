"""The recorded queries, keys and values are those from which attention is computed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.inspection.foreign import FAMILIES
from torch import Tensor, nn

from transformer_blocks import (
    ALiBi,
    KeyValueCache,
    MultiHeadAttention,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    SingleHeadAttention,
    build_encoder,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import Projections, record_projections

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12}


def recompute(projections: Projections, weights: Tensor) -> Tensor:
    """Compute weights from queries and keys; masked positions are those without weight."""
    query, key, _, scale = projections
    scores = (query @ key.mT * scale).masked_fill(weights == 0.0, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0)  # the rows that are fully masked


def assert_reproduced(
    projections: dict[str, list[Projections]], maps: dict[str, list[Tensor]], *, calls: int = 1
) -> None:
    assert projections.keys() == maps.keys()
    for name, recorded in projections.items():
        assert len(recorded) == len(maps[name]) == calls
        for each, weights in zip(recorded, maps[name], strict=True):
            assert each.value.shape[:3] == each.key.shape[:3]
            torch.testing.assert_close(recompute(each, weights), weights, atol=1e-5, rtol=0.0)


def layer_of(kind: str) -> MultiHeadAttention | SingleHeadAttention:
    transforms = [RotaryPositionalEncoding(4), QueryKeyNorm(4)]
    explicit = scaled_dot_product_attention
    layers: dict[str, Callable[[], MultiHeadAttention | SingleHeadAttention]] = {
        "plain": lambda: MultiHeadAttention(16, 4),
        "explicit": lambda: MultiHeadAttention(16, 4, attention_function=explicit),
        "transforms": lambda: MultiHeadAttention(16, 4, transforms=transforms),
        "grouped": lambda: MultiHeadAttention(16, 4, num_key_value_heads=2, transforms=transforms),
        "single": lambda: SingleHeadAttention(16, scale=0.3),
    }
    return layers[kind]()


@pytest.mark.parametrize("kind", ["plain", "explicit", "transforms", "grouped", "single"])
def test_the_softmax_of_recorded_scores_is_the_recorded_weights(kind: str) -> None:
    layer = layer_of(kind)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    with record_attention(layer) as maps, record_projections(layer) as projections:
        layer(x, x, x, causal=True)
        output = layer(x, key=memory, value=memory)
    assert_reproduced(projections, maps, calls=2)
    query, _, value, _ = recorded = projections[""][1]
    num_heads = 1 if kind == "single" else 4
    assert query.shape == (2, num_heads, 5, 16 // num_heads)
    assert value.shape == (2, num_heads, 7, 16 // num_heads)
    heads = recompute(recorded, maps[""][1]) @ value
    torch.testing.assert_close(layer.output_projection(heads.transpose(1, 2).flatten(2)), output)
    assert not query.requires_grad


@pytest.mark.parametrize("kind", ["plain", "transforms", "grouped"])
@torch.no_grad()
def test_cached_steps_have_the_queries_keys_and_values_of_one_pass(kind: str) -> None:
    layer, x, cache = layer_of(kind), torch.randn(2, 5, 16), KeyValueCache()
    with record_projections(layer) as projections:
        layer(x, x, x, causal=True)
        for start, end in ((0, 3), (3, 4), (4, 5)):
            part = x[:, start:end]
            layer(part, part, part, causal=True, cache=cache)
        layer(x[:, :2], cache=cache)
        cache.reorder(torch.tensor([1, 1]))  # changes the cache, and nothing that was recorded
    full, first, *steps, read = projections[""]
    torch.testing.assert_close(read[1:3], full[1:3])
    for step in steps:
        size = step.key.shape[2]
        torch.testing.assert_close(step.query, full.query[:, :, size - 1 : size])
        torch.testing.assert_close(step.key, full.key[:, :, :size])
        torch.testing.assert_close(step.value, full.value[:, :, :size])
    assert first.key.shape[2] == 3


@torch.no_grad()
def test_a_model_prepared_for_inference_is_recorded_too() -> None:
    encoder = build_encoder(**SIZES).eval()
    prepared, x = prepare(encoder), torch.randn(2, 4, 8)
    recorded = []
    for model in (encoder, prepared):
        with record_projections(model, only=lambda name: "0" in name) as projections:
            model(x)
        recorded.append(projections)
    first, second = recorded
    assert first.keys() == second.keys() == {"layers.0.self_attention"}
    torch.testing.assert_close(first, second)


def test_other_attention_functions_are_recorded_and_differ_from_their_weights() -> None:
    layer, x = MultiHeadAttention(8, 2, attention_function=ALiBi(2)), torch.randn(1, 5, 8)
    with record_attention(layer) as maps, record_projections(layer) as projections:
        layer(x, x, x)
    assert not torch.allclose(recompute(projections[""][0], maps[""][0]), maps[""][0], atol=1e-3)


# --- Modules of torch and of others --------------------------------------------------------------


class Fused(nn.Module):
    """An attention with the fused kernel, whose keys and values may be shared by heads."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.projection = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q = k = v = self.projection(x).unflatten(-1, (4, 2)).transpose(1, 2)  # (B, 4, L, 2)
        if self.kind == "grouped":
            output = F.scaled_dot_product_attention(
                q, k[:, :2], v[:, :2], scale=2.0, enable_gqa=True
            )
        elif self.kind == "one key head":
            output = F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], is_causal=True)
        else:
            output = (q @ k.mT).softmax(-1) @ v
        q.data.zero_()  # changes nothing that was recorded
        return output


@pytest.mark.parametrize("kind", ["grouped", "one key head"])
def test_projections_of_the_fused_kernel_have_the_heads_of_the_queries(kind: str) -> None:
    model, x = Fused(kind), torch.randn(2, 5, 8)
    with record_attention(model) as maps, record_projections(model) as projections:
        output = model(x)
    assert_reproduced(projections, maps)
    (recorded,) = projections[""]
    assert recorded.query.shape == recorded.key.shape == recorded.value.shape == (2, 4, 5, 2)
    torch.testing.assert_close(maps[""][0] @ recorded.value, output)


def test_the_scale_is_that_of_the_queries_whatever_the_size_of_the_values() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, value)

    model, x = Model(), torch.randn(1, 2, 5, 4)
    with record_attention(model) as maps, record_projections(model) as projections:
        model(x, torch.randn(1, 2, 5, 16))
    assert_reproduced(projections, maps)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Marian", "Llama", "Qwen 3"])
@torch.no_grad()
def test_projections_of_models_of_hugging_face_reproduce_their_weights(name: str) -> None:
    family = FAMILIES[name]
    model, inputs = family.build().eval(), family.inputs(padded=True)
    with record_attention(model) as maps, record_projections(model) as projections:
        if family.kind == "decoder":
            model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
        else:
            model(**inputs)
    assert_reproduced(projections, maps, calls=3 if family.kind == "decoder" else 1)


def test_a_configuration_that_raises_its_own_error_does_not_stop_the_recording() -> None:
    class Config:
        @property
        def num_attention_heads(self) -> int:
            raise RuntimeError("the layers have different numbers of heads")

    class Attention(nn.Module):
        config, num_key_value_groups = Config(), 2

        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.randn(1, 4, 3, 8)
    model = Attention()
    with record_attention(model) as maps:
        assert model(x).equal(F.scaled_dot_product_attention(x, x, x))
    assert maps[""][0].shape == (1, 4, 3, 3)


def test_heads_that_are_folded_into_the_length_are_recorded_as_heads_with_their_own_masks() -> None:
    class Attention(nn.Module):
        config, num_key_value_groups = SimpleNamespace(num_attention_heads=4), 2

        def forward(self, query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
            folded = query.view(2, 2, 2, 8), mask.view(2, 2, 2, 3)
            return F.scaled_dot_product_attention(folded[0], key, key, attn_mask=folded[1])

    query, key, mask = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 3, 8), torch.randn(2, 4, 1, 3)
    model = Attention()
    with record_attention(model) as maps, record_projections(model) as projections:
        model(query, key, mask)
    (recorded,) = projections[""]
    assert recorded.query.equal(query)
    assert recorded.key.equal(key.repeat_interleave(2, dim=1))
    scores = query @ recorded.key.mT * recorded.scale + mask
    torch.testing.assert_close(maps[""], [scores.softmax(-1)])
