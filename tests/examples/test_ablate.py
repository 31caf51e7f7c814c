"""What is lost without each part: the program, on two little trained seeds."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.examples.test_translate import one_error_line
from tests.examples.tiny_run import PLAN

import ablate
import translate
from common.run import Run
from common.searches import Greedy
from transformer_blocks.inspection import ablate as without
from translation import ablation
from translation.ablation import ablations
from translation.decoding import translate as write
from translation.presets import Config
from translation.run import TrainedTranslator, corpus_of, load_translator
from translation.scoring import score
from translation.training import TranslationTraining
from translation.transformer import Transformer


def bleu_without(folder: str, *, cross_attention: bool) -> float:
    run = Run(Path(folder), Config)
    config, model, source, target = load_translator(run, torch.device("cpu"))
    pairs = corpus_of(run, config).validation
    with without(model, modules=model.cross_attentions if cross_attention else []):
        lines = write(model, source, target, [x.source for x in pairs], search=Greedy())
    return score(lines, [x.reference for x in pairs], tokenize="13a").bleu


def test_each_part_is_taken_out_and_the_rest_is_what_it_was(
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("translation.training.save", lambda *_: None)
    english = Path(files[3])  # references end with a sign that is cleaned from what a model learns
    english.write_text(english.read_text("utf-8").replace(".", ". \u200b"), encoding="utf-8")
    folders = [str(tmp_path / f"seed{seed}") for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        options = ["--seed", str(seed), "--run", folder, *files, *PLAN, "--epochs", "5"]
        assert translate.main(["train", *options]) == 0
    capsys.readouterr()
    assert ablate.main(folders) == 0
    out = capsys.readouterr().out
    rows = {
        match[1]: [float(number) for number in re.sub(r"\S+-\S+", "", match[2]).split()]
        for match in re.finditer(r"^without (.*?)  +([-+0-9. ]+)$", out, re.M)
    }
    titles = ("nothing", "all of the cross-attention")
    left = {
        title: [bleu_without(folder, cross_attention=title != "nothing") for folder in folders]
        for title in titles
    }
    for title in titles:
        change = mean(left[title]) - mean(left["nothing"])
        assert rows[title] == pytest.approx([*left[title], mean(left[title]), change], abs=0.05001)
    # Without cross-attention, the scores differ, and by more than what is rounded away.
    assert abs(rows[titles[1]][-1]) > 0.1
    assert rows["nothing"][-1] == 0.0
    _, model, *_ = load_translator(Run(Path(folders[0]), Config), torch.device("cpu"))
    assert isinstance(model, Transformer)
    parts = ablations(model)
    assert list(parts) == list(rows)
    heads = parts["a head of the cross-attention, one at a time"]
    assert len(heads) == 2 * 4  # layers and heads of the preset


def test_the_first_validation_sentences_are_translated_for_each_ablation(
    trained: TranslationTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = trained.task.corpus
    corpus = replace(corpus, validation=[*corpus.train][:3])
    config: Any = trained.run.read_config()
    source, target = trained.task.tokenizers
    loaded = TrainedTranslator(config, trained.model.eval(), source, target)
    calls: list[tuple[list[str], list[str]]] = []

    def record(lines: list[str], references: list[str], **_: object) -> SimpleNamespace:
        calls.append((lines, [*references]))
        return SimpleNamespace(bleu=0.0)

    monkeypatch.setattr(ablation, "load_translator", lambda *_: loaded)
    monkeypatch.setattr(ablation, "corpus_of", lambda *_: corpus)
    monkeypatch.setattr(ablation, "translate", lambda _, __, ___, sources, **____: [*sources])
    monkeypatch.setattr(ablation, "score", record)
    ablation.bleu_without(trained.run, 2)
    pairs = corpus.validation[:2]
    wanted = [pair.source for pair in pairs], [pair.reference for pair in pairs]
    assert calls == [wanted] * len(calls) != []


def test_a_recurrent_translator_is_refused_in_one_line(
    small_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(small_run("rnn"))
    capsys.readouterr()
    assert ablate.main([folder]) == 2
    assert "only a Transformer can be ablated, and" in one_error_line(capsys)
    assert ablate.main([folder, folder]) == 2
    assert "must be different trainings of one corpus" in one_error_line(capsys)
