import torch

from translation.presets import BASE, SMALL
from translation.transformer import Transformer


def test_the_base_preset_is_the_papers_model() -> None:
    with torch.device("meta"):
        model = BASE.build(37000, 37000)
    layers, width, inner = 6, 512, 2048  # table 3, and section 3.3
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    norm = 2 * width
    encoder = layers * (attention + feed_forward + 2 * norm)
    decoder = layers * (2 * attention + feed_forward + 3 * norm)
    table = 37000 * width  # one for source embedding, target embedding and output (section 3.4)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == encoder + decoder + table == 63_082_496  # table 3 says 65 million


def test_pre_norm_stacks_end_with_a_norm() -> None:
    with torch.device("meta"):
        for settings, has_norm in ((SMALL, True), (BASE, False)):
            model = settings.build(100, 100)
            assert isinstance(model, Transformer)
            assert (model.encoder.norm is not None) == has_norm
