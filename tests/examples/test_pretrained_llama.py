"""Llama, Qwen3 and Gemma 3 compute what transformers computes from the same files."""

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.examples.published import TOLERANCE, change_tensors, computing_in, one_error_line, save
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from common.errors import UserError
from common.searches import Beam, Greedy, Sample
from pretrained import generate
from pretrained.gemma3_model import Gemma3
from pretrained.generator import FAMILIES, TextGenerator
from pretrained.language_model import LanguageModelSteps
from pretrained.llama_family import pair_neighbours
from pretrained.sentence_tokenizer import SentenceTokenizer
from pretrained.text_tokenizer import TextTokenizer
from pretrained.unigram import Unigram
from transformer_blocks import RotaryPositionalEncoding, beam_search, greedy_search, sample
from transformer_blocks.generation import left_pad
from transformer_blocks.inference import prepare

CLASSES: dict[str, tuple[Any, Any]] = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gemma3_text": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
}
VOCABULARY, LENGTH = 60, 24
every_family = pytest.mark.parametrize("family", CLASSES)


def draw_rotary(rng: random.Random) -> dict[str, Any]:
    base = {"rope_theta": rng.choice([100.0, 10000.0, 500000.0])}
    kind = rng.choice(["default", "linear", "llama3"])
    if kind == "default":
        return {"rope_type": kind, **base}
    if kind == "linear":
        return {"rope_type": kind, "factor": rng.choice([2.0, 8.0]), **base}
    low = rng.choice([0.5, 1.0])
    return {
        **base,
        "rope_type": kind,
        "factor": rng.choice([4.0, 8.0]),
        "original_max_position_embeddings": rng.choice([8, 16]),
        "low_freq_factor": low,
        "high_freq_factor": low * rng.choice([2, 4]),
    }


def draw_config(family: str, seed: int, **fixed: Any) -> Any:
    """Draw the settings of a small model."""
    rng = random.Random(f"{family} {seed}")
    heads, num_layers = rng.choice([1, 2, 4]), rng.choice([2, 3])
    d_model = heads * rng.choice([8, 12])
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": d_model,
        "intermediate_size": rng.choice([16, 20]),
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([each for each in (1, 2, 4) if heads % each == 0]),
        "head_dim": rng.choice([d_model // heads, 6, 10]),
        "max_position_embeddings": 64,
        "rms_norm_eps": rng.choice([1e-2, 1e-6]),
        "attention_bias": rng.random() < 0.5,
        "tie_word_embeddings": rng.random() < 0.5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "rope_parameters": draw_rotary(rng),
    }
    kinds = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(num_layers)]
    if family == "llama":
        settings["mlp_bias"] = rng.random() < 0.5
    else:
        settings |= {"sliding_window": rng.choice([3, 5, 40])}
    if family == "qwen3" and rng.random() < 0.5:
        settings |= {"use_sliding_window": True, "max_window_layers": rng.choice([0, 1])}
    if family == "gemma3_text":
        settings |= {
            "layer_types": kinds,
            "query_pre_attn_scalar": rng.choice([4, 9, 256]),
            "final_logit_softcapping": rng.choice([None, 5.0]),
            "rope_parameters": {
                "full_attention": draw_rotary(rng),
                "sliding_attention": draw_rotary(rng),
            },
        }
    return CLASSES[family][0](**(settings | fixed))


def save_model(
    family: str, folder: Path, seed: int, *, dtype: torch.dtype = torch.float32, **fixed: Any
) -> Any:
    torch.manual_seed(seed)
    with computing_in(dtype):
        model = CLASSES[family][1](draw_config(family, seed, **fixed))
        return save(model, folder, dtype=dtype)


def load(family: str, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return FAMILIES[family][0].load(folder, dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("seed", range(10))
@every_family
def test_logits_equal_those_of_transformers(
    family: str, seed: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs, ours = save_model(family, tmp_path, seed, dtype=dtype), load(family, tmp_path, dtype)
    tokens = torch.randint(3, VOCABULARY, (3, LENGTH))
    with torch.no_grad():
        with computing_in(dtype):
            expected = theirs(tokens).logits
        found = ours(tokens)
        steps = LanguageModelSteps(ours, tokens[:, :10])
        stepped = [steps.step(column) for column in tokens[:, 10:].unbind(1)]
    assert found.dtype == expected.dtype == dtype
    assert expected.std() > 0.5
    options: dict[str, Any] = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(found, expected, **options)
    torch.testing.assert_close(torch.stack(stepped, dim=1), found[:, 10:], **options)


@every_family
def test_the_drawn_configurations_have_each_variant(family: str) -> None:
    configs = [draw_config(family, seed).to_dict() for seed in range(10)]
    for name in ("tie_word_embeddings", "attention_bias"):
        assert {config[name] for config in configs} == {True, False}
    rotary = json.dumps([config["rope_parameters"] for config in configs])
    assert all(f'"{kind}"' in rotary for kind in ("default", "linear", "llama3"))
    assert (
        len({config["num_attention_heads"] // config["num_key_value_heads"] for config in configs})
        > 1
    )
    if family != "llama":
        assert {kind for config in configs for kind in config["layer_types"]} == {
            "sliding_attention",
            "full_attention",
        }


@pytest.mark.parametrize("how", ["plain", "prepared"])
@every_family
def test_greedy_decoding_and_beam_search_find_the_tokens_of_transformers(
    family: str, how: str, tmp_path: Path
) -> None:
    ended = 0
    for seed in range(3):
        ends = [2, 5, 9]
        theirs = save_model(family, tmp_path, seed, eos_token_id=ends)
        ours = load(family, tmp_path)
        assert ours.end_ids == (2, 5, 9)
        ours = prepare(ours) if how == "prepared" else ours
        prompts = [torch.randint(10, VOCABULARY, (length,)).tolist() for length in (9, 1, 4, 7)]
        tokens, lengths = left_pad(prompts)
        is_token = torch.arange(9) >= 9 - torch.tensor(lengths)[:, None]
        for beams in (1, 3):
            expected = theirs.generate(
                tokens,
                attention_mask=is_token.long(),
                do_sample=False,
                num_beams=beams,
                early_stopping=beams > 1,
                length_penalty=0.0 if beams > 1 else None,
                max_new_tokens=20,
            )[:, 9:]
            with torch.no_grad():
                steps = LanguageModelSteps(ours, tokens[:, :-1], lengths=[n - 1 for n in lengths])
            options: dict[str, Any] = {"end_id": ends, "max_length": 20}
            if beams == 1:
                found = greedy_search(steps, tokens[:, -1], **options)
            else:
                options |= {"beam_size": beams, "n_best": beams, "length_penalty": 0.0}
                several = beam_search(steps, tokens[:, -1], **options)
                found = [max(each, key=lambda one: one.score) for each in several]
            for generation, row in zip(found, expected.tolist(), strict=True):
                assert generation.tokens == row[: len(generation.tokens)]
                rest = row[len(generation.tokens) :]
                assert not rest or (generation.finished and rest[0] in ends)
                ended += generation.finished
    assert ended


@every_family
def test_tokens_are_sampled_with_the_probabilities_of_transformers(
    family: str, tmp_path: Path
) -> None:
    theirs, ours = save_model(family, tmp_path, 1), load(family, tmp_path)
    tokens = torch.randint(3, VOCABULARY, (1, 8))
    options: dict[str, Any] = {"temperature": 3.0, "top_k": 12, "top_p": 0.9}
    output = theirs.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=True,
        max_new_tokens=1,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    expected = output.scores[0][0].softmax(-1)  # after temperature, top-k and top-p
    count = 20_000
    with torch.no_grad():
        steps = LanguageModelSteps(ours, tokens[:, :-1])
    steps.reorder(torch.zeros(count, dtype=torch.int64))
    generator = torch.Generator().manual_seed(0)
    start = tokens[0, -1].expand(count)
    drawn = sample(steps, start, end_id=None, max_length=1, generator=generator, **options)
    shares = torch.tensor([each.tokens[0] for each in drawn]).bincount(minlength=VOCABULARY) / count
    assert shares[expected == 0.0].sum() == 0.0
    assert (expected > 0.0).sum() > 2
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((shares - expected).abs() <= 4.5 * deviation + 1e-6).all()


def test_published_pairs_and_neighbours_give_the_same_scores() -> None:
    def rotate_published(x: Tensor) -> Tensor:  # element i with element i + d_k / 2
        angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
        first, second = x.chunk(2, dim=-1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    def reorder(x: Tensor) -> Tensor:
        return pair_neighbours(x.movedim(-1, 0), 8).movedim(0, -1)

    rotary = RotaryPositionalEncoding(8)
    query, key = torch.randn(2, 1, 3, 5, 8)
    expected = rotate_published(query) @ rotate_published(key).mT
    queries = rotary.transform_queries(reorder(query), start=0)
    keys = rotary.transform_keys(reorder(key), start=0)
    torch.testing.assert_close(queries @ keys.mT, expected)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def test_older_forms_of_the_settings_are_understood(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {
        "rope_parameters": {**LLAMA3, "rope_theta": 500.0},
        "eos_token_id": 7,
    }
    theirs = save_model("llama", tmp_path, 0, **fixed)
    (tmp_path / "generation_config.json").unlink()

    def age(config: dict[str, Any]) -> None:
        del config["rope_parameters"]
        config |= {"rope_theta": 500.0, "rope_scaling": LLAMA3}

    change_config(age)(tmp_path)
    ours, tokens = load("llama", tmp_path), torch.randint(VOCABULARY, (2, LENGTH))
    assert ours.end_ids == (7,)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)

    fixed = {
        "layer_types": None,
        "num_hidden_layers": 7,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 3000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 200.0},
        },
    }
    theirs = save_model("gemma3_text", tmp_path, 0, dtype=torch.float64, **fixed)

    def age_gemma(config: dict[str, Any]) -> None:
        for name in ("rope_parameters", "layer_types", "_sliding_window_pattern"):
            config.pop(name, None)
        config |= {
            "sliding_window_pattern": 6,
            "rope_theta": 3000.0,
            "rope_local_base_freq": 200.0,
            "rope_scaling": {"type": "linear", "factor": 8.0},
        }

    change_config(age_gemma)(tmp_path)
    with torch.no_grad(), computing_in(torch.float64):
        found = load("gemma3_text", tmp_path, torch.float64)(tokens)
        torch.testing.assert_close(found, theirs(tokens).logits, rtol=0, atol=1e-9)


LINEAR = {"rope_type": "linear", "factor": 4.0}
PLACES: dict[str, dict[str, Any]] = {
    "a base beside the newer form": {"rope_parameters": LINEAR, "rope_theta": 7.0},
    "a base in the older form": {"rope_scaling": LINEAR | {"rope_theta": 7.0}, "rope_theta": 50.0},
    "nothing in the newer form": {"rope_parameters": {}, "rope_theta": 7.0},
    "nothing in the older form": {"rope_scaling": {}, "rope_theta": 7.0},
    "a base for a million tokens": {"rope_theta": 3580165449.0},  # of Llama-3-8B-Gradient-1048k
}


@pytest.mark.parametrize("place", PLACES)
@every_family
def test_rotary_settings_are_read_where_transformers_reads_them(
    family: str, place: str, tmp_path: Path
) -> None:
    settings = PLACES[place]
    if family == "gemma3_text" and settings.get("rope_parameters"):
        kinds = dict.fromkeys(("full_attention", "sliding_attention"), LINEAR)
        settings = settings | {"rope_parameters": kinds, "rope_local_base_freq": 9.0}
    save_model(family, tmp_path, 0)
    change_config(lambda config: config.pop("rope_parameters"))(tmp_path)
    setting(**settings)(tmp_path)
    theirs = CLASSES[family][1].from_pretrained(tmp_path).eval()
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        found = load(family, tmp_path)(tokens)
        torch.testing.assert_close(found, theirs(tokens).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("listed", [True, False])
def test_the_pattern_says_which_layers_have_a_window_if_their_kinds_are_not_listed(
    listed: bool, tmp_path: Path
) -> None:
    save_model("gemma3_text", tmp_path, 0, sliding_window=3, num_hidden_layers=3, layer_types=None)
    setting(sliding_window_pattern=2, _sliding_window_pattern=3)(tmp_path)
    if not listed:
        change_config(lambda config: config.pop("layer_types"))(tmp_path)
    theirs = transformers.Gemma3ForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        found = load("gemma3_text", tmp_path)(tokens)
        torch.testing.assert_close(found, theirs(tokens).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_later_layers_have_a_window_where_the_kinds_of_layers_are_not_listed(
    first: int, tmp_path: Path
) -> None:
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 3,
        "max_window_layers": first,
        "num_hidden_layers": 2,
    }
    theirs = save_model("qwen3", tmp_path, 0, **windows)
    change_config(lambda config: config.pop("layer_types"))(tmp_path)
    ours, tokens = load("qwen3", tmp_path), torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_output_layer_remains_tied(tied: bool, tmp_path: Path) -> None:
    save_model("qwen3", tmp_path, 0, tie_word_embeddings=tied)
    model = load("qwen3", tmp_path)
    assert (model.output.weight is model.token_embedding.weight) == tied


def test_the_size_of_a_head_follows_from_the_others_if_it_is_not_given(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
    )
    theirs = save(transformers.LlamaForCausalLM(config), tmp_path)
    change_config(lambda values: values.pop("head_dim", None))(tmp_path)
    change_config(lambda values: values.pop("num_key_value_heads", None))(tmp_path)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        found = load("llama", tmp_path)(tokens)
        torch.testing.assert_close(found, theirs(tokens).logits, rtol=0, atol=1e-4)


def change_config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return change_json("config.json", change)


def change_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_bytes())
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")

    return write


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


@pytest.fixture(scope="module", params=CLASSES)
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
    ours = TextTokenizer.load(folder)
    for text in (*TRICKY, *TEXT):
        ids = ours.encode(text)
        assert ids == theirs(text, split_special_tokens=True)["input_ids"], text
        whole = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == whole
        for cut in range(1, len(ids)):
            before = ours.decode(ids[:cut])
            if "\ufffd" not in before:
                assert before + ours.decode(ids[cut:], ids[:cut]) == whole
    with pytest.raises(IndexError, match="an id must be in the vocabulary, got 9999"):
        ours.decode([9999])
    with pytest.raises(UnicodeEncodeError):
        ours.encode("\ud800")


def test_the_program_continues_prompts_each_as_if_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["the cat", "The Transformer reads the text; we've", "東京の犬は", "", "it"]
    generator = TextGenerator.load(folder)
    for search in (Greedy(), Sample(2.0, 50, 0.9, 4, n_best=2), Beam(3, 0.5)):
        alone = [generator.generate([each], length=12, search=search)[0] for each in prompts]
        assert generator.generate(prompts, length=12, search=search) == alone
    (((first,), *_)) = [generator.generate([prompts[0]], length=12, search=Greedy())[0]]
    assert generate.main([str(folder), "the cat", "--length", "12"]) == 0
    assert capsys.readouterr().out == f"the cat{first}\n"


def test_a_text_ends_at_any_of_the_end_tokens(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    change_json("generation_config.json", lambda config: config.update(eos_token_id=[2, 300]))(copy)
    asked = []

    def search(*given: Any, end_id: object, **options: Any) -> Any:
        asked.append(end_id)
        return Greedy()(*given, end_id=end_id, **options)  # type: ignore[arg-type]

    TextGenerator.load(copy).generate(["the cat"], length=9, search=search)
    assert asked == [(2, 300)]


def test_ids_beyond_the_vocabulary_are_never_generated(folder: Path) -> None:
    generator = TextGenerator.load(folder)
    size = len(generator.tokenizer.tokens)
    with torch.no_grad():
        weight = generator.model.output.weight
        weight[size:] = 10 * weight[:7]
    (found,) = generator.generate(["the"], length=9, search=Sample(1.0, None, None, 1, n_best=20))
    assert len(set(found)) > 1


# Weights in several files

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


def swap_files(folder: Path) -> None:
    first, second, *_ = sorted(folder.glob("model-*"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def change_shard(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        path = folder / index["weight_map"][WEIGHT]
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return write


def change_index(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return change_json("model.safetensors.index.json", change)


SHARD_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "swapped files": (swap_files, "which is not there by model.safetensors.index.json"),
    "a missing file": (
        lambda folder: min(folder.glob("model-*")).unlink(),
        "model-00001-of-00003.safetensors is missing, which model.safetensors.index.json names",
    ),
    "a truncated file": (
        lambda folder: (path := min(folder.glob("model-*"))).write_bytes(path.read_bytes()[:-1]),
        "model-00001-of-00003.safetensors cannot be read as safetensors",
    ),
    "a pointer": (
        lambda folder: min(folder.glob("model-*")).write_bytes(b"version https://git-lfs.github"),
        "is a pointer of git-lfs, not the file: run git lfs pull",
    ),
    "a missing tensor": (
        change_shard(lambda tensors: tensors.pop(WEIGHT)),
        f"-of-00003.safetensors lacks tensor '{WEIGHT}'",
    ),
    "a surplus tensor": (
        change_shard(lambda tensors: tensors.update(extra=torch.ones(2))),
        "holds tensor 'extra', which is not there by model.safetensors.index.json",
    ),
    "NaN": (
        change_shard(lambda tensors: tensors[WEIGHT].fill_(math.nan)),
        f"tensor '{WEIGHT}' holds NaN or infinity",
    ),
    "no map": (
        change_index(lambda index: index.pop("weight_map")),
        "weight_map must be an object with the file of each tensor, got None",
    ),
    "a map of numbers": (
        change_index(lambda index: index.update(weight_map={WEIGHT: 1})),
        "weight_map must be an object with the file of each tensor, got {",
    ),
    "a file elsewhere": (
        change_index(lambda index: index["weight_map"].update({WEIGHT: "../other.safetensors"})),
        "must name safetensors files beside it, got '../other.safetensors'",
    ),
    "a pickle": (
        change_index(lambda index: index["weight_map"].update({WEIGHT: "pytorch_model.bin"})),
        "must name safetensors files beside it, got 'pytorch_model.bin'",
    ),
    "a truncated index": (
        lambda folder: (path := folder / "model.safetensors.index.json").write_bytes(
            path.read_bytes()[:-1]
        ),
        "model.safetensors.index.json is not JSON",
    ),
}


def make_runnable(folder: Path, family: str = "llama") -> None:
    """Add a tokenizer whose ids the model has."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, "a", "b"))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("damage", SHARD_DAMAGES)
def test_damaged_weights_in_several_files_are_reported_in_one_line(
    damage: str, sharded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = SHARD_DAMAGES[damage]
    make_runnable(sharded)
    assert generate.main([str(sharded), "ab", "--length", "2"]) == 0
    capsys.readouterr()
    change(sharded)
    assert generate.main([str(sharded), "ab", "--length", "2"]) == 2
    assert message in one_error_line(capsys)


# Settings that contradict the weights or are not implemented


def setting(**values: object) -> Callable[[Path], object]:
    return change_config(lambda config: config.update(values))


def rotary(**values: object) -> Callable[[Path], object]:
    return change_config(lambda config: config["rope_parameters"].update(values))


def tokenizer_config(**values: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "tokenizer_config.json").write_text(json.dumps(values))


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an unknown family": (
        "llama",
        setting(model_type="mistral"),
        "model_type must be one of gpt2, llama, qwen3, gemma3_text for this program, got 'mistral'",
    ),
    "images too": (
        "gemma3_text",
        setting(model_type="gemma3"),
        "model_type must be one of gpt2, llama, qwen3, gemma3_text for this program, got 'gemma3'",
    ),
    "a larger head": ("llama", setting(head_dim=64), "by config.json, got ("),
    "sizes whose product is too large": (
        "llama",
        setting(hidden_size=2**28, num_attention_heads=2**28, head_dim=2**28),
        "head_dim must be a whole number from 1 to 1, got 268435456",
    ),
    "an odd head": ("llama", setting(head_dim=7), "head_dim must be even, got 7"),
    "no size of a head": (
        "llama",
        setting(head_dim=None, num_attention_heads=5, num_key_value_heads=5),
        "num_attention_heads must divide the hidden size",
    ),
    "other groups": (
        "llama",
        setting(num_attention_heads=4, num_key_value_heads=3),
        "num_key_value_heads must divide num_attention_heads, got 3 and 4",
    ),
    "a layer more": ("llama", setting(num_hidden_layers=3), "lacks tensor 'model.layers.2."),
    "a layer less": (
        "llama",
        setting(num_hidden_layers=1),
        "holds tensor 'model.layers.1.input_layernorm.weight', which the model does not use",
    ),
    "biases that are not there": ("qwen3", setting(attention_bias=True), "lacks tensor '"),
    "biases as a word": (
        "llama",
        setting(mlp_bias="no"),
        "mlp_bias must be true or false, got 'no'",
    ),
    "a tied output": (
        "qwen3",
        setting(tie_word_embeddings=True),
        "'model.embed_tokens.weight' and 'lm_head.weight' must be equal, but differ",
    ),
    "another activation": (
        "llama",
        setting(hidden_act="mish"),
        "hidden_act must be one of relu, gelu",
    ),
    "quantised weights": (
        "llama",
        setting(quantization_config={"bits": 4}),
        "quantization_config must be None for this program, got {'bits': 4}",
    ),
    "another scaling": (
        "llama",
        rotary(rope_type="yarn", factor=2.0),
        "rope_parameters: rope_type must be default, linear or llama3 for this program, got 'yarn'",
    ),
    "a factor below 1": (
        "llama",
        rotary(rope_type="linear", factor=0.5),
        "rope_parameters: factor must be at least 1, got 0.5",
    ),
    "a base of almost nothing": (
        "llama",
        rotary(rope_theta=1e-320),
        "rope_parameters: rope_theta must be a number from 1e-30 to 1e30, got 1e-320",
    ),
    "no factor": (
        "llama",
        rotary(rope_type="linear"),
        "rope_parameters: factor must be a number from 1e-30 to 1e30, got None",
    ),
    "low above high": (
        "llama",
        rotary(
            rope_type="llama3",
            factor=2.0,
            low_freq_factor=4.0,
            high_freq_factor=1.0,
            original_max_position_embeddings=8,
        ),
        "rope_parameters: low_freq_factor must be below high_freq_factor, got 4.0 and 1.0",
    ),
    "an unknown rotary setting": (
        "llama",
        rotary(attention_factor=2.0),
        "rope_parameters: 'attention_factor' is not a known setting, got 2.0",
    ),
    "rotations of a part": (
        "llama",
        rotary(partial_rotary_factor=0.5),
        "rope_parameters: partial_rotary_factor must be 1.0 for this program, got 0.5",
    ),
    "rotary settings of another form": (
        "gemma3_text",
        setting(rope_parameters={"rope_type": "default"}),
        "rope_parameters: full_attention must be an object, got None",
    ),
    "unknown layers": (
        "gemma3_text",
        setting(layer_types=["full_attention", "chunked_attention"]),
        "layer_types must hold 'sliding_attention' or 'full_attention' for each of the 2 layers",
    ),
    "windows in a family that has none": (
        "llama",
        setting(layer_types=["full_attention", "sliding_attention"], sliding_window=3),
        "layer_types must hold 'full_attention' for each of the 2 layers",
    ),
    "windows that are not used": (
        "qwen3",
        setting(
            layer_types=["full_attention", "sliding_attention"],
            use_sliding_window=False,
            sliding_window=3,
        ),
        "layer_types must hold 'full_attention' for each of the 2 layers",
    ),
    "too few layers": (
        "gemma3_text",
        setting(layer_types=["full_attention"]),
        "layer_types must hold 'sliding_attention' or 'full_attention' for each of the 2 layers",
    ),
    "no window": (
        "gemma3_text",
        setting(layer_types=["sliding_attention"] * 2, sliding_window=None),
        "sliding_window must be a whole number from 1",
    ),
    "bounded scores": (
        "gemma3_text",
        setting(attn_logit_softcapping=50.0),
        "attn_logit_softcapping must be None for this program, got 50.0",
    ),
    "two forms of the rotary settings": (
        "llama",
        setting(rope_scaling=LINEAR),
        "rope_parameters and rope_scaling must not both be given",
    ),
    "a length beside the rotary settings": (
        "llama",
        setting(original_max_position_embeddings=8, rope_parameters=LLAMA3),
        "original_max_position_embeddings must be 16 for this program, got 8",
    ),
    "keys after the query": (
        "qwen3",
        setting(is_causal=False),
        "is_causal must be True for this program, got False",
    ),
    "settings of one layer": (
        "llama",
        setting(per_layer_config={"0": {"rms_norm_eps": 1.0}}),
        "per_layer_config must be None for this program, got {'0': {'rms_norm_eps': 1.0}}",
    ),
    "too many layers to list": (
        "qwen3",
        setting(num_hidden_layers=2**28),
        "num_hidden_layers must be a whole number from 1 to 1024, got 268435456",
    ),
    "both directions": (
        "gemma3_text",
        setting(use_bidirectional_attention=True),
        "use_bidirectional_attention must be False for this program, got True",
    ),
    "an end token that is no id": (
        "llama",
        change_json("generation_config.json", lambda config: config.update(eos_token_id=[2, "x"])),
        "generation_config.json: eos_token_id must be a token id or a list, got [2, 'x']",
    ),
    "an unknown end token": (
        "llama",
        change_json("generation_config.json", lambda config: config.update(eos_token_id=50)),
        "eos_token_id must be in the vocabulary, got 50",
    ),
    "a larger vocabulary": (
        "llama",
        change_json(
            "tokenizer.json",
            lambda content: content["model"]["vocab"].update({str(i): i for i in range(5, 70)}),
        ),
        "the ids of the vocabulary must be below the vocab_size of config.json, got 69 and 60",
    ),
    "no tokenizer": (
        "llama",
        lambda folder: (folder / "tokenizer.json").unlink(),
        "tokenizer.json: No such file",
    ),
    "another tokenizer": (
        "llama",
        change_json("tokenizer.json", lambda content: content["model"].update(type="Unigram")),
        "model must be 'BPE' for this program, got 'Unigram'",
    ),
    "tokens after a text": (
        "llama",
        change_json(
            "tokenizer.json",
            lambda content: content["post_processor"]["single"].append(
                {"SpecialToken": {"id": "<s>", "type_id": 0}}
            ),
        ),
        "post_processor must add no token after a text",
    ),
    "random merges": (
        "llama",
        change_json("tokenizer.json", lambda content: content["model"].update(dropout=0.1)),
        "dropout must be null, got 0.1",
    ),
    "no token before a text": (
        "llama",
        tokenizer_config(add_bos_token=False),
        "add_bos_token must be True for this tokenizer, got False",
    ),
    "a space before a text": (
        "llama",
        tokenizer_config(add_bos_token=None, add_prefix_space=True),
        "add_prefix_space must be False for this tokenizer, got True",
    ),
    "an end after a text": (
        "llama",
        tokenizer_config(add_eos_token=True),
        "add_eos_token must be False for this tokenizer, got True",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_implemented_or_contradicts_itself_is_refused_by_its_key(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family, change, message = BAD[bad]
    fixed: dict[str, Any] = {
        "num_hidden_layers": 2,
        "tie_word_embeddings": False,
        "attention_bias": False,
    }
    if family == "gemma3_text":
        fixed["layer_types"] = ["sliding_attention", "full_attention"]
    else:
        fixed["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    save_model(family, tmp_path, 0, **fixed)
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
    change_json("tokenizer.json", lambda content: content.update(post_processor=None))(tmp_path)
    assert generate.main([str(tmp_path), "", "--length", "5"]) == 0
    capsys.readouterr()
    generator = TextGenerator.load(tmp_path)
    with torch.no_grad():
        steps = LanguageModelSteps(generator.model, torch.zeros(1, 0, dtype=torch.int64))
        logits = steps.step(torch.tensor([2]))[0, : len(generator.tokenizer.tokens)]
    (((found,),),) = [generator.generate([""], length=1, search=Greedy())]
    assert found == generator.tokenizer.decode([int(logits.argmax())])
    change_json("generation_config.json", lambda config: config.pop("eos_token_id"))(tmp_path)
    change_config(lambda config: config.pop("eos_token_id"))(tmp_path)
    assert generate.main([str(tmp_path), "", "--length", "5"]) == 2
    assert "the prompt must not be empty, as this model has no end token" in one_error_line(capsys)


def test_logits_are_bounded_as_config_json_says(tmp_path: Path) -> None:
    save_model("gemma3_text", tmp_path, 0, final_logit_softcapping=2.0)
    model = Gemma3.load(tmp_path)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        bounded = model(tokens)
        assert bounded.abs().max() < 2.0
        hidden = model.hidden(tokens)
        torch.testing.assert_close(bounded, 2.0 * torch.tanh(model.output(hidden) / 2.0))


def test_half_precision_files_are_read_in_any_dtype(tmp_path: Path) -> None:
    theirs = save_model("llama", tmp_path, 0, dtype=torch.bfloat16)
    ours, tokens = load("llama", tmp_path), torch.randint(VOCABULARY, (1, 8))
    with torch.no_grad():
        expected = theirs.float()(tokens).logits
        torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-4)


def test_a_change_of_a_tensor_changes_the_logits(tmp_path: Path) -> None:
    save_model("gemma3_text", tmp_path, 0, layer_types=["full_attention"] * 2, num_hidden_layers=2)
    tokens = torch.randint(VOCABULARY, (1, 8))
    with torch.no_grad():
        before = load("gemma3_text", tmp_path)(tokens)
        for name in load_file(tmp_path / "model.safetensors"):
            kept = (tmp_path / "model.safetensors").read_bytes()
            change_tensors(tmp_path, lambda tensors, name=name: tensors[name].mul_(-1.5))  # type: ignore[misc]
            assert not torch.allclose(load("gemma3_text", tmp_path)(tokens), before), name
            (tmp_path / "model.safetensors").write_bytes(kept)
    shutil.rmtree(tmp_path)


def encoders(tokenizer: tokenizers.Tokenizer) -> Iterator[Callable[[str], object]]:
    """Yield what reads a text by a ``tokenizer.json`` whose patterns may be any."""
    yield TextTokenizer(tokenizer).encode
    yield Unigram(tokenizer, end_id=0).encode
    yield partial(SentenceTokenizer(tokenizer, 0, 0).encode, max_length=9)


@pytest.mark.parametrize("number", range(3))
def test_a_pattern_that_needs_too_many_steps_is_an_error_and_nothing_else_is_printed(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    vocabulary = {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    encode = [*encoders(tokenizer)][number]
    assert encode("aab")
    with pytest.raises(UserError, match=r"^the tokenizer cannot read the text \(.*limit"):
        encode("a" * 40 + "b")
    os.write(2, b"still open")
    assert capfd.readouterr().err == "still open"
