"""Exporting a translator: CTranslate2 translates as the model does."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import SETTINGS, make_corpus

import translate
from common.errors import UserError
from common.searches import Beam
from common.tokenizer import BOS, EOS
from transformer_blocks.explorer import packages
from transformer_blocks.generation import Generation
from transformer_blocks.inference.int8 import has_integer_product
from translation import exporting
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY, Translate
from translation.commands import make_search
from translation.decoding import TrainedTranslator, decode_sentences, decoder_of, load_translator
from translation.decoding import translate as translate_sentences
from translation.exporting import export
from translation.training import TranslationTraining

ctranslate2 = pytest.importorskip("ctranslate2")
CORPUS = make_corpus()
SENTENCES = [pair.source for pair in (*CORPUS.train, *CORPUS.validation, *CORPUS.test)]
CPU = torch.device("cpu")
ENGINE = ["--engine", "ctranslate2"]


@pytest.fixture(scope="module")
def translator(trained: TranslationTraining) -> TrainedTranslator:
    return load_translator(trained.run, CPU)


@pytest.fixture(scope="module")
def write(trained: TranslationTraining, translator: TrainedTranslator) -> Callable[..., str]:
    """Export the translator, given the folder."""
    return partial(export, trained.run, translator)


def test_ctranslate2_translates_as_the_model(
    write: Callable[..., str],
    trained: TranslationTraining,
    translator: TrainedTranslator,
    tmp_path: Path,
) -> None:
    _, model, _, target = translator
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folders = tmp_path / "float32", tmp_path / "int8"
    # Without VNNI instructions, oneDNN limits sums of int8 products to 16 bits, in CTranslate2 too.
    least = 20 if has_integer_product() else 1
    for folder in folders:
        int8 = folder.name == "int8"
        found = write(folder, int8=int8, sentences=SENTENCES)
        assert int8 or found == "30 of 30 translations as by the model"
        assert int(found.partition(" of 30 ")[0]) >= least
        assert {file.name for file in folder.iterdir()} == {
            "model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json",
            "export.json", "source.model", "target.model",
        }  # fmt: skip
        content = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        for name in content["tokenizers"]:
            assert (folder / name).read_bytes() == (trained.run.folder / name).read_bytes()
        assert content["ids"] == {"padding": 0, "unknown": 1, "begin": 2, "end": 3}
        assert content["max_length"] == 32
        assert content["versions"].keys() == {"transformer-blocks", "torch", "ctranslate2"}
        search = make_search(Translate(), target.vocab_size)
        assert search == Beam(*map(content["search"].get, ("beam_size", "length_penalty")))
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
    engine, beam = engine_of(translator, tmp_path), Beam(4, length_penalty)
    found = exporting.search(engine, sentences, beam, max_length=model.max_length)
    assert found[-2] == []  # an empty sentence
    ours = decode_sentences(decoder_of(model, beam), source, SENTENCES, max_length=model.max_length)
    assert found[:-2] == [target.subwords(best.tokens) for best, *_ in ours]


def test_all_hypotheses_of_ctranslate2_are_ranked_by_our_length_penalty() -> None:
    beam, length = Beam(3, 1.4), {"short": 2, "middle": 6, "long": 19}  # ends included

    class Engine:
        """Returns as many hypotheses as asked for, the most probable of their length each."""

        def translate_batch(self, _: object, **options: Any) -> list[Any]:
            exponent, count = options["length_penalty"], options["num_hypotheses"]
            assert options["beam_size"] == beam.size
            names = [*length][:count]
            scores = [probability[name] / length[name] ** exponent for name in names]
            return [
                SimpleNamespace(hypotheses=[[n] * (length[n] - 1) for n in names], scores=scores)
            ]

    for best in length:
        # log-probabilities whose quotient by ((5 + n) / 6) ** penalty is -1, and less of the best
        probability = {
            name: -(((5 + n) / 6) ** beam.length_penalty) * (0.95 if name == best else 1.0)
            for name, n in length.items()
        }
        ((first, *_),) = exporting.search(Engine(), [["a"]], beam, max_length=20)
        assert first == best


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
    engine, beam = engine_of(translator._replace(model=model), tmp_path), Beam(1, length_penalty)
    sources = [source.subwords([5, 6])]
    assert exporting.search(engine, sources, beam, max_length=model.max_length) == [[]]


@torch.inference_mode()
def test_the_code_of_the_documentation_translates_as_the_model(
    write: Callable[..., str],
    translator: TrainedTranslator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs" / "toy").mkdir(parents=True)
    write(tmp_path / "runs" / "toy" / "ctranslate2")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "howto" / "export_a_translator.md"
    blocks = re.findall(r"```{code-block} python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    sentence = SENTENCES[0]  # of the training set: the tiny model knows little else
    search = Beam(BEAM_SIZE, LENGTH_PENALTY)
    (expected,) = translate_sentences(translator, [sentence], search=search)
    (block,) = blocks
    assert "犬が水を飲みました。" in block
    exec(compile(block.replace("犬が水を飲みました。", sentence), str(page), "exec"), {})
    torch.set_num_threads(1)  # which CTranslate2 has changed
    assert capsys.readouterr().out == f"{expected}\n"


def test_an_existing_output_is_refused_before_anything_is_computed(
    write: Callable[..., str], trained: TranslationTraining, tmp_path: Path
) -> None:
    (tmp_path / "exported").mkdir()
    for folder, message in (
        (tmp_path, "exported exists already; remove it, or choose another"),
        (tmp_path / "missing", "the folder .* does not exist"),
        (trained.run.folder / "checkpoints", "belongs to the run"),
    ):
        with pytest.raises(UserError, match=message):
            write(folder / "exported")
    assert [*tmp_path.rglob("*")] == [tmp_path / "exported"]


def test_a_failure_leaves_no_file(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [Generation([1, 2], 0.0, finished=True)]
    monkeypatch.setattr(
        exporting, "load_decoder", lambda *_: lambda sources: [wrong for _ in sources]
    )
    with pytest.raises(UserError, match="nothing was written: none of 3 sentences"):
        write(tmp_path / "exported", sentences=SENTENCES[:3])
    assert not [*tmp_path.iterdir()]


def test_a_missing_package_is_named_with_its_extra(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    message = r'^export --to ctranslate2 needs ctranslate2, .*"transformer-blocks\[export\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        write(tmp_path / "exported")


def test_the_command_writes_into_the_run_unless_told_otherwise(
    trained: TranslationTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., str],
    refused: Callable[..., str],
) -> None:
    command = ["export", "--run", trained.run.folder, "--to", "ctranslate2", "--output"]
    files = tmp_path / "files"
    monkeypatch.setattr("translation.commands.corpus_of", lambda config: CORPUS)
    printed = call(*command, files, "--check", "2")
    assert f"Written: {files}" in " ".join(printed.split())
    assert "\n2 of 2 translations as by the model" in printed
    assert "exists already" in refused(*command, files)
    monkeypatch.delattr("translation.commands.corpus_of")  # which is not needed without a check
    call(*command, tmp_path / "other", "--check", "0")
    assert 'Invalid value "onnx" for --to' in refused("export", "--to", "onnx")


def test_a_disagreement_is_shown(
    write: Callable[..., str],
    translator: TrainedTranslator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = decoder_of(translator.model, Beam(BEAM_SIZE, LENGTH_PENALTY))
    wrong = [Generation([7, 8], 0.0, finished=True)]
    monkeypatch.setattr(
        *(exporting, "load_decoder"), lambda *_: lambda sources: [wrong, *ours(sources)[1:]]
    )
    line = write(tmp_path / "exported", sentences=SENTENCES[:3])
    assert line.startswith("2 of 3 translations as by the model; the first other one:\n  model  ")
    assert line.endswith(f"\n  exported  {translator.target.decode([7, 8])}")


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


def test_the_model_is_exported_for_the_engine_when_its_weights_have_changed(
    own_run: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["translate", "--run", str(own_run), *ENGINE, "犬が走る。"]
    folder, written = own_run / "ctranslate2", []
    for options in ([], [], ["--average-last", "1"], ["--int8"]):
        assert translate.main([*command, *options]) == 0
        written.append((folder / "model.bin").stat().st_mtime_ns)
    assert written[0] == written[1] != written[2] == written[3]
    assert capsys.readouterr().err.count("exported the model to") == 3
    assert (own_run / "ctranslate2-int8" / "model.bin").exists()
    (folder / "export.json").unlink()  # a folder that no export has written
    assert "exists already; remove it" in refused(*command)


def test_damaged_files_of_the_engine_are_named_in_one_line_and_exported_again_without_them(
    own_run: Path, call: Callable[..., str], refused: Callable[..., str]
) -> None:
    command = ["translate", "--run", own_run, *ENGINE, "犬が走る。"]
    expected, folder = call(*command), own_run / "ctranslate2"
    for name, content in (
        ("export.json", b"{"),
        ("export.json", b"{}"),
        ("export.json", b"[]"),
        ("export.json", b"\xff"),
        ("model.bin", b""),
        ("model.bin", (folder / "model.bin").read_bytes()[:-9]),
        ("model.bin", None),
        ("source_vocabulary.json", b"["),
    ):
        whole = (folder / name).read_bytes()
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        assert f"{folder} is damaged; remove it" in refused(*command), (name, content)
        (folder / name).write_bytes(whole)
    shutil.rmtree(folder)
    assert call(*command) == expected


def test_what_the_engine_cannot_do_is_refused(
    own_run: Path,
    small_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    for options in (["--sample"], ["--n-best", "2"]):
        line = refused("translate", "--run", own_run, *ENGINE, *options)
        assert f"{options[0]} requires --engine torch" in line
    line = refused("translate", "--run", small_run("rnn-fixed"), *ENGINE)
    assert "only a Transformer can be exported" in line
    monkeypatch.setattr(packages, "find_spec", lambda name: None if "2" in name else name)
    line = refused("translate", "--run", own_run, *ENGINE)
    assert "--engine ctranslate2 needs ctranslate2" in line
