"""Folders of all published families: their tokens, what is generated from texts, their damages."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.inference.programs import keep_programs
from tests.pretrained.published import (
    DECODERS,
    ENCODERS,
    TEXTS,
    TOKENS,
    Change,
    assert_same_weights,
    edit_json,
    enlarge_weights,
    linear_output,
    load,
    lose,
    one_error_line,
    setting,
    truncate,
    update,
    write,
)
from torch import Tensor

from common.errors import UserError
from common.searches import Beam, Greedy, Sample, Search, sampling_or_greedy
from pretrained import bert, generate, marian, t5
from pretrained.bert_sentences import SentenceEncoder
from pretrained.generator import TextGenerator
from pretrained.marian_translator import PublishedTranslator
from pretrained.text_to_text import TextToText
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.loading import LoadError, find_folder
from transformer_blocks.pretrained.tokenizer import PublishedTokenizer

Publish = Callable[[str], Path]
WRITERS: dict[str, Any] = dict.fromkeys(DECODERS, TextGenerator)
WRITERS |= {"marian": PublishedTranslator, "t5": TextToText}
GREEDY = Greedy()


def generate_from(
    writer: Any, texts: Any, search: Search = GREEDY, batch_tokens: int = 4096
) -> list[Any]:
    if isinstance(writer, PublishedTranslator):
        return writer.translate(texts, max_length=12, batch_tokens=batch_tokens)
    found: list[Any] = writer.generate(texts, length=12, search=search, batch_tokens=batch_tokens)
    return found


# Tokens


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS, "t5"])
def test_texts_are_encoded_and_decoded_as_by_transformers(family: str, published: Publish) -> None:
    folder = published(family)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours, short = (PublishedTokenizer.load(folder, max_length=length) for length in (None, 7))
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        expected = theirs(text, split_special_tokens=True, truncation=True, max_length=7)
        assert short.encode(text) == expected["input_ids"]
        whole = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == whole
        for cut in range(1, len(ids)):
            before, after = ours.decode(ids[:cut]), ours.decode(ids[cut:], ids[:cut])
            is_split = not whole.startswith(before)  # within a character
            assert after == (ours.decode(ids[cut:]) if is_split else whole[len(before) :])
    assert ours.tokens == {*range(len(theirs))}
    assert ours.encode("the\ud800 c\udfffat") == ours.encode("the cat")


def test_a_truncation_in_the_file_is_not_obeyed(published: Publish, tmp_path: Path) -> None:
    copy = shutil.copytree(published("gpt2"), tmp_path / "copy")
    expected = PublishedTokenizer.load(copy).encode("the cat")
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    update("tokenizer.json", truncation=truncation)(copy)
    assert PublishedTokenizer.load(copy).encode("the cat") == expected


def test_a_folder_with_older_files_alone_says_how_to_make_the_tokenizer(
    published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("gpt2"), tmp_path / "copy")
    expected = PublishedTokenizer.load(copy).encode("the cat")
    model = json.loads((copy / "tokenizer.json").read_bytes())["model"]
    (copy / "vocab.json").write_text(json.dumps(model["vocab"]))
    (copy / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink(missing_ok=True)
    with pytest.raises(LoadError, match=r"make it with transformers\.") as error:
        PublishedTokenizer.load(copy)
    eval(str(error.value).partition("make it with ")[2])  # what the user is told to do
    assert PublishedTokenizer.load(copy).encode("the cat") == expected


@pytest.mark.parametrize("family", WRITERS)
def test_ids_beyond_the_vocabulary_are_never_generated(family: str, published: Publish) -> None:
    writer = WRITERS[family].load(published(family))
    expected = generate_from(writer, TEXTS)
    weight = linear_output(writer.model).weight
    unused = weight[len(writer.tokenizer.tokens) :]
    with torch.no_grad():
        unused.copy_(10 * weight[: len(unused)])
    assert generate_from(writer, TEXTS) == expected


# Texts


@pytest.mark.parametrize("batch_tokens", [1, 100, 10000])
@pytest.mark.parametrize(
    ("family", "search"),
    [
        ("marian", GREEDY),
        *product(("t5", "gpt2"), (GREEDY, Beam(3, 0.6))),
        *product(
            ("gpt2", "llama"), (Sample(1.0, None, None, 3), Sample(2.0, 50, 0.9, 4, n_best=3))
        ),
    ],
)
def test_each_text_of_a_batch_has_the_output_that_it_has_alone(
    family: str, search: Search, batch_tokens: int, published: Publish
) -> None:
    writer = WRITERS[family].load(published(family))
    writer.model.double()  # so that rounding draws no other token
    alone = [generate_from(writer, [text], search)[0] for text in TEXTS]
    for model in (writer.model, prepare(writer.model)):
        together = replace(writer, model=model)
        found = generate_from(together, [*TEXTS, TEXTS[0]], search, batch_tokens)
        assert found == [*alone, alone[0]]
    assert len({*map(str, alone)}) > len(TEXTS) / 2
    assert generate_from(writer, [], search) == []
    if family in ("marian", "t5"):
        assert alone[TEXTS.index("")] == ""


def test_an_empty_prompt_is_the_end_token_where_nothing_else_begins_a_text(
    published: Publish, tmp_path: Path
) -> None:
    copy = shutil.copytree(published("qwen3"), tmp_path / "copy")
    writer = TextGenerator.load(copy)
    with torch.no_grad():
        logits = writer.model(torch.tensor([[2]]))[0, 0, : len(TOKENS)]
    expected = writer.tokenizer.decode([int(logits.argmax())])
    assert writer.generate([""], length=1, search=GREEDY) == [[expected]]
    for name in ("generation_config.json", "config.json"):
        update(name, eos_token_id=None)(copy)
    with pytest.raises(
        (UserError, LoadError), match="the prompt must not be empty, as this model has no end"
    ):
        TextGenerator.load(copy).generate([""], length=1, search=GREEDY)


def test_a_text_ends_at_any_of_the_end_tokens(published: Publish, tmp_path: Path) -> None:
    copy = shutil.copytree(published("llama"), tmp_path / "copy")
    update("generation_config.json", eos_token_id=[2, 300])(copy)
    asked = []

    def search(*given: Any, end_id: object, **options: Any) -> Any:
        asked.append(end_id)
        return GREEDY(*given, end_id=end_id, **options)

    TextGenerator.load(copy).generate(["the cat"], length=9, search=search)
    assert asked == [(2, 300)]


def test_prompt_and_continuation_may_fill_the_models_length_but_not_exceed_it(
    published: Publish,
) -> None:
    writer = TextGenerator.load(published("gpt2"))
    room = writer.model.max_length - 5
    prompts = ["a cat", "cat" * room]
    assert writer.generate(prompts, length=5, search=GREEDY)
    with pytest.raises(
        (UserError, LoadError), match=f"exceed .*, got a prompt of {room} and --length 6 for"
    ):
        writer.generate(prompts, length=6, search=GREEDY)


# Programs


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a test work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], program: Any, *arguments: object) -> str:
    assert program.main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def assert_lines(
    capsys: pytest.CaptureFixture[str],
    expected: list[str],
    program: Any,
    folder: Path,
    *options: object,
) -> None:
    """Assert that a program prints a line for each of three texts, given in both ways."""
    lines = Path("lines.txt")
    lines.write_text("the cat\n\n本を\n", encoding="utf-8")
    for texts in (["the cat", "", "本を"], ["--file", lines]):
        assert run(capsys, program, folder, *texts, *options).split("\n")[:-1] == expected


def test_the_program_of_marian_prints_a_line_for_each_text(
    published: Publish, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = published("marian")
    model = PublishedTranslator.load(folder)
    for beams in (4, 3):
        expected = model.translate(["the cat", "", "本を"], beams=beams)
        options = [] if beams == 4 else ["--beam", beams]
        assert_lines(capsys, expected, marian, folder, *options)


def test_the_program_of_t5_prints_a_line_for_each_text(
    published: Publish,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, searches = published("t5"), []
    texts = ["the the cat", "", "the 本を"]
    expected = TextToText.load(folder).generate(texts, length=9, search=GREEDY)
    assert_lines(capsys, expected, t5, folder, "--prefix", "the ", "--length", 9)

    def keep_search(*_: object, search: Search, **__: object) -> list[str]:
        searches.append(search)
        return []

    monkeypatch.setattr(TextToText, "generate", keep_search)
    assert_lines(capsys, [], t5, folder, "--beam", 3)
    assert searches == [Beam(3, 0.6)] * 2


@pytest.mark.parametrize(
    "options", [["--length", "9"], ["--length", "9", "--sample", "--seed", "4"]]
)
def test_prompts_are_continued_in_their_order(
    options: list[str], published: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prompts = published("gpt2"), ("the cat", "it\nis", "")
    alone = [run(capsys, generate, folder, each, *options) for each in prompts]
    assert run(capsys, generate, folder, *prompts, *options) == "\n".join(alone)
    assert alone[0].startswith("the cat")
    assert alone[2] == run(capsys, generate, folder, *options)


def test_the_options_of_sampling_reach_the_search() -> None:
    options = generate.Generate("model", sample=True, temperature=2.0, top_k=5, top_p=0.9, seed=3)
    found = sampling_or_greedy(options, greedy=False)
    assert found == Sample(2.0, 5, 0.9, 3)


def test_a_program_continues_prompts_as_the_model(
    published: Publish,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved, file = keep_programs(monkeypatch), tmp_path / "program.pt2"
    arguments = [generate, published("gpt2"), "the cat", "it\nis", "--length", "9"]
    expected = run(capsys, *arguments)
    compiling = f"Compiling {file} takes some minutes.\n"
    for begins in (compiling, ""):
        assert run(capsys, *arguments, "--program", file) == begins + expected
    assert list(saved) == [file]


def test_the_program_prints_the_most_similar_lines_first(
    published: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, lines = published("bert"), tmp_path / "lines.txt"
    lines.write_text("東京\nthe cat\n\ndog on the mat\n  the  cat\n犬は\n", encoding="utf-8")
    out = run(capsys, bert, folder, "the cat", "--file", lines, "--best", "3")
    rows = [line.split("\t") for line in out.rstrip("\n").split("\n")]
    assert rows[:2] == [["1.0000", "the cat"], ["1.0000", "  the  cat"]]
    assert len(rows) == 3
    similarity = SentenceEncoder.load(folder).compare("the cat", [rows[2][1]])
    assert float(rows[2][0]) == pytest.approx(float(similarity), abs=1e-4)


def test_the_first_example_of_the_readme_runs(published: Publish, in_folder: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.partition("```python\n")[2].partition("```")[0]
    assert '"bert-base-uncased"' in code
    exec(code.replace("bert-base-uncased", published("bert").as_posix()), {})
    assert '"cat","s","at"' in Path("attention.html").read_text(encoding="utf-8")


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
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").symlink_to("lost")


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def add_tokens(content: dict[str, Any]) -> None:
    vocabulary, added = content["model"]["vocab"], {f"x{i}": len(TOKENS) + i for i in range(20)}
    if isinstance(vocabulary, dict):
        vocabulary.update(added)
    else:
        vocabulary.extend([token, -9.0] for token in added)


NESTED = b'{"model_type":' + b"[" * 900 + b"]" * 900 + b"}"
BELOW = "the ids of the vocabulary must be below the vocab_size of config.json, got"
END = len(TOKENS) + 9  # beyond the last id
DAMAGES: list[tuple[str, Change, str]] = [
    ("bert", lose("config.json"), "config.json: No such file"),
    ("bert", lose("model.safetensors"), "model.safetensors is missing"),
    ("bert", only_pickle, "pytorch_model.bin is a pickle, which could run code when it is opened;"),
    ("bert", enlarge_weights, "sentence vectors must be finite: the model's weights are too large"),
    ("gpt2", enlarge_weights, "logits must be finite, got NaN or infinity at step 1"),
    ("bert", break_link, "tokenizer_config.json is not a file"),
    ("bert", truncate("model.safetensors", -1), "safetensors cannot be read as safetensors"),
    ("bert", write("model.safetensors", b"\n<!DOCTYPE html>"), "is a web page, not the file"),
    (
        *("bert", write("tokenizer.json", b"version https://git-lfs.github.com/spec/v1")),
        "tokenizer.json is a pointer of git-lfs, not the file: run git lfs pull",
    ),
    ("bert", write("config.json", NESTED * 100), "config.json is not JSON"),
    ("bert", write("config.json", b"[" * 10**5), "not JSON that can be read: too many nested"),
    ("bert", write("config.json", NESTED), "roberta for this program, got [[[[[[[...]]]]]]]"),
    ("bert", write("config.json", b'{"\\ud800": 1}'), "a lone surrogate, which is no character"),
    ("bert", write("config.json", b"[]"), "must hold a JSON object, got a list"),
    ("bert", setting(model_type="x" * 10**6), "xxx...xxx"),
    (
        *("bert", update("sentence_bert_config.json", max_seq_length=1)),
        "max_seq_length must be a whole number from 2 to 268435456, got 1",
    ),
    *(
        (family, edit_json("tokenizer.json", add_tokens), BELOW)
        for family in ("bert", "t5", "llama")
    ),
    ("marian", update("vocab.json", new=99), BELOW),
    ("llama", update("generation_config.json", eos_token_id=END), f"{BELOW} {END} and {END}"),
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
        "model-00001-of-00003.safetensors is missing, which model.safetensors.index.json",
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
        ("llama", sharded(update(INDEX, weight_map=given)), f"weight_map must {message}")
        for given, message in (
            (None, "be an object with the file of each tensor, got None"),
            ({WEIGHT: "../x.safetensors"}, "name safetensors files beside it, got '../x.safe"),
            ({WEIGHT: "pytorch_model.bin"}, "name safetensors files beside it, got 'pytorch_m"),
        )
    ),
    ("marian", lose("vocab.json"), "vocab.json: No such file"),
    ("marian", lose("source.spm"), "source.spm: No such file"),
    ("marian", truncate("source.spm", 0), "source.spm must be a sentencepiece model"),
    ("marian", truncate("source.spm", 300), "source.spm must be a sentencepiece model"),
    ("marian", update("vocab.json", **{"</s>": "LOST"}), "must hold </s>"),
    ("marian", update("vocab.json", **{">>jpn<<": 1}), "must not repeat an id"),
    ("marian", update("generation_config.json", length_penalty=11), "must be in [0, 10]"),
    *(
        (
            *("marian", update("generation_config.json", **{name: value})),
            f"generation_config.json: {name} must be",
        )
        for name, value in {
            "do_sample": True,
            "no_repeat_ngram_size": 3,
            "repetition_penalty": 1.2,
            "length_penalty": -1.0,
            "max_length": 1,
            "bad_words_ids": [[5]],
            "early_stopping": 1,
            "num_beams": 0,
        }.items()
    ),
]


def error_of(
    family: str, folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the error of a program that is run in a folder with two files of texts."""
    Path("lines.txt").write_text("the cat\n", encoding="utf-8")
    Path("empty.txt").touch()
    program: Any = {"bert": bert, "marian": marian, "t5": t5}.get(family, generate)
    assert program.main([str(folder), *arguments]) == 2
    return one_error_line(capsys)


@pytest.mark.parametrize(("family", "change", "message"), DAMAGES)
def test_a_damaged_folder_is_reported_in_one_line(
    family: str,
    change: Change,
    message: str,
    published: Publish,
    in_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = shutil.copytree(published(family), in_folder / "copy")
    change(copy)
    more = ["--file", "lines.txt"] if family == "bert" else []
    assert message in error_of(family, copy, ["the cat", *more], capsys)


OPTIONS: list[tuple[str, list[str], str]] = [
    ("bert", ["a", "--file", "empty.txt"], "the query and empty.txt must hold text"),
    ("bert", [" ", "--file", "lines.txt"], "the query and lines.txt must hold text"),
    ("bert", ["a", "--file", "none.txt"], "none.txt: No such file"),
    ("bert", ["a", "--file", "lines.txt", "--best", "0"], '"0" for --best. Must be >= 1'),
    ("marian", [], "give either texts or --file"),
    ("marian", ["本", "--file", "lines.txt"], "give either texts or --file"),
    ("marian", ["本", "--beam", "0"], '"0" for --beam. Must be >= 1'),
    ("marian", ["本", "--beam", "5000"], "--beam must not exceed the"),
    ("marian", ["本", "--length-penalty", "nan"], '"nan" for --length-penalty. Must be <= 10'),
    ("t5", [], "give either texts or --file"),
    ("t5", ["a", "--beam", "1000"], "--beam must not exceed the"),
    ("t5", ["a", "--length", "0"], '"0" for --length. Must be >= 1'),
    ("gpt2", ["a", "--length", "0"], '"0" for --length. Must be >= 1'),
    ("gpt2", ["a", "--top-k", "3"], "--top-k requires --sample"),
    ("gpt2", ["a", "--seed", "0"], "--seed requires --sample"),
    ("gpt2", ["a", "--sample", "--top-p", "0"], "--top-p. Must be > 0"),
    ("gpt2", ["a", "--sample", "--program", "x"], "--program decodes greedily"),
]


@pytest.mark.parametrize(("family", "arguments", "message"), OPTIONS)
def test_an_impossible_option_is_reported_in_one_line(
    family: str,
    arguments: list[str],
    message: str,
    published: Publish,
    in_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in error_of(family, published(family), arguments, capsys)


# Models on the hub


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
            with pytest.raises(
                (UserError, LoadError), match="is neither a folder nor the name of a model"
            ):
                find_folder(name, [])


def test_a_network_error_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **options: object) -> str:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=fail))
    with pytest.raises((UserError, LoadError)) as caught:
        find_folder("owner/model", [])
    assert str(caught.value) == (
        "there is no folder owner/model, and no model of that name could be downloaded: "
        "no route to host"
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LoadError, match="install huggingface_hub: pip install"):
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
