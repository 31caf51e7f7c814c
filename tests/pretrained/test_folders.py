"""Folders of all published families: their tokens, what is loaded from them, their damages."""

import json
import os
import pickle
import re
import shutil
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.pretrained.published import (
    DECODERS,
    ENCODERS,
    TEXTS,
    TOKENS,
    Change,
    assert_same_weights,
    edit_json,
    every_family,
    load,
    lose,
    setting,
    truncate,
    update,
    write,
)
from torch import Tensor

from transformer_blocks import LanguageModel, Seq2Seq, first_pool, last_pool, mean_pool
from transformer_blocks.explorer.packages import MissingPackageError
from transformer_blocks.pretrained import from_pretrained
from transformer_blocks.pretrained.bert import TextEncoder
from transformer_blocks.pretrained.config import LoadError
from transformer_blocks.pretrained.families import find_folder
from transformer_blocks.pretrained.tokenizer import Tokenizer

Publish = Callable[[str], Path]

# Tokens


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS, "t5"])
def test_texts_are_encoded_and_decoded_as_by_transformers(family: str, published: Publish) -> None:
    folder = published(family)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = Tokenizer(folder)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        whole = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == whole
        for cut in range(1, len(ids)):
            before, after = ours.decode(ids[:cut]), ours.decode(ids[cut:], ids[:cut])
            is_split = not whole.startswith(before)  # within a character
            assert after == (ours.decode(ids[cut:]) if is_split else whole[len(before) :])
    assert ours.ids == {*range(len(theirs))}
    assert ours.encode("the\ud800 c\udfffat") == ours.encode("the cat")


def test_a_truncation_in_the_file_is_not_obeyed(published: Publish, tmp_path: Path) -> None:
    copy = shutil.copytree(published("gpt2"), tmp_path / "copy")
    expected = Tokenizer(copy).encode("the cat")
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    update("tokenizer.json", truncation=truncation)(copy)
    assert Tokenizer(copy).encode("the cat") == expected


def test_a_folder_with_older_files_alone_says_how_to_make_the_tokenizer(
    published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("gpt2"), tmp_path / "copy")
    expected = Tokenizer(copy).encode("the cat")
    model = json.loads((copy / "tokenizer.json").read_bytes())["model"]
    (copy / "vocab.json").write_text(json.dumps(model["vocab"]))
    (copy / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink(missing_ok=True)
    with pytest.raises(LoadError, match=r"make it with transformers\.") as error:
        Tokenizer(copy)
    eval(str(error.value).partition("make it with ")[2])  # what the user is told to do
    assert Tokenizer(copy).encode("the cat") == expected


# Models


@every_family
def test_a_folder_gives_a_model_with_its_tokenizer(family: str, published: Publish) -> None:
    model, tokenizer = from_pretrained(published(family), dtype=torch.float64)
    wanted = {"marian": Seq2Seq, "t5": Seq2Seq, **dict.fromkeys(ENCODERS, TextEncoder)}
    assert type(model) is wanted.get(family, LanguageModel)
    assert {each.dtype for each in model.parameters()} == {torch.float64}
    assert not model.training
    assert tokenizer.end_ids == ((0,) if family == "marian" else (2,))
    assert tokenizer.encode("the cat")


@pytest.mark.parametrize(
    ("found", "expected"), [([2, 300], (2, 300)), (None, ()), ("LOST", (2,))], ids=str
)
def test_the_end_tokens_are_those_of_generation_config_or_else_of_config(
    found: object, expected: tuple[int, ...], published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("llama"), tmp_path / "copy")
    update("generation_config.json", eos_token_id=found)(copy)
    setting(eos_token_id=2 if found == "LOST" else None)(copy)
    assert from_pretrained(copy)[1].end_ids == expected


def test_a_missing_package_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises((MissingPackageError, ValueError), match=r"tokenizers"):
        from_pretrained("folder")


def test_the_first_example_of_the_readme_runs(
    published: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.partition("```python\n")[2].partition("```")[0]
    assert '"bert-base-uncased"' in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace("bert-base-uncased", published("bert").as_posix()), {})
    assert '"cat","s","at"' in Path("attention.html").read_text(encoding="utf-8")


def older_pooling(**modes: bool) -> dict[str, Any]:
    return {"word_embedding_dimension": 12, "pooling_mode_cls_token": False} | modes


@pytest.mark.parametrize(
    ("settings", "pool"),
    [
        (older_pooling(pooling_mode_cls_token=True, pooling_mode_mean_tokens=False), first_pool),
        (older_pooling(pooling_mode_mean_tokens=True, include_prompt=True), mean_pool),
        (older_pooling(pooling_mode_lasttoken=True), last_pool),
        ({"pooling_mode": "cls", "embedding_dimension": 12}, first_pool),
        (older_pooling(), "got ''"),
    ],
    ids=("first", "mean", "last", "newer form", "none"),
)
def test_the_vector_of_a_text_is_what_the_files_of_sentence_transformers_say(
    settings: dict[str, Any], pool: Any, published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("bert"), tmp_path / "copy")
    (copy / "1_Pooling").mkdir()
    (copy / "2_Normalize").mkdir()
    write("1_Pooling/config.json", json.dumps(settings).encode())(copy)
    if isinstance(pool, str):
        with pytest.raises(LoadError, match=f"json: pooling_mode must be one of .* here, {pool}"):
            from_pretrained(copy)
        return
    assert from_pretrained(copy)[0].pool is pool
    (copy / "3_Dense").mkdir()
    write("3_Dense/config.json", b"{}")(copy)
    with pytest.raises(LoadError, match="3_Dense holds a layer that is not implemented here"):
        from_pretrained(copy)


# Pickles


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_gives_the_model_of_its_safetensors(
    published: Publish, tmp_path: Path, zipped: bool
) -> None:
    copy = shutil.copytree(published("llama"), tmp_path / "copy")
    expected, path = load("llama", copy), copy / "model.safetensors"
    tensors = OrderedDict(load_file(path))
    path.unlink()
    torch.save(tensors, copy / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    assert_same_weights(load("llama", copy), expected)


class Hostile:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize("kind", ["torch", "legacy", "plain", "inside a tensor"])
def test_no_code_in_a_pickle_is_run(
    published: Publish, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    copy, created = shutil.copytree(published("bert"), tmp_path / "copy"), tmp_path / "run"
    hostile = Hostile(os.mkdir, str(created))
    content: object = {"weight": torch.ones(2), "x": hostile}
    if kind == "inside a tensor":
        rest: tuple[object, ...] = 0, (2,), (1,), False, OrderedDict()
        content = {"weight": Hostile(torch._utils._rebuild_tensor_v2, hostile, *rest)}
    (copy / "model.safetensors").unlink()
    path = copy / "pytorch_model.bin"
    if kind == "plain":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind != "legacy")
    with pytest.raises(LoadError, match="holds more than tensors, or is damaged: refused"):
        from_pretrained(copy)
    assert not created.exists()
    # The attack itself works; its result makes no tensor.
    with warnings.catch_warnings(action="ignore"), suppress(AttributeError):
        data = path.read_bytes()
        torch.load(path, weights_only=False) if kind != "plain" else pickle.loads(data)
    assert created.is_dir()


@pytest.mark.parametrize(
    "content",
    [
        [1],
        {"state_dict": {"a": torch.ones(1)}},
        {1: torch.ones(1)},
        {"a": torch.eye(3).to_sparse()},
        {"a": torch.ones(10**12, device="meta")},
    ],
    ids=["list", "nested", "number", "sparse", "meta"],
)
def test_a_pickle_without_named_tensors_is_refused(
    content: object, published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("bert"), tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    torch.save(content, copy / "pytorch_model.bin")
    with pytest.raises(LoadError, match="must hold named, dense tensors, got"):
        from_pretrained(copy)


# What is refused


INDEX = "model.safetensors.index.json"
WEIGHT = "model.layers.1.mlp.up_proj.weight"


def shard(folder: Path) -> None:
    """Divide the weights into three files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(tensors)}
    for file in {*places.values()}:
        chosen = {name: tensors[name] for name in tensors if places[name] == file}
        save_file(chosen, folder / file)
    update(INDEX, weight_map=places)(folder)


def test_weights_in_several_files_are_those_of_one_file(published: Publish, tmp_path: Path) -> None:
    copy = shutil.copytree(published("llama"), tmp_path / "copy")
    expected = load("llama", copy)
    shard(copy)
    assert_same_weights(load("llama", copy), expected)


def sharded(change: Change) -> Change:
    """Return a function that divides the weights, and then changes a file."""

    def write(folder: Path) -> None:
        shard(folder)
        change(folder)

    return write


def change_shard(change: Callable[[dict[str, Tensor]], object]) -> Change:
    def write(folder: Path) -> None:
        path = folder / json.loads((folder / INDEX).read_bytes())["weight_map"][WEIGHT]
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return sharded(write)


def break_link(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("lost")


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def add_tokens(content: dict[str, Any]) -> None:
    vocabulary, added = content["model"]["vocab"], {f"x{i}": len(TOKENS) + i for i in range(20)}
    if isinstance(vocabulary, dict):
        vocabulary.update(added)
    else:
        vocabulary.extend([token, -9.0] for token in added)


NESTED = b'{"model_type":' + b"[" * 900 + b"]" * 900 + b"}"
BELOW = "vocab_size must exceed all ids of the vocabulary, up to"
END = len(TOKENS) + 9  # beyond the last id
DAMAGES: list[tuple[str, Change, str]] = [
    ("bert", only_pickle, "pytorch_model.bin holds more than tensors, or is damaged: refused"),
    ("bert", lose("config.json"), "config.json: No such file"),
    ("bert", lose("model.safetensors"), "model.safetensors is missing"),
    ("bert", break_link, "tokenizer.json: No such file"),
    ("bert", truncate("model.safetensors", -1), "safetensors cannot be read as safetensors"),
    ("bert", write("model.safetensors", b"\n<!DOCTYPE html>"), "is a web page, not the file"),
    (
        *("bert", write("tokenizer.json", b"version https://git-lfs.github.com/spec/v1")),
        "tokenizer.json is a pointer of git-lfs, not the file: run git lfs pull",
    ),
    ("bert", write("config.json", b"[" * 10**5), "not JSON that can be read: too many nested"),
    ("bert", write("config.json", NESTED), "gemma3_text here, got [[[[[[[...]]]]]]]"),
    ("bert", write("config.json", b'{"\\ud800": 1}'), "a lone surrogate, which is no character"),
    ("bert", write("config.json", b"[]"), "must hold a JSON object, got a list"),
    *(
        (family, edit_json("tokenizer.json", add_tokens), BELOW)
        for family in ("bert", "t5", "llama")
    ),
    ("marian", update("vocab.json", new=99), BELOW),
    ("llama", update("generation_config.json", eos_token_id=END), f"{BELOW} {END}, got {END}"),
    (
        *("llama", update("generation_config.json", eos_token_id=[2, "x"])),
        "generation_config.json: eos_token_id must be a token id or a list, got [2, 'x']",
    ),
    (
        *("t5", edit_json("tokenizer.json", lambda content: content["model"].update(vocab=5))),
        "tokenizer.json cannot be read as a tokenizer (",
    ),
    (
        *("llama", sharded(lambda folder: min(folder.glob("model-*")).unlink())),
        "model-00001-of-00003.safetensors cannot be read as safetensors",
    ),
    (
        *("llama", change_shard(lambda tensors: tensors.pop(WEIGHT))),
        f"-of-00003.safetensors lacks tensor '{WEIGHT}'",
    ),
    (
        *("llama", change_shard(lambda tensors: tensors.update(extra=torch.ones(2)))),
        "holds tensor 'extra', which is not there by model.safetensors.index.json",
    ),
    *(
        ("llama", sharded(update(INDEX, weight_map=given)), f"for each tensor, got {shown}")
        for given, shown in ((None, "None"), ({WEIGHT: "../x.safetensors"}, "'../x.safe"))
    ),
    ("marian", lose("vocab.json"), "vocab.json: No such file"),
    ("marian", truncate("source.spm", 300), "source.spm must be a sentencepiece model"),
    ("marian", update("vocab.json", **{"</s>": "LOST"}), "must hold </s>"),
    ("marian", update("vocab.json", **{">>jpn<<": 1}), "must not repeat an id"),
]


@pytest.mark.parametrize(("family", "change", "message"), DAMAGES)
def test_a_damaged_folder_is_refused(
    family: str, change: Change, message: str, published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published(family), tmp_path / "copy")
    change(copy)
    with pytest.raises(LoadError, match=re.escape(message)):
        from_pretrained(copy)


# Models on the hub


def test_a_model_on_the_hub_is_downloaded_and_its_pickle_only_if_need_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((name, revision, "pytorch_model.bin" in allow_patterns))
        return str(tmp_path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))
    assert find_folder("owner/model-1.0", "v2") == tmp_path
    assert calls == [("owner/model-1.0", "v2", False), ("owner/model-1.0", "v2", True)]
    (tmp_path / "model.safetensors").touch()
    assert find_folder("owner/model-1.0", "v2") == find_folder(str(tmp_path)) == tmp_path
    assert len(calls) == 3
    for name in ("no/such/folder", "../model", "a b", str(tmp_path / "x"), ""):
        if not Path(name).is_dir():
            with pytest.raises(LoadError, match="is neither a folder nor the name of a model"):
                find_folder(name)


def test_a_network_error_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **options: object) -> str:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=fail))
    with pytest.raises(LoadError, match=r"could be downloaded: no route to host$"):
        find_folder("owner/model")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LoadError, match="install huggingface_hub: pip install"):
        find_folder("owner/model")
