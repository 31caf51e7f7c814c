"""Small models with random weights, saved by the library that published models come from."""

import io
import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import Tensor, nn

from transformer_blocks.inspection.record.values import Float64Mode
from transformer_blocks.pretrained.families import load_model

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


DECODERS = "gpt2", "llama", "qwen3", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3_text"
ENCODERS = ("bert", "distilbert", "roberta")
THEIRS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "bert": "BertModel",
    "distilbert": "DistilBertModel",
    "roberta": "RobertaModel",
    "marian": "MarianMTModel",
    "t5": "T5ForConditionalGeneration",
}
every_family = pytest.mark.parametrize("family", THEIRS)

NAMES = {
    "gpt2": ("n_embd", "n_layer", "n_head", "n_inner"),
    "distilbert": ("dim", "n_layers", "n_heads", "hidden_dim"),
    "marian": ("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
    "t5": ("d_model", "num_layers", "num_heads", "d_ff"),
}
USUAL = "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"
"""Names of the hidden size, the numbers of layers and heads, and the inner size."""

ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MARIAN = {"decoder_layers": 1, "decoder_ffn_dim": 10, "decoder_attention_heads": 2}
MARIAN |= dict.fromkeys(("pad_token_id", "decoder_start_token_id"), VOCABULARY - 1)
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"eos_token_id": 2, "bos_token_id": 2},
    "llama": ENDS,
    "qwen3_moe": ENDS
    | {"num_key_value_heads": 1, "head_dim": 6, "num_experts": 4, "num_experts_per_tok": 2}
    | {"moe_intermediate_size": 5},
    "qwen3": ENDS | {"num_key_value_heads": 1, "head_dim": 6},
    "gpt_oss": ENDS
    | {"num_key_value_heads": 1, "head_dim": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": ENDS
    | {"num_key_value_heads": 2, "moe_intermediate_size": 5, "n_routed_experts": 8}
    | {"num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "kv_lora_rank": 8}
    | {"q_lora_rank": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "qk_nope_head_dim": 6}
    | {"first_k_dense_replace": 1},
    "gemma3_text": ENDS | {"num_key_value_heads": 1, "head_dim": 6, "num_hidden_layers": 7},
    "marian": MARIAN | {"eos_token_id": 0, "scale_embedding": True, "activation_function": "swish"},
    "t5": {"d_kv": 4},
}
"""Further settings of a small model; all others have their defaults."""

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROTARY = [
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_type": "linear", "rope_theta": 500000.0, "factor": 8.0},
    LLAMA3 | {"rope_theta": 10000.0},
    LLAMA3 | {"rope_theta": 500.0, "low_freq_factor": 0.5},
]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
YARN |= {"rope_theta": 1000.0}
YARNS = [
    YARN,
    YARN | {"truncate": False, "beta_fast": 8.0, "beta_slow": 0.5, "factor": 32.0},
    YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    YARN | {"attention_factor": 1.3},
]
WINDOW, WHOLE = "sliding_attention", "full_attention"
EPS, EITHER = [1e-2, 1e-6], [True, False]
Choices = dict[str, list[Any]]
BERT: Choices = {"hidden_act": ["gelu", "relu"], "type_vocab_size": [1, 2], "layer_norm_eps": EPS}
LLAMA: Choices = {"num_attention_heads": [2, 4], "num_key_value_heads": [1, 2]}
LLAMA |= {"head_dim": [6, 10, 16], "max_position_embeddings": [64], "rms_norm_eps": EPS}
LLAMA |= {"attention_bias": EITHER, "tie_word_embeddings": EITHER, "rope_parameters": ROTARY}
GEMMA3: Choices = {"sliding_window": [3, 5, 40], "num_hidden_layers": [2]}
GEMMA3 |= {"layer_types": [[WINDOW, WHOLE], [WHOLE, WINDOW], [WINDOW] * 2]}
GEMMA3 |= {"rope_parameters": [{WINDOW: ROTARY[i], WHOLE: ROTARY[i - 1]} for i in range(4)]}
GEMMA3 |= {"query_pre_attn_scalar": [4, 9, 256], "final_logit_softcapping": [None, 5.0]}
T5_SIZES: Choices = {"d_kv": [4, 5, 16], "num_decoder_layers": [1, 2]}
T5_SIZES |= {"relative_attention_num_buckets": [4, 8, 32], "layer_norm_epsilon": EPS}
T5_SIZES |= {"relative_attention_max_distance": [32, 100], "decoder_start_token_id": [0]}
T5_SIZES |= {"feed_forward_proj": ["relu", "gated-gelu", "gated-silu"]}
CHOICES: dict[str, Choices] = {
    "gpt2": {
        "n_positions": [LENGTH],
        "n_inner": [None, 20],
        "layer_norm_epsilon": EPS,
        "activation_function": ["gelu_new", "relu"],
    },
    "llama": LLAMA | {"mlp_bias": EITHER},
    "qwen3": LLAMA
    | {"sliding_window": [3, 5], "use_sliding_window": EITHER, "max_window_layers": [0, 1]},
    "qwen3_moe": LLAMA
    | {"num_experts": [3, 6], "num_experts_per_tok": [1, 2, 3], "moe_intermediate_size": [5, 8]}
    | {"norm_topk_prob": EITHER, "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0], [1]]},
    "gpt_oss": LLAMA
    | {"num_local_experts": [3, 6], "num_experts_per_tok": [1, 2, 3], "sliding_window": [3, 5, 40]}
    | {"swiglu_alpha": [1.702, 1.0], "swiglu_limit": [0.4, 7.0], "rope_parameters": YARNS},
    "deepseek_v3": {
        **{name: LLAMA[name] for name in ("rms_norm_eps", "attention_bias")},
        "num_attention_heads": [2],
        "q_lora_rank": [None, 6],
        "qk_rope_head_dim": [2, 8],
        "v_head_dim": [4, 6],
        "n_shared_experts": [1, 2],
        "n_routed_experts": [8, 12],
        "num_experts_per_tok": [1, 2],
        "n_group": [1, 2, 4],
        "topk_group": [1],
        "first_k_dense_replace": [0, 1, 5],
        "rope_parameters": [*YARNS, ROTARY[0], ROTARY[2]],
        "rope_interleave": EITHER,
        "routed_scaling_factor": [1.0, 2.5],
        "tie_word_embeddings": EITHER,
    },
    "gemma3_text": LLAMA | GEMMA3,
    "bert": BERT | {"max_position_embeddings": [LENGTH]},
    "distilbert": {
        "activation": ["gelu", "relu"],
        "max_position_embeddings": [LENGTH],
        "sinusoidal_pos_embds": EITHER,
    },
    "roberta": BERT | {"max_position_embeddings": [LENGTH + 2]},
    "marian": {
        "decoder_layers": [1, 2],
        "decoder_ffn_dim": [40],
        "decoder_attention_heads": [1, 2],
        "activation_function": ["swish", "relu"],
        "max_position_embeddings": [40],
    },
    "t5": T5_SIZES | {"tie_word_embeddings": EITHER},
}
"""Values of settings to draw from, besides the sizes that all families have."""


def draw_settings(family: str, seed: int) -> dict[str, Any]:
    """Draw the settings of a small model; the seeds 0 to 3 have all values of each."""
    sizes = zip(NAMES.get(family, USUAL), ([16, 24], [2, 3], [1, 2, 4], [16, 20]), strict=True)
    drawn = {}
    for name, values in (dict(sizes) | CHOICES[family]).items():
        rounds, place = divmod(seed, len(values))
        order = random.Random(f"{family} {name} {rounds}").sample(values, len(values))
        drawn[name] = order[place]
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
    sizes = dict(zip(NAMES.get(family, USUAL), (12, 2, 2, 10), strict=True))
    drawn = {} if seed is None else draw_settings(family, seed)
    settings = {"vocab_size": VOCABULARY} | sizes | SIZES.get(family, {}) | drawn | fixed
    if family == "deepseek_v3":
        settings["qk_nope_head_dim"] = settings["v_head_dim"]  # as in all published models
    config = transformers.AutoConfig.for_model(family, **settings)
    with computing_in(dtype):
        theirs = getattr(transformers, THEIRS[family])(config)
        theirs.config._experts_implementation = "eager"  # the others need float32
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
    return load_model(folder, dtype)[0]


def linear_output(model: Any) -> nn.Linear:
    """Return the linear layer of a model's output."""
    return next(part for part in model.output.modules() if isinstance(part, nn.Linear))


def computing_in(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Let transformers compute all of a model in float64, whose models are partly float32."""
    return Float64Mode() if dtype == torch.float64 else nullcontext()


def assert_same_weights(ours: nn.Module, others: nn.Module) -> None:
    expected, found = ours.state_dict(), others.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


# Folders with a tokenizer

TEXTS = (
    *("the cat", "The  cat\tsat on a mat. ", "", "東京の犬は e\u0301é", "👍🏽\n\n🐈", "it's 2024"),
    *("</s> <s><pad>the", "a▁b", "the cat on the mat and the dog"),
)
MERGES = [("t", "h"), ("th", "e"), ("c", "a"), ("ca", "t"), ("d", "o"), ("do", "g")]
WORDS = [*map("".join, MERGES), "on", "mat", "▁the", "▁cat", "##t", "##s", "##at", "##京"]
LETTERS = {*pre_tokenizers.ByteLevel.alphabet(), *"".join(TEXTS), "▁"} - {*" 👍🏽🐈"}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # of characters without a token
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *sorted(LETTERS), *BYTES, *WORDS]
AROUND = dict.fromkeys(ENCODERS, "<s> $A </s>") | dict.fromkeys(("llama", "gemma3_text"), "<s> $A")


def make_tokenizer(family: str) -> tokenizers.Tokenizer:
    """Make a tokenizer of the kind that a family has."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    model: Any = models.BPE(ids, MERGES)
    split: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    decoder: Any = decoders.ByteLevel()
    if family in ("bert", "distilbert"):
        model = models.WordPiece(ids, unk_token="<unk>")
        split, decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    elif family == "t5":
        model = models.Unigram([(token, -1.0) for token in TOKENS], 3, False)
        split, decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    elif family == "gemma3_text":
        model = models.BPE(ids, MERGES, byte_fallback=True, unk_token="<unk>")
        split = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        decoder = decoders.Sequence(parts)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoder
    tokenizer.post_processor = processors.TemplateProcessing(
        single=(AROUND | {"t5": "$A </s>"}).get(family, "$A"),
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    tokenizer.add_special_tokens(TOKENS[:4])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


JAPANESE = [
    f"{who}は{what}{verb}。"
    for who in ("私", "彼", "彼女", "太郎", "先生")
    for what in ("本を", "手紙を", "ｶﾞﾗｽを", "Tokyoで新聞を")
    for verb in ("読みます", "読みません", "書きました")
]


def save_sentence_pieces(folder: Path) -> int:
    """Save Marian's tokenizer, and return the size of its vocabulary."""
    found = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*JAPANESE, "I read the book!"]),
        model_writer=found,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = SentencePieceProcessor(model_proto=found.getvalue())
    known = [pieces.id_to_piece(number) for number in range(3, pieces.vocab_size() - 1)]
    tokens = ["</s>", "<unk>", ">>jpn<<", *known, "<pad>"]  # without the last piece
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(found.getvalue())
    numbers = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    return len(tokens)


def save_folder(family: str, folder: Path) -> Path:
    """Save a model with its tokenizer, whose vocabulary is smaller than the model's."""
    folder.mkdir()
    size, ids = len(TOKENS), {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    if family == "marian":
        size = save_sentence_pieces(folder)
        ids = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), size - 1)
    else:
        make: Any = transformers.PreTrainedTokenizerFast
        options = {"pad_token": "<pad>", "unk_token": "<unk>", "model_max_length": 20}
        make(tokenizer_object=make_tokenizer(family), **options).save_pretrained(folder)
    settings: dict[str, Any] = ids | {"vocab_size": size + 9 * (family != "marian")}
    save_model(family, folder, **settings)
    return folder


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
