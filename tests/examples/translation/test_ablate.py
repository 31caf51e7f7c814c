"""What is lost without each part: the program, on two little trained seeds."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import PLAN
from tests.examples.translation.test_translate import one_error_line

import ablate
from common.run import Run
from transformer_blocks import greedy_search
from transformer_blocks.inspection import ablate as without
from translation.ablation import ablations
from translation.corpus import corpus_of
from translation.decoding import load_translator
from translation.decoding import translate as write
from translation.presets import TranslatorConfig
from translation.scoring import score


def bleu_without(folder: str, *, cross_attention: bool) -> float:
    run = Run(Path(folder), TranslatorConfig)
    trained = load_translator(run, torch.device("cpu"))
    model, pairs = trained.model, corpus_of(trained.config).validation
    with without(model, modules=model.cross_attentions if cross_attention else []):
        lines = write(trained, [x.source for x in pairs], search=greedy_search)
    return score(lines, [x.reference for x in pairs], tokenize="13a").bleu


def test_each_part_is_taken_out_and_the_rest_is_what_it_was(
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    call: Callable[..., str],
) -> None:
    english = Path(files[3])  # references end with a sign that is cleaned from what a model learns
    english.write_text(english.read_text("utf-8").replace(".", ". \u200b"), encoding="utf-8")
    folders = [str(tmp_path / f"seed{seed}") for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        call("train", "--seed", seed, "--run", folder, *files, "--epochs", "5", *PLAN[2:])
    assert ablate.main(folders) == 0
    out = capsys.readouterr().out
    rows = {
        match[1]: [float(number) for number in re.sub(r"\S+-\S+", "", match[2]).split()]
        for match in re.finditer(r"^without (.*?)  +([-+0-9. ]+)$", out, re.M)
    }
    cross = "all of the cross-attention"
    whole, left = (
        [bleu_without(f, cross_attention=is_cut) for f in folders] for is_cut in (False, True)
    )
    for title, scores in (("nothing", whole), (cross, left)):
        change = mean(scores) - mean(whole)
        assert rows[title] == pytest.approx([*scores, mean(scores), change], abs=0.05001)
    # Without cross-attention, the scores differ, and by more than what is rounded away.
    assert abs(rows[cross][-1]) > 0.1
    model: Any = load_translator(Run(Path(folders[0]), TranslatorConfig), torch.device("cpu")).model
    parts = ablations(model)
    assert list(parts) == list(rows)
    heads = parts["a head of the cross-attention, one at a time"]
    assert len(heads) == 2 * 4  # layers and heads of the preset


def test_a_recurrent_translator_is_refused_in_one_line(
    small_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(small_run("rnn"))
    capsys.readouterr()
    assert ablate.main([folder]) == 2
    assert "only a Transformer can be ablated, and" in one_error_line(capsys)
    assert ablate.main([folder, folder]) == 2
    assert "must be different trainings of one corpus" in one_error_line(capsys)
