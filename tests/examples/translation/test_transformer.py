from dataclasses import replace

import pytest
import torch
from tests.examples.tiny_run import SETTINGS

from translation.batches import Example, collate
from translation.presets import BASE, SMALL
from translation.training import TranslationLoss
from translation.transformer import Transformer


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_training_minimises_the_loss_of_the_models_own_class(label_smoothing: float) -> None:
    model = replace(SETTINGS, dropout=0.0).build(20, 20).double()
    assert isinstance(model, Transformer)
    sentences = [Example([5, 6, 7], [8, 9]), Example([5], [10, 11, 12, 13]), Example([8], [])]
    batch, task = collate(sentences), TranslationLoss(label_smoothing)
    whole = torch.cat((batch.target[:, :1], batch.next_token), dim=1)
    losses = (
        task.loss(model, *batch) / task.count(sentences),
        model.loss(batch.source, whole, label_smoothing=label_smoothing),
    )
    torch.testing.assert_close(*losses)
    gradients = (torch.autograd.grad(loss, [*model.parameters()]) for loss in losses)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


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
