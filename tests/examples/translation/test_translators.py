"""What every model promises, whatever it is made of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.common.test_training import fingerprint, kill_at_save
from tests.examples.tiny_run import SETTINGS, begin

from common.batching import pad
from common.searches import beam
from common.tokenizer import BOS, Tokenizer
from transformer_blocks import greedy_search, record_attention
from transformer_blocks.inference import prepare
from translation.decoding import load_translator, translate
from translation.presets import ATTENTIONS, PRESETS, preset_config
from translation.recording import translate_with_attention
from translation.rnn_attention import RecurrentTranslator
from translation.translator import Translator

MODELS = ("transformer", *ATTENTIONS)
SHARED = replace(SETTINGS, shared_vocabulary=True, epochs=2)
WITH_ATTENTION = [name for name in MODELS if name != "rnn-fixed"]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Translator:
    return replace(SETTINGS, model=request.param, num_layers=2).build(20, 20).double().eval()


def test_a_translation_never_sees_its_own_future(model: Translator) -> None:
    source = torch.randint(4, 20, (2, 5))
    target = torch.randint(4, 20, (2, 6))
    before = model(source, target)
    target[:, 4:] = torch.randint(4, 20, (2, 2))
    torch.testing.assert_close(model(source, target)[:, :4], before[:, :4], rtol=0, atol=1e-12)


def test_padding_changes_nothing(model: Translator) -> None:
    source, target = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 6))
    padding = torch.zeros(2, 3, dtype=torch.int64)
    padded = model(torch.cat((source, padding), 1), torch.cat((target, padding), 1))
    torch.testing.assert_close(padded[:, :6], model(source, target), rtol=0, atol=1e-12)


def test_neighbours_change_nothing(model: Translator) -> None:
    source, target = pad([[5, 6, 7, 8], [9, 10]]), pad([[BOS, 5, 6], [BOS, 7, 8]])
    alone = model(source[1:, :2], target[1:])
    torch.testing.assert_close(model(source, target)[1:], alone, rtol=0, atol=1e-12)


def test_a_sentence_of_padding_alone_is_read_without_a_complaint(model: Translator) -> None:
    logits = model(pad([[5, 6], [0, 0]]), pad([[BOS, 5], [BOS, 6]]))
    logits.sum().backward()
    assert logits.isfinite().all()


def test_every_source_word_counts(model: Translator) -> None:
    source, target = torch.randint(4, 20, (1, 5)), torch.randint(4, 20, (1, 6))
    before = model(source, target)
    for position in range(5):
        other = source.clone()
        other[0, position] = (other[0, position] - 3) % 16 + 4
        assert not torch.allclose(model(other, target), before)


@torch.no_grad()
def test_a_step_scores_as_the_whole_model_does(model: Translator) -> None:
    source = pad([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]])
    target = torch.cat((torch.full((3, 1), BOS), torch.randint(4, 20, (3, 4))), dim=1)
    whole = model(source, target)
    for writing in (model, prepare(model)):
        steps = writing.begin(source)
        for position in range(5):
            scores = steps.step(target[:, position])
            torch.testing.assert_close(scores, whole[:, position], rtol=0, atol=1e-12)


@torch.no_grad()
def test_reordered_rows_continue_as_if_alone(model: Translator) -> None:
    source = pad([[5, 6, 7], [8, 9], [10, 11, 12]])
    steps = model.begin(source)
    steps.step(torch.tensor([BOS, BOS, BOS]))
    steps.reorder(torch.tensor([2, 2, 1, 1]))  # two beams each
    steps.step(torch.tensor([7, 8, 9, 10]))
    steps.reorder(torch.tensor([1, 0, 3]))  # one of them changes places, another leaves
    together = steps.step(torch.tensor([11, 11, 11]))
    for row, (sentence, word) in enumerate(((2, 8), (2, 7), (1, 10))):
        alone = model.begin(source[sentence : sentence + 1])
        for token in (BOS, word):
            alone.step(torch.tensor([token]))
        expected = alone.step(torch.tensor([11]))
        torch.testing.assert_close(together[row : row + 1], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_recurrent_decoder_begins_where_both_directions_of_its_layer_ended() -> None:
    model = RecurrentTranslator(20, 20, num_layers=2, d_model=8, d_state=12, attention=None).eval()
    source = torch.randint(4, 20, (3, 5))
    _, _, (hidden, cell) = model.encode(source)
    _, (last_hidden, last_cell) = model.encoder(model.source_embedding(source))
    for found, last in ((hidden, last_hidden), (cell, last_cell)):
        for layer in range(2):
            forward, backward = last[2 * layer], last[2 * layer + 1]  # as torch numbers them
            expected = torch.cat((forward, backward), dim=-1)
            torch.testing.assert_close(found[layer], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_attention_is_recorded_and_ignores_padding(name: str) -> None:
    model = replace(SETTINGS, model=name).build(20, 20).eval()
    source, target = pad([[5, 6, 7], [8, 9]]), pad([[BOS, 5], [BOS, 6]])
    with record_attention(model) as maps:
        model(source, target)
    for layer in model.cross_attentions:
        (weights,) = maps[layer]
        assert weights.shape[2:] == (2, 3)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        assert (weights[1, :, :, 2] == 0).all()


@pytest.mark.parametrize(
    "name",
    ["rnn", *(pytest.param(f"rnn-{x}", marks=pytest.mark.slow) for x in ("additive", "fixed"))],
)
def test_a_recurrent_translator_learns_resumes_and_translates_the_same_in_every_batch(
    name: str, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, model=name, epochs=4)
    whole = begin(tmp_path / "whole", settings)
    first = whole.task.validation_loss(whole.learner.average)
    whole.fit()
    assert whole.task.validation_loss(whole.learner.average) < first - 0.2
    stopped = begin(tmp_path / "stopped", settings)
    kill_at_save(stopped, 2, after=True)
    resumed = begin(tmp_path / "stopped", settings)
    assert resumed.resume()
    resumed.fit()
    assert fingerprint(resumed) == fingerprint(whole)
    loaded = load_translator(whole.run, torch.device("cpu"))
    wide = loaded._replace(model=loaded.model.double())
    sentences = [pair.source for pair in whole.task.corpus.train]
    for search in (greedy_search, beam(3, 1.0)):
        together = translate(wide, sentences, search=search)
        for sentence, translation in zip(sentences, together, strict=True):
            assert translate(wide, [sentence], search=search) == [translation]
    seen = translate_with_attention(loaded, sentences[0], search=greedy_search)
    assert [*seen.weights] == loaded.model.cross_attentions


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", MODELS)
def test_every_preset_builds_every_model(preset: str, name: str) -> None:
    with torch.device("meta"):
        model = preset_config(preset, name).build(100, 100)
    assert isinstance(model, Translator)


@pytest.mark.parametrize(("is_tied", "is_shared"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_sizes_and_the_shared_weights_of_its_configuration(
    name: str, is_tied: bool, is_shared: bool
) -> None:
    sizes: dict[str, Any] = {
        "num_layers": 2,
        "tie_embeddings": is_tied,
        "shared_vocabulary": is_shared,
    }
    config = replace(SETTINGS, model=name, **sizes)
    model: Any = config.build(30 if is_shared else 20, 30)
    assert (model.output.weight is model.target_embedding.weight) == is_tied
    assert (model.source_embedding.weight is model.target_embedding.weight) == is_shared
    assert model.target_embedding.weight.shape == (30, config.d_model)
    if isinstance(model, RecurrentTranslator):
        assert (model.decoder.num_layers, model.decoder.hidden_size) == (2, config.d_ff // 2)
    else:
        assert len(model.decoder.layers) == len(model.encoder.layers) == 2
        assert model.encoder.layers[0].feed_forward.up_projection.out_features == config.d_ff


def test_the_gradient_of_the_matrix_is_the_sum_of_its_three_uses() -> None:
    torch.manual_seed(0)
    shared = SHARED.build(20, 20).double().eval()
    separate = replace(SHARED, shared_vocabulary=False, tie_embeddings=False).build(20, 20)
    separate.double().eval().load_state_dict(shared.state_dict())
    source, target = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 6))
    for model in (shared, separate):
        model(source, target).square().sum().backward()
    gradients = {name: weight.grad for name, weight in separate.named_parameters()}
    names = ("source_embedding.weight", "target_embedding.weight", "output.weight")
    expected = torch.stack([torch.as_tensor(gradients[name]) for name in names]).sum(0)
    torch.testing.assert_close(shared.output.weight.grad, expected)


def test_the_shared_tokenizer_is_trained_on_both_languages(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", SHARED)
    path = training.run.tokenizer_file("shared")
    source, target = training.run.load_tokenizers(training.config)
    assert source.vocab_size == target.vocab_size == Tokenizer(path.read_bytes()).vocab_size
    pairs = training.task.corpus.train
    assert not any(1 in source.encode(text) for pair in pairs for text in pair[:2])  # 1 is unknown
