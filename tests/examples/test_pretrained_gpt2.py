"""GPT-2 computes what transformers computes from the same files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tests.examples.published import (
    Change,
    edit_json,
    enlarge_weights,
    lose,
    one_error_line,
    save_model,
)
from tests.programs import keep_programs

from common.errors import UserError
from common.searches import Beam, Greedy, Sample, Search, sampling_or_greedy
from pretrained import generate, generator
from pretrained.generator import TextGenerator
from pretrained.tokenizer import PublishedTokenizer
from transformer_blocks import greedy_search
from transformer_blocks.inference import prepare

END = "<|endoftext|>"
TEXT = [
    "The Transformer reads the text; we've seen that it's able to.",
    "the cat's cats sat there, and they'll sit there in 2024.",
    "東京の犬は東京で本を読みます。東京の猫は寝ます。",
]
TRICKY = (
    *("", " ", "the cat", " the  cat   sat", "it's we'll they've I'd 'tis 's'S IT'S"),
    *("can't'll", "in 2024, 3.14 ½ ² Ⅷ ٣", "東京tower 東京", "ｶﾞ ガ が", "é e\u0301 café"),
    *("😀👍🏽👩‍👩‍👧", "a\tb\n\nc  \n d", "trailing  ", "\n"),
    *("a\u00a0b\u3000c\u2028d\x85e\x1ff", "a\u200bb", "\x00\x07\x7f", "\ufffd"),
    *("<|endoftext|>", "$5!!! ...--- _x_", "ĠĊ", "ſ's ΣΑΣ", "a\u0378b", "\U0010ffff"),
    "\ufeffthe",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published, once")
    torch.manual_seed(0)
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        TEXT * 3, vocab_size=330, min_frequency=2, special_tokens=[END], show_progress=False
    )
    trained.save_model(str(folder))
    path = folder / "vocab.json"
    vocabulary = json.loads(path.read_bytes())
    # The end token is the last one, as in the published vocabulary.
    vocabulary = {piece: (number - 1) % len(vocabulary) for piece, number in vocabulary.items()}
    path.write_text(json.dumps(vocabulary), encoding="utf-8")
    published_tokenizer(folder).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    sizes: dict[str, Any] = {"n_positions": 40, "n_embd": 32, "n_layer": 3, "n_head": 4}
    sizes |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), vocabulary[END])
    save_model("gpt2", folder, vocab_size=len(vocabulary), **sizes, n_inner=48)
    return folder


def published_tokenizer(folder: Path) -> Any:
    make: Any = transformers.GPT2Tokenizer
    if (folder / "tokenizer.json").exists():
        return make.from_pretrained(folder)
    return make(str(folder / "vocab.json"), str(folder / "merges.txt"))


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    theirs, ours = published_tokenizer(folder), PublishedTokenizer.load(folder)
    for text in (*TRICKY, *TEXT):
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        assert ours.decode(ids) == text
        for cut in range(0, len(ids), 3):
            assert ours.decode(ids[cut:]) == theirs.decode(ids[cut:]), text
    end = ours.tokenizer.token_to_id(END)
    assert end is not None
    assert ours.decode([5, end, 6]) == ours.decode([5, 6])


def test_the_first_tokenizer_json_of_the_hub_is_understood(folder: Path, tmp_path: Path) -> None:
    """It holds merges as strings, and truncation."""
    expected = PublishedTokenizer.load(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")

    def age(content: dict[str, Any]) -> None:
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        del content["model"]["type"], content["model"]["ignore_merges"]
        content["truncation"] = {
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }

    edit_json("tokenizer.json", age)(copy)
    found = PublishedTokenizer.load(copy)
    for text in (*TRICKY, *TEXT):
        assert found.encode(text) == expected.encode(text)


def test_an_empty_prompt_begins_a_text(folder: Path) -> None:
    text_generator = TextGenerator.load(folder)
    ((found,),) = text_generator.generate([""], length=5, search=Greedy())
    (end,) = text_generator.model.end_ids
    (expected,) = text_generator.model.generate([[end]], greedy_search, end_id=end, max_length=5)
    assert found == text_generator.tokenizer.decode(expected.tokens)
    assert found


def test_prompt_and_continuation_may_fill_the_models_length_but_not_exceed_it(
    folder: Path,
) -> None:
    text_generator = TextGenerator.load(folder)
    room = text_generator.model.max_length - len(text_generator.tokenizer.encode("the cat"))
    assert text_generator.generate(["the cat"], length=room, search=Greedy())
    with pytest.raises(UserError, match=f"must not exceed .* and --length {room + 1} for"):
        text_generator.generate(["the cat"], length=room + 1, search=Greedy())


def test_the_options_of_sampling_reach_the_search() -> None:
    options = ["--temperature", "2", "--top-k", "5", "--top-p", "0.9", "--seed", "3"]
    found = sampling_or_greedy(generate.parse(["model", "--sample", *options]), greedy=False)
    assert found == Sample(2.0, 5, 0.9, 3)


PROMPTS = ["the cat", "The Transformer reads the text; we've", "", "東京の犬は", "it", "the cat"]
SEARCHES = Greedy(), Sample(1.0, None, None, 3), Sample(2.0, 50, 0.9, 4, n_best=3), Beam(3, 0.5)


@pytest.mark.parametrize(
    ("search", "batch_tokens"),
    [*zip(SEARCHES, (10000, 60, 60, 10000), strict=True), (SEARCHES[1], 1), (SEARCHES[3], 60)],
)
def test_many_prompts_are_continued_as_each_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, search: Search, batch_tokens: int
) -> None:
    monkeypatch.setattr(generator, "BATCH_TOKENS", batch_tokens)
    text_generator = TextGenerator.load(folder)
    alone = [text_generator.generate([each], length=12, search=search)[0] for each in PROMPTS]
    for model in (text_generator.model, prepare(text_generator.model)):
        together = replace(text_generator, model=model).generate(PROMPTS, length=12, search=search)
        assert together == alone
    assert len({*map(tuple, alone)}) == len(PROMPTS) - 1  # one occurs twice
    assert text_generator.generate([], length=12, search=search) == []


def test_prompts_are_continued_in_their_order(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert generate.main([str(folder), *arguments]) == 0
        return capsys.readouterr().out

    for options in (["--length", "9"], ["--length", "9", "--sample", "--seed", "4"]):
        alone = [run(each, *options) for each in ("the cat", "it\nis", "")]
        assert alone[2] == run(*options)
        assert run("the cat", "it\nis", "", *options) == "\n".join(alone)


def test_a_program_continues_prompts_as_the_model(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved = keep_programs(monkeypatch)

    def run(*arguments: str) -> str:
        assert generate.main([str(folder), "the cat", "it\nis", "--length", "9", *arguments]) == 0
        return capsys.readouterr().out

    expected, file = run(), tmp_path / "program.pt2"
    assert run("--program", str(file)) == f"Compiling {file} takes some minutes.\n{expected}"
    assert run("--program", str(file)) == expected
    assert list(saved) == [file]
    assert generate.main([str(folder), "a", "--sample", "--program", str(file)]) == 2
    assert "--program decodes greedily" in one_error_line(capsys)


DAMAGES: dict[str, tuple[Change, str]] = {
    "no config": (lose("config.json"), "config.json: No such file"),
    "weights that are too large": (
        enlarge_weights,
        "logits must be finite, got NaN or infinity at step 1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_reported_in_one_line(
    damage: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGES[damage]
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    change(damaged)
    assert generate.main([str(damaged), "the cat", "--length", "3"]) == 2
    assert message in one_error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", "0"], "--length: must be a whole number above 0"),
        (
            ["--length", "40"],
            "must not exceed the model's 40 tokens, got a prompt of 2 and --length 40 for 'the "
            "cat'",
        ),
        (
            ["it", "--length", "39"],
            "tokens, got a prompt of 2 and --length 39 for 'the cat'",
        ),
        (["--top-k", "3"], "--top-k requires --sample"),
        (["--seed", "0"], "--seed requires --sample"),
        (["--sample", "--top-p", "0"], "must be a number in (0, 1], got '0'"),
    ],
)
def test_an_impossible_option_is_reported_in_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main([str(folder), "the cat", *arguments]) == 2
    assert message in one_error_line(capsys)
