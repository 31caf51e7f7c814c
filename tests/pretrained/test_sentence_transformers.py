"""Sentence vectors equal those of sentence-transformers, from folders that it has saved."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tests.pairs import every_pair
from tests.pretrained.published import (
    ENCODERS,
    TEXTS,
    Change,
    edit_json,
    lose,
    one_error_line,
    update,
    write,
)
from torch import nn

from pretrained import bert
from pretrained.bert_sentences import SentenceEncoder

SENTENCES = ["the dog", *(text for text in TEXTS if "<s>" not in text)]
D_MODEL = 12
Publish = Callable[[str], Path]


@pytest.fixture(scope="module")
def encoder(published: Publish) -> Path:
    return published("bert")


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
    encoders = {"": theirs.encode, "query": theirs.encode_query, "document": theirs.encode_document}
    expected = {
        kind: encode(SENTENCES, convert_to_tensor=True) for kind, encode in encoders.items()
    }
    for kind, vectors in expected.items():
        for batch_tokens in (50, 4096):
            found = ours.embed(SENTENCES, kind=kind, batch_tokens=batch_tokens)
            torch.testing.assert_close(found, vectors, rtol=0, atol=1e-5)
    similarities = theirs.similarity(expected["query"][:1], expected["document"])[0]
    found = ours.compare(SENTENCES[0], SENTENCES)
    torch.testing.assert_close(found, similarities, rtol=1e-5, atol=1e-5)


OLD_NAMES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


@every_pair({"family": ENCODERS, "mode": OLD_NAMES, "old": [False, True]})
def test_every_pooling_equals_that_of_sentence_transformers(
    published: Publish, tmp_path: Path, family: str, mode: str, old: bool
) -> None:
    folder = tmp_path / "published"
    theirs = publish(published(family), folder, modules.Pooling(D_MODEL, pooling_mode=mode))
    if old:  # as before version 5.4
        flags = {old_name: name == mode for name, old_name in OLD_NAMES.items()}
        settings = {"word_embedding_dimension": D_MODEL, **flags, "include_prompt": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
        theirs = reload(folder)
    assert_same(folder, theirs)
    if mode == "mean":  # as in a folder without modules
        assert_same(published(family), theirs)


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


def test_the_published_maximum_length_is_obeyed(encoder: Path, tmp_path: Path) -> None:
    assert_same(tmp_path, publish(encoder, tmp_path, modules.Pooling(D_MODEL), length=7))
    for asked, expected in ((None, 7), (9, 9), (600, 512)):  # which older versions saved
        update("sentence_bert_config.json", max_seq_length=asked, do_lower_case=False)(tmp_path)
        assert len(SentenceEncoder.load(tmp_path).tokenizer.encode("the " * 600)) == expected
        if asked == 9:
            assert_same(tmp_path, reload(tmp_path))
    (tmp_path / "sentence_bert_config.json").unlink()
    update("tokenizer_config.json", model_max_length=10**30)(tmp_path)  # as without a maximum
    assert len(SentenceEncoder.load(tmp_path).tokenizer.encode("the " * 600)) == 512


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


BAD: list[tuple[Change, str]] = [
    *((update(file, **{name: value}), f"{file}: {name} must ") for file, name, value in REFUSED),
    (
        update(
            "1_Pooling/config.json", **dict.fromkeys(OLD_NAMES.values(), True), pooling_mode="LOST"
        ),
        "got 'pooling_mode_cls_token and pooling_mode_mean_tokens'",
    ),
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
    (write("modules.json", b"{}"), "modules.json must hold a JSON array, got a dict"),
    (
        write("modules.json", b"[1, 2]"),
        "module 0 must be Transformer of sentence_transformers for this program, got None",
    ),
    (
        update("2_Dense/config.json", out_features=2**28),
        "must have shape (268435456, 12) by config.json, got (6, 12)",
    ),
    (lose("2_Dense/model.safetensors"), "2_Dense/model.safetensors is missing"),
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
