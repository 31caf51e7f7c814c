"""Small models with random weights, saved by the library that published models come from."""

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pretrained import bert_sentences, generator
from pretrained.marian_model import Marian
from pretrained.t5_model import T5
from transformer_blocks.inspection.values import computing_in_float64

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
VOCABULARY, LENGTH = 40, 24
Change = Callable[[Path], object]
"""Changes the files of a folder."""

transformers.utils.logging.disable_progress_bar()


# Models


def save(model: nn.Module, folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """Give a model random weights, all different, and save it."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                is_scale = parameter.dim() == 1 and name.endswith("weight")  # of a normalisation
                nn.init.normal_(parameter, std=1.0 if is_scale else 0.3)
    published: Any = model.to(dtype).eval()
    published.save_pretrained(folder)
    return published


DECODERS, ENCODERS = ("gpt2", "llama", "qwen3", "gemma3_text"), ("bert", "distilbert", "roberta")
LOADERS = generator.FAMILIES | bert_sentences.FAMILIES | {"marian": Marian, "t5": T5}
"""Our class of each family."""
THEIRS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "bert": "BertModel",
    "distilbert": "DistilBertModel",
    "roberta": "RobertaModel",
    "marian": "MarianMTModel",
    "t5": "T5ForConditionalGeneration",
}
every_family = pytest.mark.parametrize("family", THEIRS)

SMALL = {"hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 2, "vocab_size": VOCABULARY}
GROUPED = SMALL | {"num_key_value_heads": 1, "head_dim": 6, "eos_token_id": 2}
MARIAN = {"d_model": 12, "encoder_layers": 1, "encoder_ffn_dim": 10, "encoder_attention_heads": 2}
MARIAN |= {"decoder_layers": 1, "decoder_ffn_dim": 10, "decoder_attention_heads": 2}
MARIAN |= {"pad_token_id": VOCABULARY - 1, "decoder_start_token_id": VOCABULARY - 1}
MARIAN |= {"eos_token_id": 0}
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 12, "n_layer": 1, "n_head": 2, "eos_token_id": 2, "bos_token_id": 2},
    "llama": SMALL | {"eos_token_id": 2},
    "qwen3": GROUPED,
    "gemma3_text": GROUPED | {"num_hidden_layers": 7},
    "bert": SMALL,
    "distilbert": {"dim": 12, "hidden_dim": 10, "n_layers": 1, "n_heads": 2},
    "roberta": SMALL,
    "marian": MARIAN | {"scale_embedding": True, "activation_function": "swish"},
    "t5": {"d_model": 12, "d_kv": 4, "d_ff": 10, "num_layers": 1, "num_heads": 2},
}
"""Sizes of a small model of each family; its other settings have their defaults."""


def draw_rotary(rng: random.Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {"rope_theta": rng.choice([100.0, 10000.0, 500000.0])}
    kind = rng.choice(["default", "linear", "llama3"])
    drawn["rope_type"] = kind
    if kind != "default":
        drawn["factor"] = rng.choice([2.0, 8.0])
    if kind == "llama3":
        low = rng.choice([0.5, 1.0])
        drawn |= {"original_max_position_embeddings": rng.choice([8, 16]), "low_freq_factor": low}
        drawn["high_freq_factor"] = low * rng.choice([2, 4])
    return drawn


def draw_settings(family: str, seed: int) -> dict[str, Any]:
    """Draw the settings of a small model."""
    rng = random.Random(f"{family} {seed}")
    heads, num_layers, d_ff = rng.choice([1, 2, 4]), rng.choice([2, 3]), rng.choice([16, 20])
    d_model, eps = heads * rng.choice([8, 12]), rng.choice([1e-2, 1e-6])
    drawn: dict[str, Any]
    if family == "gpt2":
        drawn = {"n_embd": d_model, "n_layer": num_layers, "n_head": heads, "n_positions": LENGTH}
        drawn |= {"n_inner": rng.choice([None, d_ff]), "layer_norm_epsilon": eps}
        drawn |= {"activation_function": rng.choice(["gelu_new", "relu"])}
    elif family == "marian":
        drawn = {"d_model": d_model, "encoder_layers": num_layers, "encoder_ffn_dim": d_ff}
        drawn |= {"decoder_layers": rng.choice([1, 2]), "decoder_ffn_dim": 40}
        drawn |= {"encoder_attention_heads": heads, "decoder_attention_heads": rng.choice([1, 2])}
        drawn |= {"activation_function": rng.choice(["swish", "relu"])}
        drawn |= {"max_position_embeddings": 40}
    elif family == "t5":
        buckets = rng.choice([4, 8, 32])
        drawn = {"d_model": rng.choice([8, 12]), "d_kv": rng.choice([4, 5, 16]), "d_ff": d_ff}
        drawn |= {"num_layers": num_layers, "num_decoder_layers": rng.choice([1, 2])}
        drawn |= {"num_heads": heads, "relative_attention_num_buckets": buckets}
        drawn |= {"relative_attention_max_distance": rng.choice([buckets, 10 * buckets])}
        drawn |= {"feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu"])}
        drawn |= {"tie_word_embeddings": rng.random() < 0.5, "decoder_start_token_id": 0}
        drawn |= {"layer_norm_epsilon": eps}
    elif family == "distilbert":
        drawn = {"dim": d_model, "n_layers": num_layers, "n_heads": heads, "hidden_dim": d_ff}
        drawn |= {"activation": rng.choice(["gelu", "relu"]), "max_position_embeddings": LENGTH}
        drawn |= {"sinusoidal_pos_embds": rng.random() < 0.5}
    else:
        drawn = {"hidden_size": d_model, "num_hidden_layers": num_layers}
        drawn |= {"num_attention_heads": heads, "intermediate_size": d_ff}
    if family in ("bert", "roberta"):
        drawn |= {"type_vocab_size": rng.choice([1, 2]), "layer_norm_eps": eps}
        drawn |= {"max_position_embeddings": LENGTH + 2 * (family == "roberta")}
        drawn |= {"hidden_act": rng.choice(["gelu", "relu"])}
    if family in ("llama", "qwen3", "gemma3_text"):
        groups = rng.choice([each for each in (1, 2, 4) if heads % each == 0])
        drawn |= {"num_key_value_heads": groups, "head_dim": rng.choice([d_model // heads, 6, 10])}
        drawn |= {"max_position_embeddings": 64, "rms_norm_eps": eps}
        drawn |= {"attention_bias": rng.random() < 0.5, "tie_word_embeddings": rng.random() < 0.5}
        drawn |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        drawn |= {"rope_parameters": draw_rotary(rng)}
    if family == "llama":
        drawn["mlp_bias"] = rng.random() < 0.5
    if family in ("qwen3", "gemma3_text"):
        drawn["sliding_window"] = rng.choice([3, 5, 40])
    if family == "qwen3" and rng.random() < 0.5:
        drawn |= {"use_sliding_window": True, "max_window_layers": rng.choice([0, 1])}
    if family == "gemma3_text":
        kinds = "sliding_attention", "full_attention"
        drawn["layer_types"] = [rng.choice(kinds) for _ in range(num_layers)]
        drawn["rope_parameters"] = {kind: draw_rotary(rng) for kind in reversed(kinds)}
        drawn["query_pre_attn_scalar"] = rng.choice([4, 9, 256])
        drawn["final_logit_softcapping"] = rng.choice([None, 5.0])
    return drawn


def save_model(
    family: str,
    folder: Path,
    seed: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    **fixed: Any,
) -> Any:
    """Save a model of transformers with drawn settings, or with small sizes if there is no seed."""
    torch.manual_seed(seed or 0)
    drawn = {} if seed is None else draw_settings(family, seed)
    settings = {"vocab_size": VOCABULARY} | SIZES[family] | drawn | fixed
    config = transformers.AutoConfig.for_model(family, **settings)
    with computing_in(dtype):
        theirs = getattr(transformers, THEIRS[family])(config)
        if family == "marian":
            theirs.final_logits_bias.normal_()
            theirs.final_logits_bias[0, 0] = 2.0  # so that some translations end early
        save(theirs, folder, dtype=dtype)
    if family == "marian" and dtype == torch.float64:  # its encoding was rounded to float32
        rates = 10000.0 ** (np.arange(0, config.d_model, 2) / config.d_model)
        angles = np.arange(config.max_position_embeddings)[:, None] / rates
        table = torch.tensor(np.concatenate((np.sin(angles), np.cos(angles)), axis=1))
        for stack in (theirs.model.encoder, theirs.model.decoder):
            stack.embed_positions.weight.data = table
    return theirs


def load(family: str, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return LOADERS[family].load(folder, dtype=dtype)


def linear_output(model: Any) -> nn.Linear:
    """Return the linear layer of a model's output."""
    return next(part for part in model.output.modules() if isinstance(part, nn.Linear))


def computing_in(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Let transformers compute all of a model in float64, whose models are partly float32."""
    return computing_in_float64() if dtype == torch.float64 else nullcontext()


def assert_same_weights(ours: nn.Module, others: nn.Module) -> None:
    expected, found = ours.state_dict(), others.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


# Files


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the weights of a folder."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def edit_json(name: str, edit: Callable[[Any], object]) -> Change:
    """Return a function that changes the content of a JSON file, which it makes if need be."""

    def write(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_bytes()) if path.exists() else {}
        edit(content)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    return write


def update(name: str, **values: object) -> Change:
    """Return a function that changes the values of a JSON file; "LOST" leaves one out."""

    def edit(content: dict[str, Any]) -> None:
        content.update(values)
        for key in [key for key, value in content.items() if value == "LOST"]:
            del content[key]

    return edit_json(name, edit)


def setting(**values: object) -> Change:
    return update("config.json", **values)


def lose(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def write(name: str, data: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(data)


def truncate(name: str, size: int) -> Change:
    """Return a function that keeps the first bytes of a file, or all but the last if negative."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def enlarge_weights(folder: Path) -> None:
    """Make the weights so large that what a model computes overflows."""
    change_tensors(folder, lambda tensors: [each.mul_(1e30) for each in tensors.values()])


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.rstrip("\n").split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]
