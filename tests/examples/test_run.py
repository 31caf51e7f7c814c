import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from common.checkpoint import load_checkpoint
from common.errors import UserError
from translation.run import SPLIT_FILES, Run
from translation.training import Training


@pytest.fixture
def run(tmp_path: Path, trained: Training) -> Run:
    """A copy of a finished run, to be damaged."""
    shutil.copytree(trained.run.folder, tmp_path / "run")
    return Run(tmp_path / "run")


def test_a_configuration_reads_back_as_it_was_written(run: Run) -> None:
    config = run.read_config()
    run.write_config(config)
    assert run.read_config() == config


def test_the_mean_of_the_last_checkpoints_is_loaded_where_it_is_asked_for(run: Run) -> None:
    _, model, *_ = run.load_best(torch.device("cpu"), last=2)
    saved = [
        load_checkpoint(path).tensors["model"] for path in sorted(run.checkpoints.iterdir())[-2:]
    ]
    for name, tensor in model.state_dict().items():
        expected = (saved[0][name].double() + saved[1][name].double()) / 2
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=0)
        assert saved[0][name].equal(saved[1][name]) == (not tensor.is_floating_point())


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format_version": 1}', "{", "\x00"])
def test_a_damaged_configuration_is_named(run: Run, text: str) -> None:
    run.config_file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        run.read_config()


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("settings", "d_model", "128"),
        ("settings", "epochs", 0),
        ("settings", "num_heads", 3),
        ("settings", "dropout", 7.0),
        ("", "tokenizers", []),
        ("", "seed", "a"),
        ("", "minutes", 0),
    ],
)
def test_a_value_that_makes_no_sense_is_named(
    run: Run, place: str, name: str, value: object
) -> None:
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    (content[place] if place else content)[name] = value
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=name):
        run.load_best(torch.device("cpu"))


def test_a_run_of_the_first_format_holds_a_transformer(run: Run) -> None:
    config = run.read_config()
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content["format_version"] = 1
    del content["settings"]["model"], content["settings"]["accumulate"], content["sha256"]
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    assert run.read_config() == config
    assert config.settings.model == "transformer"


def test_a_run_of_the_third_format_held_its_splits_out(run: Run) -> None:
    config = run.read_config()
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content["format_version"] = 3
    for name in (*SPLIT_FILES, "sha256"):
        del content[name]
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    assert run.read_config() == config


def test_a_newer_format_is_refused(run: Run) -> None:
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content["format_version"] = 5
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="format version 5, newer than this program's 4"):
        run.read_config()


def test_the_tokenizer_of_another_run_is_refused(run: Run) -> None:
    shutil.copy(run.tokenizer_file("target"), run.tokenizer_file("source"))
    with pytest.raises(UserError, match="is not the tokenizer that this run was trained with"):
        run.load_best(torch.device("cpu"))


def test_a_run_without_weights_says_so(run: Run) -> None:
    shutil.rmtree(run.best)
    with pytest.raises(UserError, match="holds no weights yet"):
        run.load_best(torch.device("cpu"))


def test_weights_of_another_size_are_refused(run: Run) -> None:
    config = run.read_config()
    run.write_config(replace(config, settings=replace(config.settings, d_ff=128)))
    with pytest.raises(UserError, match="d_ff is 128 instead of 64"):
        run.load_best(torch.device("cpu"))
