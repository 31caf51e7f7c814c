import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import translate
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import UserError
from common.run import Run
from translation.presets import Config
from translation.run import load_translator
from translation.training import TranslationTraining


@pytest.fixture
def run(tmp_path: Path, trained: TranslationTraining) -> Run[Config]:
    """A copy of a finished run, to be damaged."""
    shutil.copytree(trained.run.folder, tmp_path / "run")
    return Run(tmp_path / "run", Config)


def test_a_configuration_reads_back_as_it_was_written(run: Run[Config]) -> None:
    config = run.read_config()
    run.write_config(config)
    assert run.read_config() == config


def test_the_mean_of_the_last_checkpoints_is_loaded_where_it_is_asked_for(run: Run[Config]) -> None:
    _, model, *_ = load_translator(run, torch.device("cpu"), last=2)
    saved = [
        load_checkpoint(path).tensors["model"] for path in sorted(run.checkpoints.iterdir())[-2:]
    ]
    for name, tensor in model.state_dict().items():
        expected = (saved[0][name].double() + saved[1][name].double()) / 2
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=0)
        assert saved[0][name].equal(saved[1][name]) == (not tensor.is_floating_point())


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format_version": 1}', "{", "\x00"])
def test_a_damaged_configuration_is_named(run: Run[Config], text: str) -> None:
    run.config_file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        run.read_config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d_model", "128"),
        ("epochs", 0),
        ("num_heads", 3),
        ("dropout", 7.0),
        ("tokenizers", []),
        ("seed", "a"),
        ("minutes", 0),
    ],
)
def test_a_value_that_makes_no_sense_is_named(run: Run[Config], name: str, value: object) -> None:
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content[name] = value
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=name):
        load_translator(run, torch.device("cpu"))


def make_old(run: Run[Config], names: dict[str, str]) -> None:
    """Turn a run into one of format 5, with other names of parameters."""
    content: dict[str, Any] = json.loads(run.config_file.read_text(encoding="utf-8"))
    for name in ("sha256", "shared_vocabulary"):  # unknown then
        del content[name]
    content["format_version"] = 5
    definition = {
        name: value
        for name, value in content.items()
        if name not in ("epochs", "minutes", "data_dir", "format_version")
    }
    for folder in (run.best, run.checkpoints):
        path = max(folder.iterdir())
        checkpoint = load_checkpoint(path)
        tensors = {
            group: {
                ".".join(names.get(part, part) for part in name.split(".")): tensor
                for name, tensor in weights.items()
            }
            for group, weights in checkpoint.tensors.items()
        }
        shutil.rmtree(folder)
        state = checkpoint.state | {"config": definition}
        save_checkpoint(folder, step=checkpoint.step, tensors=tensors, state=state)
    text = json.dumps(content, sort_keys=True)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    run.config_file.write_text(json.dumps(content), encoding="utf-8")


def test_a_run_of_an_earlier_format_is_loaded(run: Run[Config]) -> None:
    config, device = run.read_config(), torch.device("cpu")
    expected = load_translator(run, device).model.state_dict()
    make_old(run, {})
    assert run.read_config() == config
    assert run.read_config().is_old
    found = load_translator(run, device).model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_other_names_of_parameters_in_an_earlier_format_are_refused(run: Run[Config]) -> None:
    make_old(run, {"up_projection": "widen"})
    with pytest.raises(UserError, match=r"weights of an earlier version .* train the model again"):
        load_translator(run, torch.device("cpu"))


def test_a_run_of_an_earlier_format_is_not_resumed(
    run: Run[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    make_old(run, {})
    assert translate.main(["train", "--run", str(run.folder), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "was trained by an earlier version of this program; it can be used" in error
    assert "begin another --run" in error


def test_a_newer_format_is_refused(run: Run[Config]) -> None:
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content["format_version"] = 8
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="format version 8, newer than this program's 7"):
        run.read_config()


def test_the_tokenizer_of_another_run_is_refused(run: Run[Config]) -> None:
    shutil.copy(run.tokenizer_file("target"), run.tokenizer_file("source"))
    with pytest.raises(UserError, match="is not the tokenizer that this run was trained with"):
        load_translator(run, torch.device("cpu"))


def test_a_run_without_weights_says_so(run: Run[Config]) -> None:
    shutil.rmtree(run.best)
    with pytest.raises(UserError, match="holds no weights yet"):
        load_translator(run, torch.device("cpu"))


def test_weights_of_another_size_are_refused(run: Run[Config]) -> None:
    config = run.read_config()
    run.write_config(replace(config, d_ff=128))
    with pytest.raises(UserError, match="d_ff is 128 instead of 64"):
        load_translator(run, torch.device("cpu"))
