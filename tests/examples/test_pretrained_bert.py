"""BERT computes what transformers computes from the same files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tests.examples.published import (
    Change,
    edit_json,
    enlarge_weights,
    lose,
    one_error_line,
    save,
    setting,
    truncate,
    update,
    write,
)

from common.errors import UserError
from pretrained import bert, generate, marian
from pretrained.bert_sentences import SentenceEncoder
from pretrained.loading import find_folder
from pretrained.tokenizer import PublishedTokenizer

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "##at", "a"),
    *("##b", "c", "un", "##believ", "##able", "cafe", "café", "naive", "東", "京", "犬"),
    *("##が", "は", "!", ".", "'", "-", "[", "]", "sep", "I", "i", "##i", "##̇", "σ"),
    *("##α", "##σ", "##ς", "##a", "👍", "##👍", "$", "5"),
)
VOCABULARY = {token: number for number, token in enumerate(TOKENS)}
TRICKY = (
    *("", " ", "the cats!", "THE Cats.", "unbelievable unbelievably", "café Café CAFÉ naïve"),
    *("東京は犬が", "東京tower", "ｶﾞ ガ", "the\tcat\nsat\rthe", "a\u00a0cat\u3000c"),
    *("a\u200bb a\u00adb", "a\x00b\x07\x7fc", "a\ufffdb", "İI ıi", "ΣΑΣ σας", "👍 👍🏽 a👍"),
    *("it's -- [SEP] [PAD] [MASK]", "$5.00", "a" * 100, "a" * 101, "a\u2028c\u2029a"),
    *("a\ue000b", "¿the cat?", "e\u0301 cafe\u0301"),
    "The the the the the the the the the the the the the the the the the the the the",
)


def settings() -> Any:
    return transformers.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published, once")
    torch.manual_seed(0)
    save(transformers.BertModel(settings()), folder)
    published_tokenizer().save_pretrained(folder)
    return folder


def published_tokenizer(**options: Any) -> Any:
    return transformers.BertTokenizer(VOCABULARY, **options)


def test_a_sentence_vector_is_the_mean_of_the_hidden_states(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    inputs = published_tokenizer()(
        list(TRICKY),
        padding=True,
        truncation=True,
        max_length=20,
        split_special_tokens=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        states = theirs(**inputs).last_hidden_state
    real = inputs["attention_mask"][:, :, None]
    expected = (states * real).sum(1) / real.sum(1)
    for batch_tokens in (1, 50, 4096):
        found = encoder.embed(TRICKY, batch_tokens=batch_tokens)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_first_example_of_the_readme_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.partition("```python\n")[2].partition("```")[0]
    assert '"bert-base-uncased"' in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace("bert-base-uncased", folder.as_posix()), {})
    assert "[CLS]" in (tmp_path / "attention.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("lower_case", [True, False])
def test_texts_are_encoded_as_by_transformers(tmp_path: Path, lower_case: bool) -> None:
    theirs = published_tokenizer(do_lower_case=lower_case)
    theirs.save_pretrained(tmp_path)
    ours = PublishedTokenizer.load(tmp_path, max_length=20)
    for text in TRICKY:
        expected = theirs(text, truncation=True, max_length=20, split_special_tokens=True)
        assert ours.encode(text) == expected["input_ids"], text
    assert ours.encode("the\ud800 c\udfffat") == ours.encode("the cat")


def test_the_smaller_maximum_length_is_used(folder: Path, tmp_path: Path) -> None:
    for asked, expected in ((7, 7), (600, 20)):
        short = shutil.copytree(folder, tmp_path / str(asked))
        update("sentence_bert_config.json", max_seq_length=asked)(short)
        assert len(SentenceEncoder.load(short).tokenizer.encode("the " * 99)) == expected


def break_link(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").symlink_to("lost")


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


DAMAGES: list[tuple[Change, str]] = [
    (lose("config.json"), "config.json: No such file"),
    (lose("model.safetensors"), "model.safetensors is missing"),
    (
        only_pickle,
        "the folder's pytorch_model.bin is a pickle, which could run code when it is opened;",
    ),
    (enlarge_weights, "sentence vectors must be finite: the model's weights are too large"),
    (break_link, "tokenizer_config.json is not a file"),
    (truncate("model.safetensors", -1), "model.safetensors cannot be read as safetensors"),
    (
        write("model.safetensors", b"\n<!DOCTYPE html><html>"),
        "model.safetensors is a web page, not the file: download it again",
    ),
    (
        write("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "tokenizer.json is a pointer of git-lfs, not the file: run git lfs pull",
    ),
    (
        write("config.json", b'{"model_type":' + b"[" * 100000 + b"]" * 100000 + b"}"),
        "config.json is not JSON that can be read: too many nested levels",
    ),
    (
        write("config.json", b'{"model_type":' + b"[" * 900 + b"]" * 900 + b"}"),
        "must be one of bert, distilbert, roberta for this program, got [[[[[[[...]]]]]]]",
    ),
    (
        write("config.json", b'{"model_type": "bert", "\\ud800": 1}'),
        "config.json holds a lone surrogate, which is no character",
    ),
    (setting(model_type="x" * 10**6), "xxx...xxx"),
    (write("config.json", b"[]"), "must hold a JSON object, got a list"),
    (
        update("sentence_bert_config.json", max_seq_length=1),
        "max_seq_length must be a whole number from 2 to 268435456, got 1",
    ),
    (
        edit_json("tokenizer.json", lambda each: each["model"]["vocab"].update(x=len(TOKENS) + 2)),
        f"below the vocab_size of config.json, got {len(TOKENS) + 2} and {len(TOKENS)}",
    ),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_damaged_folder_is_reported_in_one_line(
    change: Change, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "lines.txt").write_text("the cat\n", encoding="utf-8")
    change(damaged)
    assert bert.main([str(damaged), "a", "--file", str(tmp_path / "lines.txt")]) == 2
    assert message in one_error_line(capsys)


def test_the_program_prints_the_most_similar_lines_first(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("東京\nthe cat\n\nunbelievable!\nThe CAT\n犬は\n", encoding="utf-8")
    assert bert.main([str(folder), "the cat", "--file", str(lines), "--best", "3"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.rstrip("\n").split("\n")]
    assert [row[1] for row in rows[:2]] == ["the cat", "The CAT"]
    assert [row[0] for row in rows[:2]] == ["1.0000", "1.0000"]
    assert len(rows) == 3
    vectors = F.normalize(SentenceEncoder.load(folder).embed(["the cat", rows[2][1]]), dim=-1)
    assert float(rows[2][0]) == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-4)


def test_missing_text_is_reported_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert bert.main([str(folder), "a", "--file", str(empty)]) == 2
    assert "must hold text" in one_error_line(capsys)
    assert bert.main([str(folder), "a", "--file", str(tmp_path / "none")]) == 2
    assert "none: No such file" in one_error_line(capsys)
    assert bert.main([str(folder), "a", "--file", str(empty), "--best", "0"]) == 2
    assert "--best: must be a whole number above 0" in one_error_line(capsys)
    assert bert.main([str(empty), "a", "--file", str(empty)]) == 2
    assert "must hold text" in one_error_line(capsys)


def test_a_model_on_the_hub_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(name: str, **options: object) -> str:
        calls.append((name, options))
        return str(tmp_path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))
    assert find_folder("owner/model-1.0", ["config.json"], revision="v2") == tmp_path
    options = {"revision": "v2", "allow_patterns": ["config.json"]}
    assert calls == [("owner/model-1.0", options)]
    assert find_folder(str(tmp_path), []) == tmp_path
    assert len(calls) == 1
    for name in ("no/such/folder", "../model", ".", "a b", str(tmp_path / "x"), ""):
        if not Path(name).is_dir():
            with pytest.raises(UserError, match="is neither a folder nor the name of a model"):
                find_folder(name, [])


def test_a_network_error_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **options: object) -> str:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=fail))
    with pytest.raises(UserError) as caught:
        find_folder("owner/model", [])
    assert str(caught.value) == (
        "there is no folder owner/model, and no model of that name could be downloaded: "
        "no route to host"
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="install huggingface_hub: pip install"):
        find_folder("owner/model", [])


def test_every_program_finds_its_packages() -> None:
    code = (
        "import runpy, sys\n"
        "before = list(sys.path)\n"
        "for program in sys.argv[1:]:\n"
        "    runpy.run_path(program)\n"
        "    sys.path[:] = before\n"
        "    for name in [name for name in sys.modules if name.startswith(('pre', 'trans'))]:\n"
        "        del sys.modules[name]\n"
    )
    programs = [str(module.__file__) for module in (bert, marian, generate)]
    programs.append(str(Path(bert.__file__).with_name("convert.py")))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", code, *programs],
        capture_output=True,
        timeout=120,
        env=environment,
        cwd=Path(__file__).parent,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
