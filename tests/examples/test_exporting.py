"""Exporting a translator: ONNX and CTranslate2 translate as the model does."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.examples.tiny_run import SETTINGS, make_corpus

import translate as program
from common.batching import pad
from common.errors import UserError
from common.searches import Beam
from common.tokenizer import BOS, EOS, PAD
from transformer_blocks import beam_search
from transformer_blocks.explorer import packages
from transformer_blocks.generation import Generation
from transformer_blocks.inference.int8 import has_integer_product
from translation import exporting
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY, parse
from translation.commands import make_search
from translation.decoding import Decoder, decoder_of, length_limit
from translation.exporting import PACKAGES, export
from translation.run import TrainedTranslator, load_translator
from translation.training import TranslationTraining
from translation.transformer import Transformer

ctranslate2 = pytest.importorskip("ctranslate2")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
CORPUS = make_corpus()
SENTENCES = [pair.source for pair in (*CORPUS.train, *CORPUS.validation, *CORPUS.test)]
CPU = torch.device("cpu")
ALL_AGREE = [
    f"{name}: 30 of 30 translations as by the model"
    for name in ("greedy decoding", "beam search, 4 beams")
]


@pytest.fixture(scope="module")
def translator(trained: TranslationTraining) -> TrainedTranslator:
    return load_translator(trained.run, CPU)


@pytest.fixture(scope="module")
def onnx(
    trained: TranslationTraining,
    translator: TrainedTranslator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Export to ONNX, once, and compare the translations of all sentences."""
    folder = tmp_path_factory.mktemp("exported") / "onnx"
    found = export(trained.run, translator, "onnx", folder, sentences=SENTENCES)
    assert found == ALL_AGREE
    return folder


@pytest.fixture(scope="module")
def loaded(onnx: Path) -> Any:
    from translation.onnx_steps import OnnxModel

    return OnnxModel(onnx)


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize(
    ("source", "reorders"),
    [
        ([[EOS]], {}),  # batch size 1, length 1
        ([[5, 9, EOS]], {}),
        ([[5, 6, 7, 8, EOS], [9, EOS], [EOS]], {}),
        ([[PAD, PAD], [5, EOS]], {}),  # a fully masked row
        ([[PAD]], {}),
        ([[5, EOS], [6, 7, 8, EOS]], {1: [0, 0, 0, 1, 1, 1], 4: [2, 0, 1, 5, 5, 3], 6: [5], 8: []}),
        ([[5, EOS], [6, 7, 8, EOS], [9, EOS]], {2: [2, 1], 5: [1], 7: [0, 0]}),
    ],
)
def test_the_steps_of_the_files_give_the_logits_of_the_model(
    source: list[list[int]],
    reorders: dict[int, list[int]],
    loaded: Any,
    translator: TrainedTranslator,
) -> None:
    model = translator.model
    ours, exported = model.begin(pad(source)), loaded.begin(pad(source))
    tokens = torch.full((len(source),), BOS)
    for position in range(model.max_length):
        if rows := reorders.get(position):
            ours.reorder(torch.tensor(rows))
            exported.reorder(torch.tensor(rows))
            tokens = tokens[torch.tensor(rows)]
        expected = ours.step(tokens)
        torch.testing.assert_close(exported.step(tokens), expected, rtol=0, atol=1e-4)
        tokens = (expected.argmax(-1) + position) % 80  # different tokens at each position
    with pytest.raises(ValueError, match="at most 32 tokens, got 33"):
        exported.step(tokens)


@pytest.mark.slow
def test_a_sentence_that_is_too_long_is_refused_also_by_the_files_alone(loaded: Any) -> None:
    with pytest.raises(ValueError, match="at most 32 tokens, got 33"):
        loaded.begin(torch.full((1, 33), 5))
    with pytest.raises(Exception, match="broadcast"):
        loaded.encoder.run(None, {"source": np.full((1, 33), 5)})
    steps = loaded.begin(torch.full((1, 32), 5))
    steps.cache = {name: torch.zeros(1, 2, 32, 16) for name in steps.cache}
    inputs = {"tokens": torch.tensor([5]), **steps.memory, **steps.cache}
    with pytest.raises(Exception, match="broadcast"):
        loaded.decoder.run(None, {name: x.numpy() for name, x in inputs.items()})


@pytest.mark.slow
def test_the_folder_describes_itself(onnx: Path, trained: TranslationTraining) -> None:
    content = json.loads((onnx / "export.json").read_text(encoding="utf-8"))
    files = {"encoder.onnx", "step.onnx", "export.json", "source.model", "target.model"}
    assert {file.name for file in onnx.iterdir()} == files
    for name in content["tokenizers"]:
        assert (onnx / name).read_bytes() == (trained.run.folder / name).read_bytes()
    assert content["ids"] == {"padding": 0, "unknown": 1, "begin": 2, "end": 3}
    assert content["max_length"] == 32
    assert {*PACKAGES["onnx"], "torch"} <= content["versions"].keys()
    step = content["files"]["step.onnx"]
    assert step["inputs"]["keys_0"] == ["tensor(float)", ["batch", 2, "length", 16]]
    assert step["outputs"]["new_keys_0"] == ["tensor(float)", ["batch", 2, "length + 1", 16]]


def test_ctranslate2_translates_as_the_model(
    trained: TranslationTraining, translator: TrainedTranslator, tmp_path: Path
) -> None:
    _, model, _, target = translator
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folders = tmp_path / "float32", tmp_path / "int8"
    # Without VNNI instructions, oneDNN limits sums of int8 products to 16 bits, in CTranslate2 too.
    least = 20 if has_integer_product() else 1
    for folder in folders:
        int8 = folder.name == "int8"
        found = export(
            trained.run, translator, "ctranslate2", folder, int8=int8, sentences=SENTENCES
        )
        assert int8 or found == ALL_AGREE
        assert (
            min(int(re.findall(r": (\d+) of 30 translations", each)[0]) for each in found) >= least
        )
        assert {file.name for file in folder.iterdir()} == {
            "model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json",
            "export.json", "source.model", "target.model",
        }  # fmt: skip
        content = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        search = make_search(parse(["translate", "a"], description=None), target.vocab_size)
        assert search == Beam(*map(content["search"].get, ("beam_size", "length_penalty")))
    large, small = ((folder / "model.bin").stat().st_size for folder in folders)
    assert small < large / 2
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def load(folder: Path) -> Any:
    """Load CTranslate2's files, with torch's threads: both set those of the process."""
    return ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "pre_norm": False},
        {"tie_embeddings": False},
        {"pre_norm": False, "shared_vocabulary": True},
    ],
    ids=["post-norm", "not tied", "shared"],
)
def test_ctranslate2_gives_the_log_probabilities_of_every_kind_of_transformer(
    options: dict[str, Any], translator: TrainedTranslator, tmp_path: Path
) -> None:
    from translation.ctranslate2_export import write_model

    _, _, source, target = translator
    if options.get("shared_vocabulary"):
        target = source
    config = replace(SETTINGS, **options)
    model: Any = config.build(source.vocab_size, target.vocab_size).eval()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))  # biases and norms count, too
    write_model(translator._replace(model=model, target=target), tmp_path)
    engine = load(tmp_path)
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
    from translation.ctranslate2_export import search, write_model

    _, model, source, target = translator
    assert isinstance(model, Transformer)
    write_model(translator._replace(model=model, target=target), tmp_path)
    found = search(
        load(tmp_path),
        [*map(source.subwords, source.encode_many(SENTENCES)), [], ["no such subword"]],
        Beam(4, length_penalty),
        max_length=model.max_length,
    )
    assert found[-2] == []  # an empty sentence
    for sentence, names in zip(SENTENCES, found, strict=False):
        ids = source.encode(sentence)
        ((best, *_),) = Beam(4, length_penalty)(
            model.begin(torch.tensor([[*ids, EOS]])),
            torch.tensor([BOS]),
            end_id=EOS,
            max_length=[length_limit(model.max_length, len(ids))],
        )
        assert target.subwords(best.tokens) == names


def test_all_hypotheses_of_ctranslate2_are_ranked_by_our_length_penalty() -> None:
    from translation.ctranslate2_export import search

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
        ((first, *_),) = search(Engine(), [["a"]], beam, max_length=20)
        assert first == best


@torch.no_grad()
@pytest.mark.parametrize("length_penalty", [0.0, 1.4])
def test_ctranslate2_may_end_at_once_as_the_model(
    length_penalty: float, translator: TrainedTranslator, tmp_path: Path
) -> None:
    from translation.ctranslate2_export import search, write_model

    _, _, source, target = translator
    config = replace(SETTINGS, tie_embeddings=False)
    model: Any = config.build(source.vocab_size, target.vocab_size).eval()
    model.decoder.norm.weight.zero_()  # the same logits at each position ...
    model.decoder.norm.bias.fill_(1.0)
    model.output.weight.zero_()
    model.output.weight[EOS] = 1.0  # ... of which the end token's is the largest
    write_model(translator._replace(model=model, target=target), tmp_path)
    found = search(
        load(tmp_path),
        [source.subwords([5, 6])],
        Beam(1, length_penalty),
        max_length=model.max_length,
    )
    assert found == [[]]


@pytest.mark.slow
@torch.inference_mode()
def test_the_code_of_the_documentation_translates_as_the_model(
    onnx: Path,
    trained: TranslationTraining,
    translator: TrainedTranslator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, model, source, target = translator
    (tmp_path / "runs" / "toy").mkdir(parents=True)
    (tmp_path / "runs" / "toy" / "onnx").symlink_to(onnx)
    export(trained.run, translator, "ctranslate2", tmp_path / "runs" / "toy" / "ctranslate2")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "howto" / "export_a_translator.md"
    blocks = re.findall(r"```{code-block} python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    sentence = SENTENCES[0]  # of the training set: the tiny model knows little else
    ids = [*source.encode(sentence), EOS]
    assert len(blocks) == 2
    for block in blocks:
        ((best, *_),) = beam_search(
            model.begin(torch.tensor([ids])),
            torch.tensor([BOS]),
            beam_size=BEAM_SIZE,
            end_id=EOS,
            max_length=length_limit(model.max_length, len(ids) - 1),
            length_penalty=LENGTH_PENALTY,
        )
        assert "犬が水を飲みました。" in block
        exec(compile(block.replace("犬が水を飲みました。", sentence), str(page), "exec"), {})
        torch.set_num_threads(1)  # which CTranslate2 has changed
        assert capsys.readouterr().out == f"{target.decode(best.tokens)}\n"


@pytest.mark.parametrize("kind", PACKAGES)
def test_an_existing_output_is_refused_before_anything_is_computed(
    kind: str, translator: TrainedTranslator, trained: TranslationTraining, tmp_path: Path
) -> None:
    (tmp_path / "exported").mkdir()
    with pytest.raises(UserError, match=r"exported exists already; remove it, or choose another"):
        export(trained.run, translator, kind, tmp_path / "exported")
    with pytest.raises(UserError, match=r"the folder .* does not exist"):
        export(trained.run, translator, kind, tmp_path / "missing" / "exported")
    with pytest.raises(UserError, match="belongs to the run"):
        export(trained.run, translator, kind, trained.run.folder / "checkpoints" / "exported")
    assert [*tmp_path.rglob("*")] == [tmp_path / "exported"]


def test_a_failure_leaves_no_file(
    translator: TrainedTranslator,
    trained: TranslationTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = [Generation([1, 2], 0.0, finished=True)]
    monkeypatch.setattr(
        "translation.ctranslate2_export.load_decoder",
        lambda *_: lambda sources: [wrong for _ in sources],
    )
    with pytest.raises(UserError, match="nothing was written: none of 3 sentences"):
        export(
            trained.run, translator, "ctranslate2", tmp_path / "exported", sentences=SENTENCES[:3]
        )
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_recurrent_model_is_refused(
    kind: str, translator: TrainedTranslator, trained: TranslationTraining, tmp_path: Path
) -> None:
    config = replace(SETTINGS, model="rnn-additive")
    recurrent = translator._replace(config=config, model=config.build(80, 80))
    with pytest.raises(UserError, match=r"only a Transformer can be exported.*rnn-additive"):
        export(trained.run, recurrent, kind, tmp_path / "exported")


@pytest.mark.parametrize(
    ("kind", "package"), [(kind, each) for kind, names in PACKAGES.items() for each in names]
)
def test_a_missing_package_is_named_with_its_extra(
    kind: str,
    package: str,
    translator: TrainedTranslator,
    trained: TranslationTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == package else name)
    message = rf'^export --to {kind} needs {package}, .*"transformer-blocks\[export\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        export(trained.run, translator, kind, tmp_path / "exported")


def test_the_command_writes_into_the_run_unless_told_otherwise(
    trained: TranslationTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["export", "--run", str(trained.run.folder), "--to", "ctranslate2"]
    monkeypatch.setattr("translation.commands.corpus_of", lambda run, config: CORPUS)
    assert program.main([*command, "--output", str(tmp_path / "files"), "--check", "2"]) == 0
    printed = capsys.readouterr().out
    assert f"Written: {tmp_path / 'files'}" in " ".join(printed.split())
    assert "beam search, 4 beams: 2 of 2 translations as by the model" in printed
    assert program.main([*command, "--output", str(tmp_path / "files")]) == 2
    assert "exists already" in capsys.readouterr().err
    monkeypatch.delattr("translation.commands.corpus_of")  # which is not needed without a check
    assert program.main([*command, "--output", str(tmp_path / "other"), "--check", "0"]) == 0
    with pytest.raises(UserError, match="--int8 requires --to ctranslate2"):
        parse(["export", "--to", "onnx", "--int8"], description=None)


def test_a_disagreement_is_shown(translator: TrainedTranslator) -> None:
    def other(beam: Beam) -> Decoder:
        ours = decoder_of(translator.model, beam)
        wrong = [Generation([7, 8], 0.0, finished=True)]
        return lambda sources: [wrong, *ours(sources)[1:]]

    (identical, line), _ = exporting.compare(translator, other, SENTENCES[:3])
    assert identical == 2
    assert line.startswith("greedy decoding: 2 of 3 translations as by the model; the first other")
    assert line.endswith(f"\n  exported  {translator.target.decode([7, 8])}")


@pytest.fixture
def own_run(trained: TranslationTraining, tmp_path: Path) -> Path:
    """A copy of the trained run, into which CTranslate2's files are written."""
    return Path(shutil.copytree(trained.run.folder, tmp_path / "own"))


@pytest.mark.parametrize("beams", ["1", "4"])
def test_translate_with_ctranslate2_prints_what_the_model_translates(
    own_run: Path, beams: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join([*SENTENCES, "", "犬" * 50]), encoding="utf-8")
    command = ["translate", "--run", str(own_run), "--file", str(file), "--beam", beams]
    assert program.main(command) == 0
    ours = capsys.readouterr().out
    assert len(ours.splitlines()) == len(SENTENCES) + 2
    assert program.main([*command, "--engine", "ctranslate2"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == ours.splitlines()[:-1]


def test_the_model_is_exported_for_the_engine_when_its_weights_have_changed(
    own_run: Path, trained: TranslationTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["translate", "--run", str(own_run), "--engine", "ctranslate2", "犬が走る。"]
    folder, written = own_run / "ctranslate2", []
    for options in ([], [], ["--average-last", "1"], ["--int8"]):
        assert program.main([*command, *options]) == 0
        written.append((folder / "model.bin").stat().st_mtime_ns)
    assert written[0] == written[1] != written[2] == written[3]
    assert capsys.readouterr().err.count("exported the model to") == 3
    assert (own_run / "ctranslate2-int8" / "model.bin").exists()
    (folder / "export.json").unlink()  # a folder that no export has written
    assert program.main(command) == 2
    assert "exists already; remove it" in " ".join(capsys.readouterr().err.split())


def test_what_the_engine_cannot_do_is_refused(
    own_run: Path,
    small_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def error(run: Path, *options: str) -> str:
        command = ["translate", "--run", str(run), "--engine", "ctranslate2", "犬", *options]
        capsys.readouterr()
        assert program.main(command) == 2
        return " ".join(capsys.readouterr().err.split())

    for options in (["--sample"], ["--n-best", "2"], ["--program", "p.pt2"]):
        assert f"{options[0]} cannot be combined with --engine" in error(own_run, *options)
    assert "only a Transformer can be exported" in error(small_run("rnn-fixed"))
    monkeypatch.setattr(packages, "find_spec", lambda name: None if "2" in name else name)
    assert "--engine ctranslate2 needs ctranslate2" in error(own_run)
