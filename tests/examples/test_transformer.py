import pytest
import torch

from translation.presets import BASE, PRESETS, SMALL, settings_for
from translation.transformer import Transformer


def test_tied_embeddings_are_one_table() -> None:
    tied = Transformer(20, 30, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    untied = Transformer(
        20, 30, num_layers=1, d_model=16, num_heads=2, d_ff=32, tie_embeddings=False
    )
    assert tied.output.weight is tied.target_embedding.weight
    assert untied.output.weight is not untied.target_embedding.weight


def test_the_base_preset_is_the_papers_model() -> None:
    with torch.device("meta"):
        model = BASE.build(37000, 37000)
    tables = 2 * 37000 * 512  # the paper shares one; we keep a table for each language
    layers = sum(parameter.numel() for parameter in model.parameters()) - tables
    assert layers == pytest.approx(65e6 - 37000 * 512, rel=0.05)  # table 3: 65 million in all


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_a_model(preset: str) -> None:
    with torch.device("meta"):
        assert isinstance(settings_for(preset, "transformer").build(100, 100), Transformer)


def test_pre_norm_stacks_end_with_a_norm() -> None:
    with torch.device("meta"):
        for settings, has_norm in ((SMALL, True), (BASE, False)):
            model = settings.build(100, 100)
            assert isinstance(model, Transformer)
            assert (model.encoder.norm is not None) == has_norm
