import json
import shutil
from pathlib import Path

import pytest
import torch

from common.checkpoint import load_checkpoint
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


def test_the_mean_of_the_last_checkpoints_is_loaded_where_it_is_asked_for(run: Run[Config]) -> None:
    _, model, *_ = load_translator(run, torch.device("cpu"), last=2)
    saved = [
        load_checkpoint(path).tensors["model"] for path in sorted(run.checkpoints.iterdir())[-2:]
    ]
    for name, tensor in model.state_dict().items():
        expected = (saved[0][name].double() + saved[1][name].double()) / 2
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=0)


@pytest.mark.parametrize("version", [6, 8])
def test_another_format_is_refused(run: Run[Config], version: int) -> None:
    content = json.loads(run.config_file.read_text(encoding="utf-8"))
    content["format_version"] = version
    run.config_file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=f"format version {version}, and this program reads 7"):
        run.read_config()


def test_another_or_a_damaged_tokenizer_is_refused_and_a_missing_one_named(
    run: Run[Config],
) -> None:
    path = run.tokenizer_file("source")
    saved = path.read_bytes()
    for content in (run.tokenizer_file("target").read_bytes(), saved[:-1], saved[:-1] + b"?", b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{path} is not the tokenizer that this run was"):
            run.load_tokenizers(run.read_config())
    path.unlink()
    with pytest.raises(UserError, match=f"cannot read the tokenizer {path}: No such file"):
        run.load_tokenizers(run.read_config())


def test_a_run_without_weights_says_so(run: Run[Config]) -> None:
    shutil.rmtree(run.best)
    with pytest.raises(UserError, match="holds no weights yet"):
        load_translator(run, torch.device("cpu"))
