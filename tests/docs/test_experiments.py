"""The experiments of the book: their programs run, and their records are complete."""

import ast
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "docs" / "experiments"))

from translation.corpus import load_corpus
from translation.pairs import Languages

EXPERIMENTS = Path(__file__).parents[2] / "docs" / "experiments"
depth, experiment, extrapolation, fine_tuning, head_count, overfitting, reverse, seeds = map(
    importlib.import_module,
    (
        *("depth", "experiment", "extrapolation", "fine_tuning", "head_count", "overfitting"),
        *("reverse", "seeds"),
    ),
)
TINY = {
    "overfitting": "--pairs 40 --vocabulary 400 --updates 2 --every 2 --runs overfitting all",
    "depth": "--updates 2 --layers 2 --gradient-seeds 1 --d-model 8",
    "reverse": "--updates 2 --every 1 --d-model 8",
    "head_count": "--updates 2",
    "extrapolation": "--updates 2 --documents 2 --d-model 8 --layers 1",
    "fine_tuning": "--updates 2 --tuning-updates 2 --d-model 8 --rank 1",
    "seeds": "--updates 2 --sentences 3",
}
FIELDS = {"command", "seeds", "versions", "seconds", "settings", "results"}


def run(name: str, folder: Path, seed: int = 0) -> dict[str, Any]:
    sys.modules[name].main([*TINY[name].split(), "--seeds", str(seed), "--output", str(folder)])
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Run an experiment when its record is first asked for."""
    return cache(lambda name: run(name, tmp_path_factory.mktemp(name)))


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [value] if isinstance(value, float | int) else []


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Let the toy corpus have few sentences, and fine-tuning one learning rate."""

    @cache
    def load_few(languages: Languages, *, data_dir: Path | None) -> Any:
        corpus = load_corpus(languages, data_dir=data_dir)
        few = {split: getattr(corpus, split)[:5] for split in ("validation", "test")}
        return replace(corpus, train=[*corpus.train][:200], **few)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overfitting, "load_corpus", load_few)
        patch.setattr(fine_tuning, "RATES", fine_tuning.RATES[:1])
        yield


@pytest.mark.parametrize(
    "name", ["reverse", *(pytest.param(x, marks=pytest.mark.slow) for x in TINY if x != "reverse")]
)
def test_an_experiment_writes_its_record_and_the_same_seed_gives_the_same_numbers(
    name: str, first_run: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    first = first_run(name)
    again, other = (run(name, tmp_path / f"seed{seed}", seed) for seed in (0, 1))
    assert set(first) == FIELDS
    assert numbers(first["results"])
    assert first["results"] == again["results"]
    assert first["results"] != other["results"]


@pytest.mark.parametrize("name", TINY)
def test_a_recorded_result_has_the_command_and_the_settings_that_the_program_has(
    name: str, first_run: Callable[[str], dict[str, Any]]
) -> None:
    record = json.loads((EXPERIMENTS / "results" / f"{name}.json").read_text("utf-8"))
    assert set(record) == FIELDS
    assert set(record["versions"]) == {"python", "torch"}
    assert record["seconds"] > 1
    source = (EXPERIMENTS / f"{name}.py").read_text("utf-8")
    documented = re.findall(r"^    (python .*)$", ast.get_docstring(ast.parse(source)) or "", re.M)
    assert record["command"] == documented[0]
    assert first_run(name)["command"] == documented[-1]  # of overfitting: the toy corpus
    assert str(Path.home()) not in json.dumps(record)
    assert numbers(record["results"]) == pytest.approx(numbers(record["results"]), nan_ok=False)
    module = sys.modules[name]
    settings = getattr(module, "SIZES", {"updates": 800 if name == "head_count" else 1000})
    assert settings.items() <= record["settings"].items()
    assert set(first_run(name)["settings"]) == set(record["settings"])


def results_of(name: str) -> dict[str, Any]:
    record = json.loads((EXPERIMENTS / "results" / f"{name}.json").read_text("utf-8"))
    results: dict[str, Any] = record["results"]
    return results


def test_the_page_about_lora_shows_the_recorded_figures() -> None:
    page = (EXPERIMENTS.parent / "howto" / "fine_tune_with_lora.md").read_text("utf-8")
    results = results_of("fine_tuning")
    for method in fine_tuning.METHODS:
        cells = [
            f"{row['new_domain']['mean']:.3f} ± {row['new_domain']['deviation']:.3f}"
            for row in results["summary"]
            if row["method"] == method
        ]
        share = results["share_of_lora"] if method == "LoRA" else 1.0
        assert f"| {method} | {100 * share:.3g} % | {' | '.join(cells)} |" in page


def test_the_exact_match_needs_every_teacher_forced_token() -> None:
    # Greedy decoding leaves the reference at the first wrong token, and not before.
    model = reverse.Reverser(16)
    reverse.train(model, updates=160, rate=1e-2, seed=0, every=160)
    source, target = reverse.make_batch(300, torch.Generator().manual_seed(2))
    with torch.no_grad():
        right = model(source, target[:, :-1]).argmax(-1) == target[:, 1:]
    whole = (right | (target[:, 1:] == reverse.PAD)).all(1).float().mean().item()
    found = reverse.measure(model, source, target)["exact_match"]
    assert whole > 0.03
    assert found == pytest.approx(whole, abs=0.01)  # two logits may be equal up to rounding


def test_the_best_single_head_is_right_in_13_of_16_cases() -> None:
    found = head_count.measure(head_count.best_single_head(), seed=0)
    assert found["accuracy_of_each_friend"][0] == 1.0
    assert found["accuracy"] == pytest.approx(0.8125, abs=0.01)
    assert found["mean_weight_of_each_friend"][0] == pytest.approx([0.55, 0.45], abs=1e-4)


def test_the_ideal_reader_predicts_a_name_from_its_share_of_the_names() -> None:
    Word = extrapolation.Word  # noqa: N806
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extrapolation, "MEASURED", 1)
        document = [Word(name, None) for name in ("a", "b", "a", "b", "b")]
        for length, (count, read) in {4: (2, 4), 3: (2, 3), 1: (1, 1)}.items():
            expected = (5.0 + read) / (count + 5.0 / len(extrapolation.NAMES))
            found = extrapolation.ideal_perplexity([document], length)
            assert found == pytest.approx(expected)
        found = extrapolation.ideal_perplexity([[*document, Word("red", 10)]], 4)
        assert found == pytest.approx(10.0)
