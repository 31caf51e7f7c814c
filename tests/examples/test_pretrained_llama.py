"""Llama, Qwen3 and Gemma 3 compute what transformers computes from the same files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.examples.published import (
    DECODERS,
    Change,
    edit_json,
    linear_output,
    load,
    one_error_line,
    save_model,
    setting,
    truncate,
    update,
)
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from common.searches import Greedy, Sample
from pretrained import generate
from pretrained.generator import TextGenerator
from pretrained.tokenizer import PublishedTokenizer

# Tokenizers

TEXT = [
    "The Transformer reads the text; we've seen that it's able to.",
    "the cat's cats sat there, and they'll sit there in 2024.",
    "東京の犬は東京で本を読みます。東京の猫は寝ます。",
]
TRICKY = (
    *(" ", "the cat", " the  cat   sat", "it's we'll IT'S", "in 2024, 31415 ½ ٣", "ｶﾞ ガ が"),
    *("é e\u0301", "😀👍🏽", "a\tb\n\nc  \n d", "trailing  ", "\n\n\n", "a\u00a0b\u3000c", "▁ a▁b"),
    *("<s> </s>", "<think>the</think>", "<|endoftext|>", "\x00\x07", "\ufffd", "\ufeffthe"),
)
SPECIAL = ["<pad>", "<s>", "</s>"]


def llama_tokenizer() -> tokenizers.Tokenizer:
    """Split as Llama 3 does, with a token that begins a text."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split = tokenizers.Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]),
        ]
    )
    return tokenizer


def qwen3_tokenizer() -> tokenizers.Tokenizer:
    """Normalise the text first, and add words that are not special; nothing begins a text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def gemma3_text_tokenizer() -> tokenizers.Tokenizer:
    """Merge characters, with spaces written as another character and bytes for unknown ones."""
    tokenizer = tokenizers.Tokenizer(
        models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    train(tokenizer, [], others=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def train(
    tokenizer: tokenizers.Tokenizer, alphabet: list[str], others: list[str] | None = None
) -> None:
    """Learn merges; ``others`` are tokens without merges that are not special."""
    trainer = trainers.BpeTrainer(
        vocab_size=400 if others is None else 420,
        special_tokens=[*SPECIAL, *(others or [])],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    if others:  # the trainer knows special tokens only
        content = json.loads(tokenizer.to_str())
        content["added_tokens"] = [
            each for each in content["added_tokens"] if each["content"] in SPECIAL
        ]
        fresh = tokenizers.Tokenizer.from_str(json.dumps(content))
        tokenizer.model = fresh.model


@pytest.fixture(scope="module", params=DECODERS[1:])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a whole folder of a family, with its kind of tokenizer."""
    family = request.param
    folder = tmp_path_factory.mktemp(family)
    tokenizer = globals()[f"{family}_tokenizer"]()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_model(
        family, folder, 3, vocab_size=tokenizer.get_vocab_size() + 7, tie_word_embeddings=False
    )
    return folder


def test_texts_are_encoded_and_decoded_as_by_transformers(folder: Path) -> None:
    make: Any = transformers.PreTrainedTokenizerFast
    theirs = make(tokenizer_file=str(folder / "tokenizer.json"))
    ours = PublishedTokenizer.load(folder)
    for text in (*TRICKY, *TEXT):
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        whole = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == whole
        for cut in range(1, len(ids)):
            before = ours.decode(ids[:cut])
            if "\ufffd" not in before:
                assert before + ours.decode(ids[cut:], ids[:cut]) == whole


def test_a_text_ends_at_any_of_the_end_tokens(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    edit_json("generation_config.json", lambda config: config.update(eos_token_id=[2, 300]))(copy)
    asked = []

    def search(*given: Any, end_id: object, **options: Any) -> Any:
        asked.append(end_id)
        return Greedy()(*given, end_id=end_id, **options)

    TextGenerator.load(copy).generate(["the cat"], length=9, search=search)
    assert asked == [(2, 300)]


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path) -> None:
    generator = TextGenerator.load(folder)
    size = len(generator.tokenizer.tokens)
    with torch.no_grad():
        weight = linear_output(generator.model).weight
        weight[size:] = 10 * weight[:7]
    (found,) = generator.generate(["the"], length=9, search=Sample(1.0, None, None, 1, n_best=20))
    assert len(set(found)) > 1


# Weights in several files

INDEX = "model.safetensors.index.json"
WEIGHT = "model.layers.1.mlp.up_proj.weight"


def shard(folder: Path) -> None:
    """Divide the weights into three files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(tensors)}
    for file in sorted({*places.values()}):
        chosen = {name: tensors[name] for name in tensors if places[name] == file}
        save_file(chosen, folder / file)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_model("llama", tmp_path, 0, num_hidden_layers=2)
    shard(tmp_path)
    return tmp_path


def test_weights_in_several_files_are_those_of_one_file(tmp_path: Path, sharded: Path) -> None:
    whole = tmp_path / "whole"
    save_model("llama", whole, 0, num_hidden_layers=2)
    expected, found = load("llama", whole).state_dict(), load("llama", sharded).state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def change_shard(change: Callable[[dict[str, Tensor]], object]) -> Change:
    def write(folder: Path) -> None:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        path = folder / index["weight_map"][WEIGHT]
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return write


SHARD_DAMAGES: list[tuple[Change, str]] = [
    (
        lambda folder: min(folder.glob("model-*")).unlink(),
        "model-00001-of-00003.safetensors is missing, which model.safetensors.index.json",
    ),
    (
        change_shard(lambda tensors: tensors.pop(WEIGHT)),
        f"-of-00003.safetensors lacks tensor '{WEIGHT}'",
    ),
    (
        change_shard(lambda tensors: tensors.update(extra=torch.ones(2))),
        "holds tensor 'extra', which is not there by model.safetensors.index.json",
    ),
    (
        edit_json(INDEX, lambda index: index.pop("weight_map")),
        "weight_map must be an object with the file of each tensor, got None",
    ),
    (
        edit_json(INDEX, lambda index: index["weight_map"].update({WEIGHT: "../x.safetensors"})),
        "must name safetensors files beside it, got '../x.safetensors'",
    ),
    (
        edit_json(INDEX, lambda index: index["weight_map"].update({WEIGHT: "pytorch_model.bin"})),
        "must name safetensors files beside it, got 'pytorch_model.bin'",
    ),
    (truncate(INDEX, -1), "model.safetensors.index.json is not JSON"),
]


def make_runnable(folder: Path) -> None:
    """Add a tokenizer whose ids the model has."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, "a", "b"))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(("change", "message"), SHARD_DAMAGES)
def test_damaged_weights_in_several_files_are_reported_in_one_line(
    change: Change, message: str, sharded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_runnable(sharded)
    assert generate.main([str(sharded), "ab", "--length", "2"]) == 0
    capsys.readouterr()
    change(sharded)
    assert generate.main([str(sharded), "ab", "--length", "2"]) == 2
    assert message in one_error_line(capsys)


# Settings that contradict the weights or are not implemented


BAD: list[tuple[Change, str]] = [
    (
        setting(model_type="mistral"),
        "must be one of gpt2, llama, qwen3, gemma3_text for this program, got 'mistral'",
    ),
    (
        update("generation_config.json", eos_token_id=[2, "x"]),
        "generation_config.json: eos_token_id must be a token id or a list, got [2, 'x']",
    ),
    (
        update("generation_config.json", eos_token_id=50),
        "the ids of the vocabulary must be below the vocab_size of config.json, got 50 and 40",
    ),
    (
        edit_json(
            "tokenizer.json",
            lambda content: content["model"]["vocab"].update({str(i): i for i in range(5, 70)}),
        ),
        "the ids of the vocabulary must be below the vocab_size of config.json, got 69 and 40",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_what_is_not_implemented_or_contradicts_itself_is_refused_by_its_key(
    change: Change, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model("llama", tmp_path)
    make_runnable(tmp_path)
    assert generate.main([str(tmp_path), "ab", "--length", "2"]) == 0
    capsys.readouterr()
    change(tmp_path)
    assert generate.main([str(tmp_path), "ab", "--length", "2"]) == 2
    assert message in one_error_line(capsys)


def test_a_text_begins_with_the_end_token_where_nothing_else_begins_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model("qwen3", tmp_path, 0)
    make_runnable(tmp_path)
    edit_json("tokenizer.json", lambda content: content.update(post_processor=None))(tmp_path)
    assert generate.main([str(tmp_path), "", "--length", "5"]) == 0
    capsys.readouterr()
    generator = TextGenerator.load(tmp_path)
    with torch.no_grad():
        logits = generator.model(torch.tensor([[2]]))[0, 0, : len(generator.tokenizer.tokens)]
    (((found,),),) = [generator.generate([""], length=1, search=Greedy())]
    assert found == generator.tokenizer.decode([int(logits.argmax())])
    edit_json("generation_config.json", lambda config: config.pop("eos_token_id"))(tmp_path)
    setting(eos_token_id="LOST")(tmp_path)
    assert generate.main([str(tmp_path), "", "--length", "5"]) == 2
    assert "the prompt must not be empty, as this model has no end token" in one_error_line(capsys)
