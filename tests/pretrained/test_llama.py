"""A Llama from sizes: its parts, and where its loss begins."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from transformer_blocks import (
    GatedFeedForward,
    LanguageModel,
    MixtureOfExperts,
    RotaryPositionalEncoding,
)
from transformer_blocks.inspection import check_soundness
from transformer_blocks.pretrained import build_llama

SIZES: dict[str, Any] = {"num_layers": 3, "d_model": 16, "num_heads": 4, "num_key_value_heads": 2}
small = partial(build_llama, 30, **SIZES, d_ff=24)
MODELS: dict[str, Callable[[], LanguageModel]] = {
    "llama": small,
    "windows, norms": lambda: small(windows=(3, None), query_key_norm=True, tied=False, d_k=6),
    "experts": lambda: small(
        feed_forward=lambda: MixtureOfExperts(
            16, num_experts=4, top_k=2, expert=lambda: GatedFeedForward(16, 8)
        )
    ),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@every_model
def test_it_is_sound_and_its_loss_begins_near_the_logarithm_of_the_vocabulary(
    make: Callable[[], LanguageModel],
) -> None:
    model, tokens = make().double().eval(), torch.randint(1, 30, (4, 12))
    report = check_soundness(model, tokens[:2, :6])
    assert report, report
    assert model.loss(tokens).item() == pytest.approx(math.log(30), abs=0.2)


def test_layers_with_a_window_have_their_own_positions_in_turn() -> None:
    def rotary(base: float) -> Callable[[], RotaryPositionalEncoding]:
        return partial(RotaryPositionalEncoding, 4, base=base)

    model = small(windows=(5, 5, None), rotary=rotary(9.0), window_rotary=rotary(8.0))
    layers: list[Any] = [layer.self_attention for layer in model.decoder.layers]
    assert [layer.transforms[0].base for layer in layers] == [8.0, 8.0, 9.0]
    windows = [getattr(layer.attention_function, "window", None) for layer in layers]
    assert windows == [5, 5, None]


def test_the_one_billion_parameters_of_llama_3_2_are_those_of_its_sizes() -> None:
    with torch.device("meta"):
        model = build_llama(128_256)
    assert sum(weight.numel() for weight in model.parameters()) == 1_235_814_400
    small = build_llama(
        30, num_layers=1, d_model=16, num_heads=2
    )  # too few heads for groups of four
    attention: Any = small.decoder.layers[0].self_attention
    assert attention.num_key_value_heads == 1
