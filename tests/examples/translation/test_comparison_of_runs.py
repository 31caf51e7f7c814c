"""Runs side by side: the same figures as each alone, in a table that can be read."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples.tiny_run import SETTINGS, begin, make_corpus

from common.errors import UserError
from common.tokenizer import EOS
from transformer_blocks import greedy_search
from translation.comparison import (
    ComparedRun,
    attention_along,
    check_comparable,
    compare,
    length_groups,
    load_runs,
    names_of,
    read_metrics,
)
from translation.decoding import translate as write
from translation.presets import ATTENTIONS
from translation.scoring import bootstrap, score

MODELS = ("transformer", *ATTENTIONS)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[ComparedRun]:
    """A run of every model, little trained."""
    folder = tmp_path_factory.mktemp("runs")
    for model in MODELS:
        begin(folder / model, replace(SETTINGS, model=model, epochs=1)).fit()
    return load_runs([folder / model for model in MODELS], torch.device("cpu"))


def test_each_run_is_tested_against_the_first(
    compared: list[ComparedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus()
    monkeypatch.setattr("translation.comparison.TIMED", 1)
    lines = {
        each.name: write(each.trained, [pair.source for pair in corpus.test], search=greedy_search)
        for each in compared
    }
    for order in (compared, [*compared[::-1], compared[-1]]):
        _, results = compare(order, corpus, search=greedy_search)
        assert results[0]["p_value"] is None
        references = [pair.reference for pair in corpus.test]
        outputs = [lines[each.name] for each in order]
        expected = bootstrap(outputs, references, tokenize=corpus.bleu_tokenizer)
        assert [each["p_value"] for each in results[1:]] == expected
    assert results[-1]["p_value"] == 1.0  # the first one again


def test_the_bootstrap_tells_a_difference_from_chance() -> None:
    references = [f"a{i} b{i} c{i} d{i} e{i} f{i}" for i in range(60)]
    cut = [line.replace("c", "x") for line in references]

    def mixed(of_cut: range) -> list[str]:
        return [cut[i] if i in of_cut else references[i] for i in range(60)]

    better, half, other_half = (mixed(range(*ends)) for ends in ((0, 6), (0, 30), (30, 60)))
    assert bootstrap([half, half], references, tokenize="none") == [1.0]
    from_half = bootstrap([half, other_half, better, cut], references, tokenize="none")
    assert from_half[0] > 0.2  # as good, on other sentences
    assert max(from_half[1:]) < 0.01
    # Paired: one sentence better, and none worse, is no evidence; ten are.
    few, more = (mixed(range(count, 30)) for count in (1, 10))
    one, ten = bootstrap([half, few, more], references, tokenize="none")
    assert one > 0.05
    assert ten < 0.01


def test_the_picture_has_a_panel_for_every_layer_and_head(compared: list[ComparedRun]) -> None:
    pair = make_corpus().test[0]
    looks = attention_along(compared, pair)
    assert [name for name, *_ in looks] == ["transformer", "rnn", "rnn-additive"]
    for contestant, (_, look, layers) in zip(compared, looks, strict=False):
        _, model, _, target = contestant.trained
        ids = [*target.encode(pair.target), EOS]
        assert look.target == target.subwords(ids)
        assert layers == model.cross_attentions
        for layer in layers:
            weights = look.weights[layer]
            assert weights.shape[1:] == (len(look.target), len(look.source))
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert len(looks[0][1].weights["decoder.layers.0.cross_attention"]) == 2


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(2, 5))
def test_groups_of_lengths_hold_every_sentence_once(lengths: list[int], groups: int) -> None:
    found = length_groups(lengths, groups=groups)
    places = [place for _, group in found for place in group]
    assert sorted(places) == list(range(len(lengths)))
    assert len(found) <= groups
    bounds = [sorted({lengths[place] for place in group}) for _, group in found]
    assert all(a[-1] < b[0] for a, b in pairwise(bounds))
    for (title, _), inside in zip(found, bounds, strict=True):
        ends = f"{inside[0]}-{inside[-1]}" if len(inside) > 1 else str(inside[0])
        assert title == ends


def test_runs_of_one_name_are_distinguished() -> None:
    assert names_of([Path("a/x"), Path("b/x")]) == ["a/x", "b/x"]


def test_runs_of_other_sentences_are_not_compared(compared: list[ComparedRun]) -> None:
    other = compared[1]
    config = replace(other.trained.config, corpus="toy", data_hash="0")
    other = replace(other, trained=other.trained._replace(config=config))
    with pytest.raises(UserError, match=r"different sentences \(files from ja to en, and toy from"):
        check_comparable([compared[0], other])
    with pytest.raises(UserError, match=r"is named twice$"):
        check_comparable([compared[0], compared[0]])


@pytest.mark.parametrize("text", [None, "", "{}\n", "[]\n", "{\n", '{"epoch": 1}\n'])
def test_metrics_that_are_missing_or_damaged_are_named(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises((OSError, UserError), match=r"metrics\.jsonl('$| is damaged: )"):
        read_metrics(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("tokenize", ["none", "13a", "char"])
def test_bleu_is_computed_with_the_given_tokenizer(tokenize: str) -> None:
    scores = score(["a b"], ["a b"], tokenize=tokenize)
    assert f"tok:{tokenize}|" in scores.bleu_signature
    assert "nc:6|nw:0" in scores.chrf_signature  # six characters, no words
