import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import TranslationTraining, begin, make_corpus
from tests.explorer.page import data_of
from tests.explorer.page_script import Script

from common.batching import pad
from common.checkpoint import checkpoint_paths, load_checkpoint, step_of
from common.searches import Search, beam
from common.terminal import counted
from common.tokenizer import BOS, EOS
from transformer_blocks import greedy_search, record_attention
from transformer_blocks.generation import Generation
from transformer_blocks.inference import prepare
from translation.decoding import TrainedTranslator, load_translator, translate
from translation.exploring import explore, snapshots_of
from translation.recording import translate_with_attention


@pytest.fixture
def translator(trained: TranslationTraining) -> TrainedTranslator:
    """Return the model of a training as it is loaded from its run."""
    task = trained.task
    return TrainedTranslator(task.config, trained.model.eval(), *task.tokenizers)


@pytest.mark.parametrize("search", [greedy_search, beam(4, 1.0)])
def test_a_translation_that_never_ends_is_cut_by_the_length_of_its_own_source(
    translator: TrainedTranslator, search: Search
) -> None:
    lengths: list[int] = []

    def endless(*given: Any, end_id: object, **options: Any) -> list[Generation]:
        found = search(*given, end_id=None, **options)
        lengths.extend(len(each.tokens) for each in found)
        return found

    sentences = ["犬が走る。", "犬が走る。" * 3, "猫が眠る。猫が眠る。"]
    together = translate(translator, sentences, search=endless)
    assert together == [translate(translator, [each], search=endless)[0] for each in sentences]
    assert sorted(lengths[:3]) == sorted(lengths[3:])
    assert len(set(lengths)) == 3


@pytest.mark.parametrize("words", [1, 3, 200])
def test_a_translation_has_at_most_twice_the_tokens_of_its_source_and_ten_more(
    translator: TrainedTranslator, words: int
) -> None:
    limits: list[int] = []

    def record(*given: Any, max_length: Any, **options: Any) -> list[Generation]:
        limits.extend(max_length)
        return greedy_search(*given, max_length=max_length, **options)

    most, sentence = translator.model.max_length, "犬が走る。" * words
    translate(translator, [sentence], search=record)
    translate_with_attention(translator, sentence, search=record)
    source = min(len(translator.source.encode(sentence)) + 1, most)  # the end token too
    assert limits == [min(2 * source + 10, most)] * 2


@pytest.mark.parametrize(
    ("search", "dtype"),
    [
        (greedy_search, torch.float32),
        (beam(1, 1.0), torch.float64),
        (beam(4, 1.0), torch.float32),
        (beam(8, 0.0), torch.float64),
    ],
)
def test_translations_come_in_the_callers_order_and_do_not_depend_on_the_batch(
    translator: TrainedTranslator, search: Search, dtype: torch.dtype
) -> None:
    model = copy.deepcopy(translator.model).to(dtype)
    plain, prepared = (translator._replace(model=each) for each in (model, prepare(model)))
    sentences = [pair.source for pair in make_corpus().train]
    sentences[3] = sentences[3] * 2
    one_by_one = [translate(plain, [sentence], search=search)[0] for sentence in sentences]
    for each, batch_tokens in ((plain, 1), (plain, 40), (plain, 10_000), (prepared, 40)):
        found = translate(each, sentences, search=search, batch_tokens=batch_tokens)
        assert found == one_by_one
    assert len(set(one_by_one)) > 1


@torch.no_grad()
def test_a_search_ends_where_the_positions_do(translator: TrainedTranslator) -> None:
    model = translator.model
    source, start = pad([[5, 6, 7]]), torch.tensor([BOS])
    most = model.max_length
    for search in (greedy_search, beam(3, 1.0)):
        (written,) = search(model.begin(source), start, end_id=None, max_length=[most])
        assert len(written.tokens) == most
        with pytest.raises(
            ValueError, match=f"^positions must stay below max_length, got offset={most}"
        ):
            search(model.begin(source), start, end_id=None, max_length=[most + 1])


def test_recording_attention_of_a_cut_sentence_logs_a_warning(
    translator: TrainedTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    seen = translate_with_attention(translator, "犬" * 500, search=greedy_search)
    most = translator.model.max_length
    assert len(seen.source) == most
    expected = f"the sentence was truncated to the model's {most - 1} tokens"
    assert set(caplog.messages) == {expected}


def test_translating_leaves_the_mode_of_the_model_alone(translator: TrainedTranslator) -> None:
    for mode in (True, False):
        translator.model.train(mode)
        translate(translator, ["犬が走る。"], search=greedy_search)
        assert translator.model.training is mode


def test_progress_adds_up_to_the_sentences_translated(translator: TrainedTranslator) -> None:
    done: list[int] = []
    sentences = ["犬。"] * 5
    translate(translator, sentences, search=greedy_search, batch_tokens=8, progress=done.append)
    assert sum(done) == 5


def test_an_attention_record_holds_source_and_target_tokens(translator: TrainedTranslator) -> None:
    _, model, source_tokenizer, target_tokenizer = translator
    seen = translate_with_attention(translator, "犬が走る。", search=greedy_search)
    assert [seen.translation] == translate(translator, ["犬が走る。"], search=greedy_search)
    ids = [BOS, *target_tokenizer.encode(seen.translation)]
    source = torch.tensor([[*source_tokenizer.encode("犬が走る。"), EOS]])
    with torch.no_grad(), record_attention(model) as maps:
        logits = model(source, torch.tensor([ids])[:, : len(seen.target)])
    weights = seen.weights[model.cross_attentions[-1]]
    assert weights.shape == (2, len(seen.target), len(seen.source))
    torch.testing.assert_close(weights, maps[model.cross_attentions[-1]][0][0])
    for candidates, scores in zip(seen.candidates, logits[0].softmax(-1), strict=True):
        assert [chance for _, chance in candidates] == pytest.approx(scores.topk(5).values.tolist())
    assert "".join(seen.source).replace("▁", "").startswith("犬が走る。")


def test_the_page_holds_the_arithmetic_and_the_predictions_of_each_layer(
    translator: TrainedTranslator, tmp_path: Path
) -> None:
    seen = translate_with_attention(translator, "犬が走る。", search=greedy_search)
    assert seen.layers is not None
    assert len(seen.layers) == len(translator.model.decoder_layers) > 0
    for found, expected in zip(seen.layers[-1], seen.candidates, strict=True):
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert [chance for _, chance in found] == pytest.approx([each for _, each in expected])
    page = tmp_path / "page.html"
    explore(translator, ["犬が走る。"], page, search=greedy_search)
    content = data_of(page.read_text("utf-8"))
    assert len(content["decoding"]["layers"]) == len(seen.layers)
    axes = [(maps["queryAxis"], maps["keyAxis"]) for maps in content["maps"]]
    reads = "target (input of the decoder)"
    assert axes == [("source", "source"), (reads, reads), ("target", "source")]
    for maps in content["maps"]:
        assert maps["arithmetic"]["difference"] <= 1 / content["levels"]


def test_the_page_shows_the_snapshots_of_a_training_and_the_best_weights_last(
    tmp_path: Path,
) -> None:
    training, file = begin(tmp_path / "run", snapshots=True), tmp_path / "page.html"
    training.fit()
    trained = load_translator(training.run, torch.device("cpu"))
    snapshots = snapshots_of(training.run, trained)
    sentences = ["犬が走る。", "猫が走る。"]
    title = explore(trained, sentences, file, search=greedy_search, snapshots=snapshots)
    content = data_of(file.read_text("utf-8"))
    shown = [[*page["earlier"], page] for page in (content, *content["others"])]
    earlier, (best,) = map(checkpoint_paths, (training.run.snapshots, training.run.best))
    paths = [*(path for path in earlier if step_of(path) < step_of(best)), best]
    assert len(paths) >= 5
    for *times, checkpoint in zip(*shown, map(load_checkpoint, paths), strict=True):
        model = copy.deepcopy(trained.model)
        model.load_state_dict(checkpoint.tensors["model"])
        outputs = translate(trained._replace(model=model), sentences, search=greedy_search)
        bleu = checkpoint.state["validation_bleu"]
        updates = f"{counted(checkpoint.step, 'update')}, validation BLEU {bleu:.1f}"
        for sentence, output, time in zip(sentences, outputs, times, strict=True):
            assert time["title"] == f"{sentence} → {output}"
            assert time["model"] == f"Transformer, {updates}"
        assert times[0]["decoding"]["tokens"] == content["decoding"]["tokens"]
    assert title == content["title"]
    assert content["earlier"][0]["maps"][2]["weights"] != content["maps"][2]["weights"]
    page = Script(file.read_text("utf-8"))
    page("playTimes(0), 0")
    page("$('live-text').value = '鳥が走る。', runText(), 0")  # by the last model
    page("pass(20), 0")
    state = "[$('times-name').textContent, Number($('time').value), $('times-play').textContent]"
    assert page(state) == [content["model"], len(paths) - 1, "Watch it learn"]
    assert page("data.title") == f"鳥が走る。 → {page('live.results.texts[0]')}"
    page("open({sequence: 1, time: 0}), pass(20), 0")
    assert page("data.title") == content["others"][0]["earlier"][0]["title"]


def test_only_a_finished_translation_is_recorded_with_its_end_token(
    translator: TrainedTranslator,
) -> None:
    tokens = translator.target.encode("The dog")
    for finished in (True, False):
        found = [Generation(tokens, 0.0, finished=finished)]
        seen = translate_with_attention(
            translator, "犬が走る。", search=lambda *_, f=found, **__: f
        )
        assert seen.ids == [*tokens, EOS][: len(tokens) + finished]
