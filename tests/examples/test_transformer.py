import pytest
import torch
from tests.examples.tiny_run import SETTINGS

from translation.presets import BASE, PRESETS, SMALL
from translation.transformer import Transformer


@pytest.fixture
def model() -> Transformer:
    return SETTINGS.build(20, 20).double().eval()


def test_a_translation_never_sees_its_own_future(model: Transformer) -> None:
    source = torch.randint(4, 20, (2, 5))
    target = torch.randint(4, 20, (2, 6))
    before = model(source, target)
    target[:, 4:] = torch.randint(4, 20, (2, 2))
    torch.testing.assert_close(model(source, target)[:, :4], before[:, :4], rtol=0, atol=1e-12)


@pytest.mark.parametrize("amount", [1, 7])
def test_padding_changes_nothing(model: Transformer, amount: int) -> None:
    source, target = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 6))
    padding = torch.zeros(2, amount, dtype=torch.int64)
    padded = model(torch.cat((source, padding), 1), torch.cat((target, padding), 1))
    torch.testing.assert_close(padded[:, :6], model(source, target), rtol=0, atol=1e-12)


def test_every_source_word_counts(model: Transformer) -> None:
    source, target = torch.randint(4, 20, (1, 5)), torch.randint(4, 20, (1, 6))
    before = model(source, target)
    for position in range(5):
        other = source.clone()
        other[0, position] = (other[0, position] - 3) % 16 + 4
        assert not torch.allclose(model(other, target), before)


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
        assert isinstance(PRESETS[preset].build(100, 100), Transformer)


def test_pre_norm_stacks_end_with_a_norm() -> None:
    with torch.device("meta"):
        assert SMALL.build(100, 100).encoder.norm is not None
        assert BASE.build(100, 100).encoder.norm is None
