"""What the translator's programs report, computed again by hand from the files they read and wrote.

Hypotheses and references are told apart everywhere: no score here is the same where they change
places, or where one of them is in another order.
"""

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.examples import by_hand
from tests.examples.translation.proof_run import Proof, ProofRun, make_lines, reference
from torch import Tensor

import translate
from translation import commands as translate_commands
from translation import comparison, corpus
from translation.scoring import score

TEST = make_lines()["test"]
SOURCES, REFERENCES = [ja for ja, _ in TEST], [reference(en) for _, en in TEST]


@pytest.fixture(autouse=True)
def _hashes_of_the_corpus(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "SHA256", proof.hashes)


# ------------------------------------------------------------------ scores


def test_bleu_adds_up_counts_and_lengths_over_the_corpus() -> None:
    # 6 + 5 written, 6 + 7 wanted; 5 + 5 words match, 3 + 4 pairs, 2 + 3 triples, 1 + 2 quadruples.
    outputs = ["a b c d x e", "g h i j k"]
    references = ["a b c d y e", "g h i j k l m"]
    expected = 100 * (10 / 11 * 7 / 9 * 5 / 7 * 3 / 5) ** 0.25 * math.e ** (1 - 13 / 11)
    assert score(outputs, references, tokenize="none").bleu == pytest.approx(expected)
    assert by_hand.bleu(outputs, references) == pytest.approx(expected)


# ------------------------------------------------------------------ evaluate


def reports(printed: str) -> list[tuple[str, float, str, float, str]]:
    """Read what ``evaluate`` prints: a title, then BLEU and chrF, each with its signature."""
    pattern = r"^(.+)\n  BLEU ([0-9.]+)  (\S+)\n  chrF ([0-9.]+)  (\S+)$"
    return [
        (title, float(bleu), of_bleu, float(chrf), of_chrf)
        for title, bleu, of_bleu, chrf, of_chrf in re.findall(pattern, printed, re.M)
    ]


def evaluated(run: ProofRun, output: Path, *options: str) -> list[str]:
    """Evaluate a run; return the translations that it wrote."""
    command = ["evaluate", "--run", str(run.folder), "--output", str(output), *options]
    assert translate.main(command) == 0
    return output.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def check_figures(
    report: tuple[str, float, str, float, str], outputs: list[str], references: list[str]
) -> None:
    _, bleu, of_bleu, chrf, of_chrf = report
    assert bleu == round(by_hand.bleu(outputs, references), 1)
    assert chrf == round(by_hand.chrf(outputs, references), 1)
    assert "nrefs:1" in of_bleu
    assert "tok:none" in of_bleu
    assert "nc:6" in of_chrf
    for one, other in (
        (references, outputs),
        (outputs, references[1:] + references[:1]),
        (outputs, references[::-1]),
        (sorted(outputs), references),
    ):
        assert abs(by_hand.bleu(one, other) - bleu) > 0.2 or (
            abs(by_hand.chrf(one, other) - chrf) > 0.2
        )


def unseen() -> list[int]:
    """Find the test sentences whose reference is that of no training sentence."""
    known = {en for _, en in make_lines()["train"]}
    return [number for number, (_, en) in enumerate(TEST) if en not in known]


def test_evaluate_reports_the_scores_of_the_lines_that_it_writes(
    proof: Proof, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = evaluated(proof.paired, tmp_path / "out")
    assert len(outputs) == len(TEST) == 12
    whole, rest = reports(capsys.readouterr().out)
    assert whole[0] == "12 test sentences"
    check_figures(whole, outputs, REFERENCES)
    assert rest[0] == "without the 7 whose reference occurs in training"
    chosen = unseen()
    assert len(chosen) == 5
    check_figures(rest, [outputs[i] for i in chosen], [REFERENCES[i] for i in chosen])
    assert rest[1] != whole[1]


def greedy_lines(run: ProofRun, weights: Sequence[Tensor], sentences: Sequence[str]) -> list[str]:
    """Translate sentences one by one, with a model that has these weights."""
    model = run.model(weights)
    return [
        run.target.decode(by_hand.greedy(model, run.source.encode(sentence)))
        for sentence in sentences
    ]


def test_each_line_of_evaluate_translates_its_own_test_sentence_with_the_best_weights(
    proof: Proof, tmp_path: Path
) -> None:
    run = proof.paired
    expected = greedy_lines(run, run.best(), SOURCES)
    assert len(set(expected)) > 5
    assert evaluated(run, tmp_path / "out", "--beam", "1") == expected
    assert evaluated(run, tmp_path / "out") != expected  # more beams find other translations


def test_the_sentences_shown_after_training_stand_with_their_translations(
    proof: Proof, tmp_path: Path
) -> None:
    run = proof.paired
    shown = re.findall(
        r"  source     (.*)\n  output     (.*)\n  reference  (.*)\n", run.printed, re.M
    )
    assert len(shown) == 5
    outputs = evaluated(run, tmp_path / "out")
    of = {
        ja: (output, expected)
        for ja, output, expected in zip(SOURCES, outputs, REFERENCES, strict=True)
    }
    assert len({output for _, output, _ in shown}) > 2
    for source, *rest in shown:
        assert of[source] == tuple(rest)


# ------------------------------------------------------------------ compare


def compared(
    proof: Proof, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> dict[str, object]:
    """Compare both runs; return what ``compare.json`` holds."""
    monkeypatch.setattr(translate_commands, "comparison_figure", lambda *_: None)
    monkeypatch.setattr(translate_commands, "side_by_side_figure", lambda *_, **__: None)
    runs = [str(proof.paired.folder), str(proof.single.folder)]
    assert translate.main(["compare", *runs, "--output", str(folder), *options]) == 0
    content: dict[str, object] = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    return content


def quarters(lengths: Sequence[int]) -> list[list[int]]:
    """Split sentences by length at the quartiles, interpolated; equals stay together."""
    ordered = sorted(lengths)
    edges = []
    for part in (0.25, 0.5, 0.75):
        place = part * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        edges.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    groups: list[list[int]] = [[], [], [], []]
    for number, length in enumerate(lengths):
        groups[sum(length > edge for edge in edges)].append(number)
    return [group for group in groups if group]


SHOWN = (
    "{parameters:,} {minutes:.1f} {epochs:.0f} {training_speed:,.0f} {validation_loss:.3f} "
    "{bleu:.1f} {p} {chrf:.1f} {decoding_speed:.0f}"
)


def test_compare_writes_the_figures_of_each_run(
    proof: Proof,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 3.0, 10.0, 30.0, 40.0, 41.0, 50.0, 60.0, 70.0, 75.0, 80.0, 96.0])
    monkeypatch.setattr(
        comparison, "time", SimpleNamespace(perf_counter=lambda: next(times))
    )  # the first run takes 3, 1 and 5 s, the second 20, 10 and 16 s
    content = compared(proof, tmp_path / "compare", monkeypatch, "--beam", "1")
    printed = capsys.readouterr().out
    results = content["results"]
    assert isinstance(results, list)
    assert [result["name"] for result in results] == ["paired", "single"]
    groups = quarters([len(ja) for ja in SOURCES])
    lengths = [sorted({len(SOURCES[i]) for i in group}) for group in groups]
    assert len(groups) > 2
    assert content["groups"] == [
        f"{'-'.join(str(end) for end in dict.fromkeys((each[0], each[-1])))} ({len(group)})"
        for each, group in zip(lengths, groups, strict=True)
    ]
    for run, result, seconds in zip((proof.paired, proof.single), results, (3, 16), strict=True):
        outputs = greedy_lines(run, run.best(), SOURCES)
        expected = {
            "parameters": sum(weight.numel() for weight in run.best()),
            "minutes": run.rows[-1]["minutes"],
            "epochs": len(run.rows),
            "training_speed": statistics.median(row["tokens_per_second"] for row in run.rows),
            "validation_loss": min(row["validation_loss"] for row in run.rows),
            "bleu": by_hand.bleu(outputs, REFERENCES),
            "chrf": by_hand.chrf(outputs, REFERENCES),
            "decoding_speed": 12 / seconds,
        }
        assert {name: result[name] for name in expected} == pytest.approx(expected)
        for row, metrics in zip(run.rows, result["metrics"], strict=True):
            assert metrics.items() <= row.items()
        assert result["bleu_by_length"] == pytest.approx(
            [
                by_hand.bleu([outputs[i] for i in group], [REFERENCES[i] for i in group])
                for group in groups
            ]
        )
        (row, *_) = re.findall(rf"^{result['name']} .*$", printed, re.M)
        p_value = "-" if result["p_value"] is None else f"{result['p_value']:.3f}"
        assert row.split()[2:] == SHOWN.format(**result, p=p_value).split()
    first, second = results
    assert first["bleu"] != second["bleu"]
    assert first["bleu_by_length"] != second["bleu_by_length"]


# ------------------------------------------------------------------ several translations
