"""Exporting a translator: CTranslate2 translates as the model does."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import SETTINGS, TranslationTraining, make_corpus

from common.errors import UserError
from common.searches import beam
from common.tokenizer import BOS, EOS
from transformer_blocks.explorer import packages
from transformer_blocks.inference.int8 import has_integer_product
from translation import exporting
from translation.arguments import BeamOptions
from translation.decoding import TrainedTranslator, decode_sentences, decoder_of, load_translator
from translation.decoding import translate as translate_sentences
from translation.exporting import export

ctranslate2 = pytest.importorskip("ctranslate2")
CORPUS = make_corpus()
SENTENCES = [pair.source for pair in (*CORPUS.train, *CORPUS.validation, *CORPUS.test)]
CPU = torch.device("cpu")
ENGINE = ["--engine", "ctranslate2"]


@pytest.fixture(scope="module")
def translator(trained: TranslationTraining) -> TrainedTranslator:
    return load_translator(trained.run, CPU)


def test_what_is_exported_translates_as_the_model(
    trained: TranslationTraining, translator: TrainedTranslator, tmp_path: Path
) -> None:
    _, model, source, _ = translator
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folders = tmp_path / "float32", tmp_path / "int8"
    # Without VNNI instructions, oneDNN limits sums of int8 products to 16 bits, in CTranslate2 too.
    least = 20 if has_integer_product() else 1
    options = BeamOptions()
    for folder in folders:
        int8 = folder.name == "int8"
        export(trained.run, translator, folder, int8=int8)
        ours, others = (
            decode_sentences(decode, source, SENTENCES, max_length=model.max_length)
            for decode in (
                decoder_of(model, beam(options.beam, options.length_penalty)),
                exporting.load_decoder(translator, folder, options),
            )
        )
        equal = sum(a.tokens == b.tokens for a, b in zip(ours, others, strict=True))
        assert equal >= (least if int8 else 30)
        assert {file.name for file in folder.iterdir()} == {
            "model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json",
            "source.model", "target.model",
        }  # fmt: skip
        for name in ("source.model", "target.model"):
            assert (folder / name).read_bytes() == (trained.run.folder / name).read_bytes()
    large, small = ((folder / "model.bin").stat().st_size for folder in folders)
    assert small < large / 2
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def engine_of(translator: TrainedTranslator, folder: Path) -> Any:
    """Write and load CTranslate2's files, with torch's threads: both set those of the process."""
    exporting.write_model(translator, folder)
    return ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "pre_norm": False},
        {"tie_embeddings": False},
        {"pre_norm": False, "shared_vocabulary": True},
    ],
)
def test_ctranslate2_gives_the_log_probabilities_of_every_kind_of_transformer(
    options: dict[str, Any], translator: TrainedTranslator, tmp_path: Path
) -> None:
    _, _, source, target = translator
    if options.get("shared_vocabulary"):
        target = source
    config = replace(SETTINGS, **options)
    model: Any = config.build(source.vocab_size, target.vocab_size).eval()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))  # biases and norms count, too
    engine = engine_of(translator._replace(model=model, target=target), tmp_path)
    sources, targets = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]
    scored = engine.score_batch(
        [source.subwords(ids) for ids in sources], [target.subwords(ids) for ids in targets]
    )
    for ids, known, found in zip(sources, targets, scored, strict=True):
        logits = model(torch.tensor([[*ids, EOS]]), torch.tensor([[BOS, *known]]))
        expected = logits.log_softmax(-1)[0].gather(1, torch.tensor([[*known, EOS]]).T)[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, rtol=0, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("length_penalty", [0.0, 1.4])
def test_the_search_of_ctranslate2_ranks_as_ours(
    length_penalty: float, translator: TrainedTranslator, tmp_path: Path
) -> None:
    _, model, source, target = translator
    sentences = [*map(source.subwords, source.encode_many(SENTENCES)), [], ["no such subword"]]
    engine = engine_of(translator, tmp_path)
    options = BeamOptions(beam=4, length_penalty=length_penalty)
    found = exporting.search(engine, sentences, options, max_length=model.max_length)
    assert found[-2] == []  # an empty sentence
    decode = decoder_of(model, beam(4, length_penalty))
    ours = decode_sentences(decode, source, SENTENCES, max_length=model.max_length)
    assert found[:-2] == [target.subwords(each.tokens) for each in ours]


@torch.no_grad()
@pytest.mark.parametrize("length_penalty", [0.0, 1.4])
def test_ctranslate2_may_end_at_once_as_the_model(
    length_penalty: float, translator: TrainedTranslator, tmp_path: Path
) -> None:
    _, _, source, target = translator
    config = replace(SETTINGS, tie_embeddings=False)
    model: Any = config.build(source.vocab_size, target.vocab_size).eval()
    model.decoder.norm.weight.zero_()  # the same logits at each position ...
    model.decoder.norm.bias.fill_(1.0)
    model.output.weight.zero_()
    model.output.weight[EOS] = 1.0  # ... of which the end token's is the largest
    engine = engine_of(translator._replace(model=model), tmp_path)
    options = BeamOptions(beam=1, length_penalty=length_penalty)
    sources = [source.subwords([5, 6])]
    assert exporting.search(engine, sources, options, max_length=model.max_length) == [[]]


@torch.inference_mode()
def test_the_code_of_the_documentation_translates_as_the_model(
    trained: TranslationTraining,
    translator: TrainedTranslator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs" / "toy").mkdir(parents=True)
    export(trained.run, translator, tmp_path / "runs" / "toy" / "ctranslate2", int8=False)
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "howto" / "export_a_translator.md"
    blocks = re.findall(r"```py\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    sentence = SENTENCES[0]  # of the training set: the tiny model knows little else
    search = beam(BeamOptions().beam, BeamOptions().length_penalty)
    (expected,) = translate_sentences(translator, [sentence], search=search)
    (block,) = blocks
    for given, here in (("毎晩、あの犬は水を飲みます。", sentence), ("_length=128", "_length=32")):
        assert given in block
        block = block.replace(given, here)
    exec(compile(block, str(page), "exec"), {})
    torch.set_num_threads(1)  # which CTranslate2 has changed
    assert capsys.readouterr().out == f"{expected}\n"


def test_an_existing_output_is_refused_before_anything_is_computed(
    trained: TranslationTraining, translator: TrainedTranslator, tmp_path: Path
) -> None:
    (tmp_path / "exported").mkdir()
    for folder, message in (
        (tmp_path, "exported exists already; remove it, or choose another"),
        (tmp_path / "missing", "the folder .* does not exist"),
        (trained.run.folder / "checkpoints", "belongs to the run"),
    ):
        with pytest.raises((OSError, UserError), match=message):
            export(trained.run, translator, folder / "exported", int8=False)
    assert [*tmp_path.rglob("*")] == [tmp_path / "exported"]


def test_the_command_writes_into_the_run_unless_told_otherwise(
    own_run: Path, tmp_path: Path, call: Callable[..., str], refused: Callable[..., str]
) -> None:
    command = ["export", "--run", own_run, "--to", "ctranslate2"]
    assert "ctranslate2-int8" in call(*command, "--int8")
    assert (own_run / "ctranslate2-int8" / "model.bin").exists()
    call(*command, "--output", tmp_path / "files")
    assert (tmp_path / "files" / "model.bin").exists()
    assert 'Invalid value "onnx" for --to' in refused("export", "--to", "onnx")


@pytest.fixture
def own_run(trained: TranslationTraining, tmp_path: Path) -> Path:
    """A copy of the trained run, into which CTranslate2's files are written."""
    return Path(shutil.copytree(trained.run.folder, tmp_path / "own"))


@pytest.mark.parametrize("beams", ["1", "4"])
def test_translate_with_ctranslate2_prints_what_the_model_translates(
    own_run: Path, beams: str, tmp_path: Path, call: Callable[..., str]
) -> None:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join([*SENTENCES, "", "犬" * 50]), encoding="utf-8")
    command = ["translate", "--run", own_run, "--file", file, "--beam", beams]
    ours, others = (call(*command, *each).splitlines() for each in ([], ENGINE))
    assert len(ours) == len(SENTENCES) + 2
    assert others[:-1] == ours[:-1]


def test_what_the_engine_cannot_do_is_refused(
    own_run: Path,
    small_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    line = refused("translate", "--run", small_run("rnn-fixed"), *ENGINE)
    assert "only a Transformer can be exported" in line
    monkeypatch.setattr(packages, "find_spec", lambda name: None if "2" in name else name)
    line = refused("translate", "--run", own_run, *ENGINE)
    assert "CTranslate2 needs ctranslate2" in line
