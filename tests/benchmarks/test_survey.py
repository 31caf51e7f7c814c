"""The survey: other libraries' models are made small, examined alone, and listed on a page."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.benchmarks.survey_cases import (
    crashing,
    hanging,
    leaking,
    sound,
    spinning,
    too_large,
    undriven,
)
from tests.docs.test_howto import ROOT, blocks, run

from survey.cases import find_cases
from survey.page import find_status, holds
from survey.run import Row, examine, find_version, survey
from survey.tiny import find_field, shrink, special_tokens

PAGE = ROOT / "docs" / "field_report.md"


def last(build: Any) -> Row:
    row: Row = {"name": "library model"}
    for found in examine(build):
        row |= found
    return row


def test_a_violation_is_found_and_a_sound_model_is_sound() -> None:
    broken, good = last(leaking), last(sound)
    assert find_status(broken) == "violation"
    assert not holds(broken, ["causality"])
    assert not holds(broken, ["batch"])
    assert find_status(good) == "sound"
    assert holds(good, ["causality"])
    assert holds(good, ["cache"])  # a GRU continues from its state
    assert not holds(good, ["padding"])  # which could not be tried
    assert find_status(last(undriven)) == "not driven"


def test_a_crash_a_hang_or_too_much_memory_ends_one_row_and_not_the_run(tmp_path: Path) -> None:
    cases = {
        "torch crashing": crashing,
        "torch too_large": too_large,
        "torch leaking": leaking,
    }
    lines, reported = tmp_path / "lines", list[Row]()
    slow = {"torch hanging": hanging, "torch spinning": spinning}
    survey({"torch hanging": hanging}, lines, seconds=0.1, report=reported.append)
    survey(slow, lines, seconds=1.0, report=reported.append)
    rows = survey(slow | cases, lines, memory=2**30, report=reported.append)
    assert rows == reported == [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    hang, spin, crash, large, leak = rows
    assert (crash["stage"], crash["error"]) == ("build", "the process ended with exit code 7")
    assert hang["stage"] == "build"
    assert hang["error"] == "stopped after 1 seconds"
    if sys.platform != "win32":
        assert spin["error"] == "stopped after 1 seconds of processor time"
    if sys.platform == "linux":
        assert "memory" in large["not_built"]
    assert find_status(leak) == "violation"

    with lines.open("a", encoding="utf-8") as file:  # a run that was interrupted while it wrote
        file.write('{"name": "torch so')
    cases = {row["name"]: sound for row in rows} | {"torch sound": sound}
    again = survey(cases, lines, report=reported.append)
    assert again[: len(rows)] == rows
    assert [row["name"] for row in reported[len(rows) :]] == ["torch sound"]


def test_results_of_another_version_are_made_again(tmp_path: Path) -> None:
    lines, reported = tmp_path / "lines", list[Row]()
    survey({"torch sound": sound}, lines, report=reported.append)
    row = reported[0]
    lines.write_text(json.dumps(row | {"version": "0"}) + "\n", encoding="utf-8")
    survey({"torch sound": sound}, lines, report=reported.append)
    assert [each["version"] for each in reported] == [row["version"]] * 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BertForMaskedLM", "encoder"),
        ("BertLMHeadModel", "causal"),
        ("Gemma3ForCausalLM", "causal"),
        ("T5ForConditionalGeneration", "encoder-decoder"),
    ],
)
def test_models_of_transformers_are_driven_and_recorded(name: str, kind: str) -> None:
    pytest.importorskip("transformers")
    row = last(find_cases()[f"transformers {name}"])
    assert row["kind"] == kind
    assert find_status(row) == "sound", row
    assert row["parameters"] < 5_000_000
    assert row["recorded"] == {"encoder-decoder": 6}.get(kind, 2)
    assert row["returned"] == row["recorded"]
    assert row["not_recorded"] == []
    if kind != "encoder":
        assert holds(row, ["cache"])


def test_a_small_configuration_keeps_each_kind_of_layer_and_its_proportions() -> None:
    transformers = pytest.importorskip("transformers")
    before = transformers.Gemma3Config().text_config
    config = shrink(transformers.Gemma3Config(), 8).text_config
    assert config.hidden_size * 8 == before.hidden_size
    assert config.head_dim * 8 == before.head_dim
    assert config.num_attention_heads == before.num_attention_heads
    assert set(config.layer_types) == set(before.layer_types)
    assert len(config.layer_types) == config.num_hidden_layers == 2
    assert max(special_tokens(config)) < config.vocab_size


def test_fields_are_found_in_the_outer_configurations_first() -> None:
    class Config(SimpleNamespace):
        model_type = "any"

    innermost = Config(image_size=8, pad_token_id=5, depth=3)
    config = Config(
        a=Config(inner=innermost), b=Config(image_size=16, eos_token_id=[6, 7]), depth=2
    )
    assert find_field(config, "img_size", "image_size") == 16
    assert find_field(config, "depth") == 2
    assert find_field(config.a, "image_size") == 8
    assert find_field(config, "channels") is None
    assert special_tokens(config) == {5, 6, 7}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_each_reproduction_of_the_field_report_needs_the_other_library_alone(number: int) -> None:
    text = PAGE.read_text("utf-8")
    for library in ("torch", "x_transformers", "transformers"):
        version = find_version(library)
        if f"### {library} {version}" not in text:
            pytest.skip(f"the page is of another version of {library} than {version}")
    code = blocks(PAGE, "python")[number]
    assert "transformer_blocks" not in code
    assert len([line for line in code.splitlines() if line.startswith((">>>", "..."))]) <= 15
    run(code, {}, PAGE)
