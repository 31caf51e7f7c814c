"""Sentence vectors equal those of sentence-transformers, from folders that it has saved."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tests.examples.published import Change, edit_json, one_error_line, save, update
from torch import nn

from common.errors import UserError
from pretrained import bert
from pretrained.bert_sentences import SentenceEncoder

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "dog", "Dog", "sat", "on"),
    *("a", "mat", "cafe", "café", "東", "京", "##東", "##京", ".", ":", "query", "passage"),
]
TEXTS = [
    *("the cats sat on a mat.", "Dog", "", "the dog", "café 東京 DOG.", "dogs"),
    *("the cat " * 9, "a mat", "the cat sat on the dog . the dog sat on a mat ."),
]
D_MODEL = 16


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a BERT as transformers does, with ``tokenizer.json`` as its only vocabulary."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=D_MODEL,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=18,
    )
    save(transformers.BertModel(config), folder)
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    transformers.BertTokenizer(vocabulary).save_pretrained(folder)
    assert not (folder / "vocab.txt").exists()
    return folder


def publish(
    encoder: Path, folder: Path, *after: nn.Module, length: int | None = None, **options: Any
) -> Any:
    """Save a model of sentence-transformers and load it again."""
    first = modules.Transformer(str(encoder))
    if length is not None:
        first.max_seq_length = length
    SentenceTransformer(modules=[first, *after], device="cpu", **options).save(str(folder))
    return reload(folder)


def reload(folder: Path) -> Any:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def dense(inner: int, outer: int, activation: nn.Module, **options: Any) -> nn.Module:
    made: nn.Module = modules.Dense(inner, outer, activation_function=activation, **options)
    return made


def assert_same(folder: Path, theirs: Any) -> None:
    ours = SentenceEncoder.load(folder)
    for found, expected in (
        (ours.embed(TEXTS), theirs.encode(TEXTS, convert_to_tensor=True)),
        (ours.embed(TEXTS, kind="query"), theirs.encode_query(TEXTS, convert_to_tensor=True)),
        (ours.embed(TEXTS, kind="document"), theirs.encode_document(TEXTS, convert_to_tensor=True)),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    expected = theirs.similarity(
        theirs.encode_query(TEXTS[:1], convert_to_tensor=True),
        theirs.encode_document(TEXTS, convert_to_tensor=True),
    )
    torch.testing.assert_close(ours.compare(TEXTS[0], TEXTS), expected[0], rtol=1e-5, atol=1e-5)


OLD_NAMES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


@pytest.mark.parametrize("mode", OLD_NAMES)
@pytest.mark.parametrize("old", [False, True], ids=["new names", "old names"])
def test_every_pooling_equals_that_of_sentence_transformers(
    encoder: Path, tmp_path: Path, mode: str, old: bool
) -> None:
    folder = tmp_path / "published"
    theirs = publish(encoder, folder, modules.Pooling(D_MODEL, pooling_mode=mode))
    if old:  # as before version 5.4
        flags = {old_name: name == mode for name, old_name in OLD_NAMES.items()}
        settings = {"word_embedding_dimension": D_MODEL, **flags, "include_prompt": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
        theirs = reload(folder)
    assert_same(folder, theirs)


@pytest.mark.parametrize(
    "after",
    [
        [modules.Normalize()],
        [dense(D_MODEL, 6, nn.Tanh()), modules.Normalize()],
        [modules.Normalize(), modules.Dropout(0.5), dense(D_MODEL, 24, nn.Identity(), bias=False)],
        [dense(D_MODEL, 12, nn.Tanh()), dense(12, 8, nn.Identity())],
    ],
    ids=["normalised", "dense", "without bias", "two layers"],
)
def test_layers_after_the_pooling_are_applied(
    encoder: Path, tmp_path: Path, after: list[nn.Module]
) -> None:
    theirs = publish(encoder, tmp_path, modules.Pooling(D_MODEL), *after)
    assert_same(tmp_path, theirs)
    for path in tmp_path.glob("*_Dense/config.json"):  # without the settings that have a default
        settings = json.loads(path.read_text())
        is_tanh = settings["activation_function"].endswith("Tanh")
        left_out = {"bias": settings["bias"] is True, "activation_function": is_tanh}
        kept = {name: each for name, each in settings.items() if not left_out.get(name)}
        path.write_text(json.dumps(kept))
    assert_same(tmp_path, reload(tmp_path))


@pytest.mark.parametrize("file", ["tokenizer_config", "sentence_bert_config"])
def test_the_published_maximum_length_is_obeyed(encoder: Path, tmp_path: Path, file: str) -> None:
    theirs = publish(encoder, tmp_path, modules.Pooling(D_MODEL), length=7)
    assert json.loads((tmp_path / "tokenizer_config.json").read_bytes())["model_max_length"] == 7
    if file == "sentence_bert_config":  # which older versions saved
        (tmp_path / "sentence_bert_config.json").write_text(
            '{"max_seq_length": 9, "do_lower_case": false}'
        )
        theirs = reload(tmp_path)
    longest = len(SentenceEncoder.load(tmp_path).tokenizer.encode("the " * 99))
    assert longest == (7 if file == "tokenizer_config" else 9)
    assert_same(tmp_path, theirs)


@pytest.mark.parametrize(
    "options",
    [
        {"prompts": {"query": "query: ", "passage": "passage: "}},
        {"prompts": {"any": "the dog "}, "default_prompt_name": "any"},
        {"prompts": {"query": "query: ", "x": "a "}, "default_prompt_name": "x"},
        {"prompts": {"document": "the ", "passage": "a "}},
        {"similarity_fn_name": "dot"},
    ],
    ids=str,
)
def test_prompts_and_similarity_function_are_obeyed(
    encoder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    theirs = publish(encoder, tmp_path, modules.Pooling(D_MODEL), **options)
    assert_same(tmp_path, theirs)
    # As a person may write it; the library saves an empty prompt for each kind without one.
    update("config_sentence_transformers.json", prompts=options.get("prompts", {}))(tmp_path)
    assert_same(tmp_path, reload(tmp_path))


def test_folders_of_the_first_versions_are_understood(encoder: Path, tmp_path: Path) -> None:
    publish(encoder, tmp_path, modules.Pooling(D_MODEL, pooling_mode="cls"), modules.Normalize())
    (tmp_path / "0_Transformer").mkdir()
    for path in tmp_path.iterdir():
        if path.is_file() and path.name not in (
            "modules.json",
            "config_sentence_transformers.json",
        ):
            path.rename(tmp_path / "0_Transformer" / path.name)
    listed = json.loads((tmp_path / "modules.json").read_bytes())
    for module in listed:
        module["type"] = f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"
    listed[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    assert_same(tmp_path, reload(tmp_path))


REFUSED: tuple[tuple[str, str, object], ...] = (
    ("1_Pooling/config.json", "pooling_mode", "median"),
    ("1_Pooling/config.json", "include_prompt", False),
    ("1_Pooling/config.json", "embedding_dimension", 8),
    *(("2_Dense/config.json", "in_features", 8), ("2_Dense/config.json", "use_residual", True)),
    ("1_Pooling/config.json", "pooling_mode", ["mean", "max"]),
    ("2_Dense/config.json", "module_input_name", "x"),
    ("2_Dense/config.json", "activation_function", "os.system"),
    ("sentence_bert_config.json", "do_lower_case", True),
    ("tokenizer_config.json", "model_max_length", 1),
    ("config_sentence_transformers.json", "model_type", "SparseEncoder"),
    ("config_sentence_transformers.json", "similarity_fn_name", "manhattan"),
    ("config_sentence_transformers.json", "prompts", [1]),
)
"""Values of settings that are not implemented, or contradict others."""


@pytest.mark.parametrize(("file", "name", "value"), REFUSED)
def test_a_value_that_is_not_implemented_is_refused_by_the_name_of_its_setting(
    file: str, name: str, value: object, complete: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(complete, tmp_path / "copy")
    update(file, **{name: value})(folder)
    with pytest.raises(UserError, match=rf"{file}: {name} must "):
        SentenceEncoder.load(folder)


BAD: list[tuple[Change, str]] = [
    (
        edit_json(
            "modules.json", lambda listed: listed[2].update(type="sentence_transformers.models.CNN")
        ),
        "modules.json: module 2 must be Dense or Dropout or Normalize of",
    ),
    (
        edit_json("modules.json", lambda listed: listed.insert(1, listed.pop(2))),
        "module 1 must be Pooling of sentence_transformers for this program",
    ),
    (
        edit_json("modules.json", lambda listed: listed[0].update(path="../x")),
        "module 0 must name a folder within the model's, got '../x'",
    ),
    (edit_json("modules.json", lambda listed: listed.clear()), "must list an encoder"),
    (
        lambda folder: (folder / "modules.json").write_text("{}"),
        "modules.json must hold a JSON array, got a dict",
    ),
    (
        lambda folder: (folder / "modules.json").write_text("[1, 2]"),
        "module 0 must be Transformer of sentence_transformers for this program, got None",
    ),
    (
        update("2_Dense/config.json", out_features=2**28),
        "must have shape (268435456, 16) by config.json, got (6, 16)",
    ),
    (
        lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(),
        "2_Dense/model.safetensors is missing",
    ),
    (
        update("tokenizer.json", pre_tokenizer={"type": "Nothing"}),
        "tokenizer.json cannot be read as a tokenizer (",
    ),
]


@pytest.fixture(scope="module")
def complete(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete")
    layers = dense(D_MODEL, 6, nn.Tanh()), modules.Normalize()
    publish(encoder, folder, modules.Pooling(D_MODEL), *layers)
    return folder


@pytest.mark.parametrize(("damage", "message"), BAD)
def test_a_setting_that_is_not_implemented_is_refused_by_name(
    damage: Change, message: str, complete: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, lines = shutil.copytree(complete, tmp_path / "copy"), tmp_path / "lines.txt"
    lines.write_text("the cat\n", encoding="utf-8")
    arguments = [str(folder), "the dog", "--file", str(lines)]
    assert bert.main(arguments) == 0
    capsys.readouterr()
    damage(folder)
    assert bert.main(arguments) == 2
    assert message in one_error_line(capsys)
