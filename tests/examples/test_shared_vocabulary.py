"""One vocabulary and one embedding matrix for both languages, as in the paper."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.examples.tiny_run import PLAN, SETTINGS, begin

import translate
from common.run import Run
from common.searches import Beam
from common.tokenizer import Tokenizer
from transformer_blocks.inference import prepare
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY, MODELS
from translation.decoding import translate as translate_sentences
from translation.presets import BASE, Config, new_config
from translation.run import load_translator

SHARED = replace(SETTINGS, shared_vocabulary=True, epochs=2)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tied", [True, False])
def test_source_and_target_embeddings_and_with_ties_the_output_are_one_matrix(
    name: str, tied: bool
) -> None:
    config = replace(SHARED, model=name, tie_embeddings=tied)
    model, separate = config.build(20, 20), replace(config, shared_vocabulary=False).build(20, 20)
    state = model.state_dict(keep_vars=True)
    assert state["source_embedding.weight"] is state["target_embedding.weight"]
    assert (state["output.weight"] is state["target_embedding.weight"]) == tied
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in (model, separate)]
    assert sizes[1] - sizes[0] == 20 * config.d_model


def test_the_gradient_of_the_matrix_is_the_sum_of_its_three_uses() -> None:
    torch.manual_seed(0)
    shared = SHARED.build(20, 20).double().eval()
    separate = replace(SHARED, shared_vocabulary=False, tie_embeddings=False).build(20, 20)
    separate.double().eval().load_state_dict(shared.state_dict())
    source, target = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 6))
    for model in (shared, separate):
        model(source, target).square().sum().backward()
    gradients = {name: weight.grad for name, weight in separate.named_parameters()}
    names = ("source_embedding.weight", "target_embedding.weight", "output.weight")
    expected = torch.stack([torch.as_tensor(gradients[name]) for name in names]).sum(0)
    torch.testing.assert_close(shared.output.weight.grad, expected)


def test_a_run_with_a_shared_vocabulary_is_trained_resumed_used_and_scored(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ["--run", str(folder)]
    assert translate.main(["train", *options, *files, *PLAN, "--shared-vocabulary"]) == 0
    assert {path.name for path in folder.glob("*.model")} == {"shared.model"}
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert content["shared_vocabulary"] is True
    assert content["tokenizers"].keys() == {"shared"}
    config = Run(folder, Config).read_config()
    assert config.shared_vocabulary

    again = ["train", *options, "--resume", "--epochs", "3"]
    assert translate.main([*again, "--no-shared-vocabulary"]) == 2
    assert "was begun with shared_vocabulary=True" in capsys.readouterr().err
    assert translate.main(again) == 0

    trained = load_translator(Run(folder, Config), torch.device("cpu"))
    state = trained.model.state_dict(keep_vars=True)
    assert state["source_embedding.weight"] is state["output.weight"]
    for text in ("犬が走る。", "The dog runs."):  # one tokenizer encodes both languages
        assert trained.source.decode(trained.target.encode(text)) == text
    capsys.readouterr()
    assert translate.main(["translate", *options, "犬が走る。"]) == 0
    found = capsys.readouterr().out.splitlines()
    model, search = prepare(trained.model), Beam(BEAM_SIZE, LENGTH_PENALTY)
    assert found == translate_sentences(
        model, trained.source, trained.target, ["犬が走る。"], search=search
    )
    assert translate.main(["evaluate", *options, "--average-last", "2"]) == 0
    assert "BLEU" in capsys.readouterr().out


def test_the_shared_tokenizer_is_trained_on_both_languages(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", SHARED)
    path = training.run.tokenizer_file("shared")
    source, target = training.run.load_tokenizers(training.config)
    assert source.vocab_size == target.vocab_size == Tokenizer(path.read_bytes()).vocab_size
    pairs = training.task.corpus.train
    assert not any(1 in source.encode(text) for pair in pairs for text in pair[:2])  # 1 is unknown


def test_only_the_preset_of_the_paper_shares_its_vocabulary() -> None:
    chosen = {"source_file": "a", "target_file": "b"}
    assert BASE.shared_vocabulary
    assert BASE.vocabulary == 37_000
    assert new_config({**chosen, "preset": "base"}).shared_vocabulary
    assert not new_config({**chosen, "preset": "small"}).shared_vocabulary
    separate = new_config({**chosen, "preset": "base", "shared_vocabulary": False})
    assert separate.tokenizer_names == ("source", "target")
