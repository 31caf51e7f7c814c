"""GPT-2 computes what transformers computes from the same files."""

import json
import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import regex
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tests.examples.published import (
    Change,
    change_tensors,
    edit_json,
    lose,
    one_error_line,
    save_model,
    update,
)
from torch import Tensor

from common.errors import UserError
from common.searches import Beam, Greedy, Sample, Search
from pretrained import generate, generator
from pretrained.byte_pairs import BYTES, END, BytePairs
from pretrained.generator import TextGenerator
from pretrained.language_model import LanguageModelSteps
from transformer_blocks import greedy_search
from transformer_blocks.inference import prepare

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
    sizes: dict[str, Any] = {"n_positions": 40, "n_embd": 32, "n_layer": 3, "n_head": 4}
    sizes |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), vocabulary[END])
    save_model("gpt2", folder, vocab_size=len(vocabulary), **sizes, n_inner=48)
    return folder


def published_tokenizer(folder: Path) -> Any:
    make: Any = transformers.GPT2Tokenizer
    return make(str(folder / "vocab.json"), str(folder / "merges.txt"))


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    theirs, ours = published_tokenizer(folder), BytePairs.load(folder)
    for text in (*TRICKY, *TEXT):
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        assert ours.decode(ids) == text
        for cut in range(0, len(ids), 3):
            assert ours.decode(ids[cut:]) == theirs.decode(ids[cut:]), text
    assert ours.decode([5, ours.vocabulary[END], 6]) == ours.decode([5, 6])
    with pytest.raises(IndexError, match="an id must be in the vocabulary, got 999"):
        ours.decode([999])


def assigned(character: str) -> bool:
    """Return whether a character has been a letter, a number, or else since Unicode 3.2.

    The libraries may have the tables of different newer versions.
    """
    before, now = unicodedata.ucd_3_2_0.category(character), unicodedata.category(character)
    return before[0] == now[0] and now != "Cn"


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_encoded_as_by_transformers(folder: Path, text: str) -> None:
    theirs, ours = published_tokenizer(folder), BytePairs.load(folder)
    ids = ours.encode(text)
    assert ids == theirs(text, split_special_tokens=True)["input_ids"]
    assert ours.decode(ids) == text


PUBLISHED_PATTERN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
"""Where a text is split, https://github.com/openai/gpt-2/blob/master/src/encoder.py."""


def test_a_text_is_split_at_every_character_as_by_the_published_pattern(folder: Path) -> None:
    pre_tokenizer = BytePairs.load(folder).tokenizer.pre_tokenizer
    assert pre_tokenizer is not None
    codes = (*range(0x3100), *range(0x3100, 0xD800, 97), *range(0xE000, 0x30000, 97))
    for character in filter(assigned, map(chr, codes)):
        text = f"a{character}b 1{character}2 {character}!"
        expected = [match.span() for match in PUBLISHED_PATTERN.finditer(text)]
        found = [span for _, span in pre_tokenizer.pre_tokenize_str(text)]
        assert found == expected, hex(ord(character))


def test_a_lone_surrogate_cannot_be_encoded(folder: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        BytePairs.load(folder).encode("the\ud800 cat")


def keep_tokenizer_json(folder: Path) -> None:
    """Replace the tokenizer's files by the ``tokenizer.json`` that transformers writes."""
    published_tokenizer(folder).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()


@pytest.mark.parametrize("old", [False, True], ids=["new files", "older files"])
def test_tokenizer_json_alone_describes_the_tokenizer(
    folder: Path, tmp_path: Path, old: bool
) -> None:
    expected = BytePairs.load(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    keep_tokenizer_json(copy)
    if old:  # as the first GPT-2 on the hub, with merges as strings and truncation

        def age(content: dict[str, Any]) -> None:
            content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
            del content["model"]["type"], content["model"]["ignore_merges"]
            content["added_tokens"][0]["normalized"] = True
            content["post_processor"] = {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": False,
            }
            content["truncation"] = {
                "max_length": 2,
                "strategy": "LongestFirst",
                "stride": 0,
                "direction": "Right",
            }

        edit_json("tokenizer.json", age)(copy)
    found = BytePairs.load(copy)
    assert found.vocabulary == expected.vocabulary
    for text in (*TRICKY, *TEXT):
        assert found.encode(text) == expected.encode(text)
        assert found.decode(found.encode(text)) == text
    assert TextGenerator.load(copy).model.end_ids[0] == found.vocabulary[END]


def change_model(**values: object) -> Change:
    return edit_json("tokenizer.json", lambda content: content["model"].update(values))


def change_byte_level(**values: object) -> Change:
    return edit_json("tokenizer.json", lambda content: content["pre_tokenizer"].update(values))


BAD_TOKENIZERS: dict[str, tuple[Change, str]] = {
    "another model": (
        change_model(type="Unigram"),
        "tokenizer.json: model must be 'BPE' for this program, got 'Unigram'",
    ),
    "no merges": (change_model(merges=7), "tokenizer.json cannot be read as a tokenizer ("),
    "a negative id": (
        change_model(vocab={"a": -1}),
        "tokenizer.json: the id of 'a' must be a whole number from 0 to 268435456, got -1",
    ),
    "dropout": (change_model(dropout=0.1), "dropout must be None for this program, got 0.1"),
    "an end of words": (
        change_model(end_of_word_suffix="</w>"),
        "end_of_word_suffix must be '' for this program, got '</w>'",
    ),
    "whole words before merges": (change_model(ignore_merges=True), "ignore_merges must be False"),
    "a normaliser": (
        edit_json("tokenizer.json", lambda content: content.update(normalizer={"type": "NFC"})),
        "normalizer must be None for this program, got 'NFC'",
    ),
    "another pre-tokenizer": (
        edit_json(
            "tokenizer.json",
            lambda content: content.update(pre_tokenizer={"type": "WhitespaceSplit"}),
        ),
        "pre_tokenizer must be 'ByteLevel' for this program, got 'WhitespaceSplit'",
    ),
    "a space before each text": (
        change_byte_level(add_prefix_space=True),
        "add_prefix_space must be False for this program, got True",
    ),
    "another pattern": (
        change_byte_level(use_regex=False),
        "use_regex must be True for this program, got False",
    ),
    "no decoder": (
        edit_json("tokenizer.json", lambda content: content.update(decoder=None)),
        "decoder must be 'ByteLevel' for this program, got None",
    ),
    "special tokens around a text": (
        edit_json(
            "tokenizer.json",
            lambda content: content.update(
                post_processor={
                    "type": "BertProcessing",
                    "sep": [END, 5],
                    "cls": [END, 5],
                }
            ),
        ),
        "tokenizer.json: post_processor must add no token to a text",
    ),
    "an added word": (
        edit_json(
            "tokenizer.json", lambda content: content["added_tokens"][0].update(special=False)
        ),
        "must be True for this program, got False",
    ),
}


@pytest.mark.parametrize("bad", BAD_TOKENIZERS)
def test_a_tokenizer_of_another_kind_is_refused_by_name(
    bad: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, message = BAD_TOKENIZERS[bad]
    copy = shutil.copytree(folder, tmp_path / "copy")
    keep_tokenizer_json(copy)
    assert generate.main([str(copy), "the cat", "--length", "1"]) == 0
    capsys.readouterr()
    damage(copy)
    assert generate.main([str(copy), "the cat", "--length", "1"]) == 2
    assert message in one_error_line(capsys)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_files_that_contradict_tokenizer_json_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    published_tokenizer(copy).save_pretrained(copy)
    assert BytePairs.load(copy).vocabulary == BytePairs.load(folder).vocabulary
    path = copy / name
    if name == "merges.txt":
        path.write_text("\n".join(path.read_text(encoding="utf-8").split("\n")[:-3]), "utf-8")
    else:
        vocabulary = json.loads(path.read_bytes())
        path.write_text(json.dumps(vocabulary | {"!": vocabulary["?"], "?": vocabulary["!"]}))
    assert generate.main([str(copy), "the cat", "--length", "1"]) == 2
    assert "hold another vocabulary or other merges than tokenizer.json" in one_error_line(capsys)


def test_an_empty_prompt_begins_a_text(folder: Path) -> None:
    text_generator = TextGenerator.load(folder)
    ((found,),) = text_generator.generate([""], length=5, search=Greedy())
    end = torch.tensor([text_generator.model.end_ids[0]])
    with torch.no_grad():
        (expected,) = greedy_search(
            LanguageModelSteps(text_generator.model, end[None, :0]),
            end,
            end_id=text_generator.model.end_ids[0],
            max_length=5,
        )
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


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path, tmp_path: Path) -> None:
    larger = shutil.copytree(folder, tmp_path / "larger")
    size = len(BytePairs.load(folder).vocabulary)
    update("config.json", vocab_size=size + 50)(larger)

    def enlarge(tensors: dict[str, Tensor]) -> None:
        words = tensors["transformer.wte.weight"]
        tensors["transformer.wte.weight"] = torch.cat(
            (words, 3 * words[:50])
        )  # of higher probability

    change_tensors(larger, enlarge)
    text_generator, wide = TextGenerator.load(folder), TextGenerator.load(larger)
    for temperature in (1.0, 5.0):
        expected, found = (
            each.generate(
                ["the cat"],
                length=5,
                search=Sample(temperature, None, None, 1, n_best=20),
            )
            for each in (text_generator, wide)
        )
        assert found == expected
    assert wide.generate(["the"], length=9, search=Greedy()) == text_generator.generate(
        ["the"], length=9, search=Greedy()
    )


def test_the_options_of_sampling_reach_the_search() -> None:
    options = ["--temperature", "2", "--top-k", "5", "--top-p", "0.9", "--seed", "3"]
    found = generator.choose_search(generate.parse(["model", "--sample", *options]))
    assert found == Sample(2.0, 5, 0.9, 3)
    assert generator.choose_search(generate.parse(["model"])) == Greedy()


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


def test_prompts_of_the_command_line_and_of_a_file_are_continued_in_their_order(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert generate.main([str(folder), *arguments]) == 0
        return capsys.readouterr().out

    for options in (["--length", "9"], ["--length", "9", "--sample", "--seed", "4"]):
        alone = [run(each, *options) for each in ("the cat", "it\nis", "")]
        assert alone[2] == run(*options)
        assert run("the cat", "it\nis", "", *options) == "\n".join(alone)
        file = tmp_path / "prompts"
        file.write_bytes(b"\xef\xbb\xbfthe cat\r\n\n \t\nit\n\n")
        lines = run("--file", str(file), *options).split("\n")
        texts = [
            each[:-1].replace("\n", " ").replace("\r", " ")
            for each in (alone[0], run("it", *options))
        ]
        assert lines == [texts[0], "", "", texts[1], "", ""]
        file.write_bytes(b"")
        assert run("--file", str(file), *options) == ""


def append(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    return change


DAMAGES: dict[str, tuple[Change, str]] = {
    "no config": (lose("config.json"), "config.json: No such file"),
    "no vocabulary": (lose("vocab.json"), "vocab.json: No such file"),
    "no merges": (lose("merges.txt"), "merges.txt: No such file"),
    "weights that are too large": (
        lambda folder: change_tensors(
            folder, lambda tensors: [each.mul_(1e30) for each in tensors.values()]
        ),
        "logits must be finite, got NaN or infinity at step 1",
    ),
    "another end token": (
        update("config.json", eos_token_id=7),
        "in the vocabulary but 7 in config.json",
    ),
    "no end token": (update("vocab.json", **{END: "LOST"}), "must hold '<|endoftext|>'"),
    "no byte": (update("vocab.json", **{BYTES[7]: "LOST"}), f"must hold {BYTES[7]!r}"),
    "an id twice": (update("vocab.json", new=7), "must not repeat an id"),
    "an id that is a string": (
        update("vocab.json", new="x"),
        "the id of 'new' must be a whole number from 0 to",
    ),
    "a token before a text": (
        lambda folder: (folder / "tokenizer_config.json").write_text('{"add_bos_token": true}'),
        "tokenizer_config.json: add_bos_token must be False for this tokenizer, got True",
    ),
    "a large id": (
        update("vocab.json", new=9999),
        "must be below the vocab_size of config.json, got 9999 and",
    ),
    "a token that holds no bytes": (
        update("vocab.json", 猫=9999),
        "must consist of the characters that stand for bytes, got '猫'",
    ),
    **{
        f"a large {name}": (update("config.json", **{name: 2**28}), "by config.json, got (")
        for name in ("n_embd", "n_inner", "n_positions", "vocab_size")
    },
    "a merge of one token": (append("merges.txt", "abc\n"), "must hold two tokens, got 'abc'"),
    "a merge with an empty token": (append("merges.txt", "a \n"), "must hold two tokens, got 'a '"),
    "an unknown merge": (append("merges.txt", "x z\n"), "must hold 'xz'"),
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
        (["--file", "x"], "prompts cannot be combined with --file"),
        (["--top-k", "3"], "--top-k requires --sample"),
        (["--seed", "0"], "--seed requires --sample"),
        (["--sample", "--top-p", "0"], "must be a number in (0, 1], got '0'"),
        (["--dance"], "unknown option --dance (see --help)"),
        (["--lenght", "3"], "unknown option --lenght (did you mean --length?) (see --help)"),
    ],
)
def test_an_impossible_option_is_reported_in_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main([str(folder), "the cat", *arguments]) == 2
    assert message in one_error_line(capsys)
