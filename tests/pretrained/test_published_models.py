"""Every published family computes what transformers computes from the same files."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.inference.programs import trace
from tests.pretrained.published import (
    DECODERS,
    ENCODERS,
    LENGTH,
    LLAMA3,
    THEIRS,
    TOLERANCE,
    VOCABULARY,
    assert_same_weights,
    change_tensors,
    computing_in,
    every_family,
    linear_output,
    load,
    save_model,
    setting,
)
from torch import Tensor

from transformer_blocks import RelativeBias, beam_search, greedy_search, record_attention
from transformer_blocks.generation import left_pad
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.config import ONLY, Config, LoadError
from transformer_blocks.pretrained.families import FAMILIES

CASES = [(seed, torch.float64) for seed in range(6)] + [(0, torch.float32)]


def padded(family: str, padding: int) -> Tensor:
    """Draw texts with padding: none, at the end, and for an encoder also elsewhere."""
    tokens = torch.randint(3, VOCABULARY - 1, (4, LENGTH))
    where = slice(0), slice(7, None), slice(1, None), slice(13, None)
    if family in ENCODERS:
        where = slice(0), slice(7, None), slice(-1), slice(5, 9)
    for row, part in enumerate(where):
        tokens[row, part] = padding
    return tokens


def compute(family: str, theirs: Any, ours: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute the outputs for the same texts; decoders also step through them."""
    if family in DECODERS:
        tokens = torch.randint(3, VOCABULARY, (3, LENGTH))
        with computing_in(dtype):
            expected = theirs(tokens).logits
        found, (steps, _) = ours(tokens), ours.start(tokens[:, :11].tolist())
        stepped = torch.stack([steps.step(column) for column in tokens[:, 10:].unbind(1)], dim=1)
        torch.testing.assert_close(stepped, found[:, 10:], rtol=0, atol=TOLERANCE[dtype])
        return found, expected
    padding = ours.padding_id
    tokens = padded(family, padding)
    real = tokens != padding
    if family in ENCODERS:
        with computing_in(dtype):
            expected = theirs(tokens, attention_mask=real.long()).last_hidden_state
        return ours(tokens)[real], expected[real]
    target = torch.randint(3, VOCABULARY - 1, (4, 15))
    with computing_in(dtype):
        expected = theirs(
            input_ids=tokens, attention_mask=real.long(), decoder_input_ids=target
        ).logits
    steps, _ = ours.start(tokens.tolist())
    found = torch.stack([steps.step(column) for column in target.unbind(1)], dim=1)
    torch.testing.assert_close(ours(tokens, target), found, rtol=0, atol=TOLERANCE[dtype])
    if family == "marian":  # which never generates padding
        assert found[:, :, padding].isneginf().all()
        found, expected = found[:, :, :padding], expected[:, :, :padding]
    return found, expected


@pytest.mark.parametrize(("seed", "dtype"), CASES, ids=str)
@every_family
def test_outputs_equal_those_of_transformers(
    family: str, seed: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs = save_model(family, tmp_path, seed, dtype=dtype)
    with torch.no_grad():
        found, expected = compute(family, theirs, load(family, tmp_path, dtype), dtype)
    assert found.dtype == expected.dtype == dtype
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE[dtype])


def load_with_few_settings(family: str, folder: Path) -> Any:
    """Load a model without the settings that have their default, except those that are required."""
    path = folder / "config.json"
    published = json.loads(path.read_text())
    defaults = transformers.AutoConfig.for_model(published["model_type"]).to_dict()
    few = {name for name, each in published.items() if each != defaults.get(name)}
    few = few - {"layer_types"} | {"model_type"}  # those of Gemma depend on the number of layers
    for _ in published:
        path.write_text(json.dumps({name: published[name] for name in few}))
        try:
            return load(family, folder, torch.float64)
        except LoadError as error:
            few |= {*re.findall(r": (\w+) must ", str(error))}
    raise AssertionError(f"a complete file is refused, or its settings by another name: {few}")


@every_family
def test_a_setting_that_is_left_out_is_required_or_has_the_default_of_transformers(
    family: str, tmp_path: Path
) -> None:
    theirs = save_model(family, tmp_path, dtype=torch.float64)
    ours = load_with_few_settings(family, tmp_path)
    with torch.no_grad():
        found, expected = compute(family, theirs, ours, torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def draw_prompts(family: str) -> tuple[list[list[int]], Tensor, Tensor]:
    """Draw prompts of unequal length; return them, them padded, and where no padding is."""
    if family == "t5":
        tokens = padded(family, 0)
        return tokens.tolist(), tokens, tokens != 0
    prompts = [torch.randint(10, VOCABULARY, (length,)).tolist() for length in (9, 1, 4, 7)]
    tokens, lengths = left_pad(prompts)
    return prompts, tokens, torch.arange(9) >= 9 - torch.tensor(lengths)[:, None]


def search_best(ours: Any, way: str, prompts: list[list[int]], ends: list[int], beams: int) -> Any:
    """Return the most probable hypotheses; transformers does not prefer those that are finished."""
    options: dict[str, Any] = {"max_length": 15, "n_best": beams, "length_penalty": 0.0}
    if way == "program":
        found = trace(ours, beam_size=beams, end_id=ends).generate(prompts, **options)
    elif beams == 1:
        return ours.generate(prompts, greedy_search, end_id=ends, max_length=15)
    else:
        found = ours.generate(prompts, beam_search, end_id=ends, beam_size=beams, **options)
    return [max(each, key=lambda one: one.score) for each in found]


@pytest.mark.parametrize("family", [*DECODERS, "t5"])
def test_greedy_decoding_and_beam_search_find_the_tokens_of_transformers(
    family: str, tmp_path: Path
) -> None:
    ended, ends = 0, {"gpt2": [2], "t5": [1]}.get(family, [2, 5, 9])
    for seed, beams in product(range(2), (1, 3)):
        end = ends if len(ends) > 1 else ends[0]
        theirs = save_model(family, tmp_path, seed, pad_token_id=0, eos_token_id=end)
        ours = load(family, tmp_path)
        prompts, tokens, is_token = draw_prompts(family)
        expected = theirs.generate(
            tokens,
            attention_mask=is_token.long(),
            do_sample=False,
            num_beams=beams,
            early_stopping=beams > 1,
            length_penalty=0.0 if beams > 1 else None,
            max_new_tokens=15,
        )[:, 1 if family == "t5" else 9 :]
        for way in ("trained", "prepared", "program"):
            model = prepare(ours) if way == "prepared" else ours
            found = search_best(model, way, prompts, ends, beams)
            for generation, row in zip(found, expected.tolist(), strict=True):
                length = len(generation.tokens)
                assert generation.tokens == row[:length], way
                is_end = any(each in ends for each in row[: length + 1])
                assert generation.finished == is_end, way
                ended += generation.finished
    assert ended or family == "gpt2"  # which has a single end token here


# Older forms of settings and files

LINEAR = {"rope_type": "linear", "factor": 4.0}
ROTARY_PLACES: tuple[dict[str, Any], ...] = (
    {"rope_scaling": LINEAR | {"rope_theta": 7.0}, "rope_theta": 50.0},
    {"rope_scaling": LLAMA3, "rope_theta": 500.0},
    {"rope_parameters": {}, "rope_theta": 7.0},
    {"rope_scaling": {}, "rope_theta": 7.0},
    {"rope_theta": 3580165449.0},  # of Llama-3-8B-Gradient-1048k
)
KINDS = dict.fromkeys(("full_attention", "sliding_attention"), LINEAR)
WINDOWS = {"sliding_window": 3, "num_hidden_layers": 3, "layer_types": None}
QWEN_WINDOWS = WINDOWS | {"use_sliding_window": True}  # or the window is not saved
LOCAL = {"gemma3_text": {"rope_local_base_freq": 9.0}}
FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        (family, {}, {"rope_parameters": "LOST"} | LOCAL.get(family, {}) | place)
        for family, place in product(("llama", "gemma3_text"), ROTARY_PLACES)
    ),
    ("llama", {}, {"rope_parameters": LINEAR, "rope_theta": 7.0}),
    ("gemma3_text", {}, {"rope_parameters": KINDS, "rope_theta": 7.0, "rope_local_base_freq": 9.0}),
    (  # before Gemma 3
        *("llama", {}),
        {
            "rope_parameters": "LOST",
            "rope_scaling": {"type": "linear", "factor": 8.0},
            "rope_theta": 500.0,
        },
    ),
    ("gemma3_text", WINDOWS, {"sliding_window_pattern": 2, "_sliding_window_pattern": 3}),
    ("gemma3_text", WINDOWS, {"sliding_window_pattern": 2, "layer_types": "LOST"}),
    ("gpt_oss", {"sliding_window": 3}, {"layer_types": "LOST"}),
    *(("qwen3", QWEN_WINDOWS, {"max_window_layers": i, "layer_types": "LOST"}) for i in range(3)),
    (  # the head size follows from the others
        *("llama", {"hidden_size": 24, "num_attention_heads": 6, "head_dim": 4}),
        {"head_dim": "LOST"},
    ),
    (
        *("t5", {"tie_word_embeddings": False, "num_decoder_layers": None}),
        {"scale_decoder_outputs": "LOST", "num_decoder_layers": "LOST"},
    ),
]
"""Settings with which a model is saved, and those that are then changed to an older form."""


@pytest.mark.parametrize(("family", "saved", "older"), FORMS, ids=str)
def test_older_forms_of_settings_are_read_as_transformers_reads_them(
    family: str, saved: dict[str, Any], older: dict[str, Any], tmp_path: Path
) -> None:
    save_model(family, tmp_path, 0, **saved)
    setting(**older)(tmp_path)
    assert_read_as_by_transformers(family, tmp_path)


def assert_read_as_by_transformers(family: str, folder: Path) -> None:
    """Compare the outputs of a model whose files were changed."""
    theirs = getattr(transformers, THEIRS[family]).from_pretrained(folder).eval()
    with torch.no_grad():
        found, expected = compute(family, theirs, load(family, folder), torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


OLD_NAMES = {
    "gpt2": [("transformer.", ""), ("", "")],
    "llama": [("model.", "")],
    "bert": [("", "bert."), ("LayerNorm.weight", "LayerNorm.gamma"), ("Norm.bias", "Norm.beta")],
    "distilbert": [("", "distilbert.")],
    "roberta": [("", "roberta.")],
    "t5": [("", "")],
}
LEFT_OUT = {
    "gpt2": ("h.0.attn.bias", "h.0.attn.masked_bias"),
    "llama": ("layers.0.self_attn.rotary_emb.inv_freq",),
    "bert": ("cls.predictions.bias", "classifier.bias", "qa_outputs.bias"),
    "distilbert": ("vocab_transform.weight", "pre_classifier.bias", "qa_outputs.bias"),
    "roberta": ("lm_head.dense.weight", "classifier.out_proj.bias", "roberta.pooler.dense.bias"),
    "t5": ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
}


@pytest.mark.parametrize("family", OLD_NAMES)
def test_names_of_older_files_and_of_files_with_a_head_are_understood(
    family: str, tmp_path: Path
) -> None:
    save_model(family, tmp_path)
    expected = load(family, tmp_path)

    def age(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            aged = name
            for new, old in OLD_NAMES[family]:
                aged = aged.replace(new, old, 1)
            tensors[aged] = tensors.pop(name)
        tensors.update({name: torch.ones(3) for name in LEFT_OUT[family]})

    change_tensors(tmp_path, age)
    assert_same_weights(load(family, tmp_path), expected)


TIED = [
    ("gpt2", "transformer.wte.weight", "lm_head.weight"),
    ("qwen3", "model.embed_tokens.weight", "lm_head.weight"),
    ("bert", "embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
    ("t5", "shared.weight", "encoder.embed_tokens.weight"),
    ("marian", "model.shared.weight", "lm_head.weight"),
]


@pytest.mark.parametrize(("family", "name", "copy"), TIED)
def test_the_copies_of_a_tied_tensor_must_be_equal(
    family: str, name: str, copy: str, tmp_path: Path
) -> None:
    save_model(family, tmp_path, tie_word_embeddings=True)
    change_tensors(tmp_path, lambda tensors: tensors.update({copy: tensors[name].double()}))
    model = load(family, tmp_path)
    if family != "bert":
        embedding = model.embedding if family in DECODERS else model.target_embedding
        assert linear_output(model).weight is embedding.weight
    change_tensors(tmp_path, lambda tensors: tensors[copy].add_(1e-3))
    with pytest.raises(LoadError, match=f"'{name}' and '{copy}' must be equal, but differ"):
        load(family, tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_of_its_own_is_used_if_the_file_of_a_t5_has_one(
    tied: bool, tmp_path: Path
) -> None:
    save_model("t5", tmp_path, 0, tie_word_embeddings=tied)
    own = 0.3 * torch.randn_like(load_file(tmp_path / "model.safetensors")["shared.weight"])
    change_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": own}))
    ours = load("t5", tmp_path)
    assert torch.equal(linear_output(ours).weight, own)
    assert ours.output[0].factor == (own.shape[1] ** -0.5 if tied else 1.0)
    change_tensors(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    ours = load("t5", tmp_path)
    assert linear_output(ours).weight is ours.target_embedding.weight


def test_all_layers_of_a_t5_stack_share_one_table_and_its_weights_can_be_recorded(
    tmp_path: Path,
) -> None:
    save_model("t5", tmp_path, 2, num_layers=3, num_decoder_layers=2)
    ours = load("t5", tmp_path)
    assert len({id(part) for part in ours.modules() if isinstance(part, RelativeBias)}) == 2
    source, target = padded("t5", 0)[:1], torch.randint(3, VOCABULARY, (1, 5))
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        with record_attention(ours) as found:
            ours(source, target)
        expected = theirs(input_ids=source, decoder_input_ids=target, output_attentions=True)
    assert len(found) == 3 + 2 * 2
    for stack, name, weights in (
        ("encoder", "self_attention", expected.encoder_attentions),
        ("decoder", "cross_attention", expected.cross_attentions),
    ):
        for layer, wanted in enumerate(weights):
            (recorded,) = found[f"{stack}.layers.{layer}.{name}"]
            torch.testing.assert_close(recorded, wanted, rtol=0, atol=1e-5)


def test_half_precision_files_are_read_in_any_dtype(tmp_path: Path) -> None:
    save_model("llama", tmp_path, 0, dtype=torch.bfloat16)
    setting(dtype="float32")(tmp_path)
    assert_read_as_by_transformers("llama", tmp_path)


# What is refused


@every_family
def test_a_tensor_that_does_not_fit_is_refused_by_name(family: str, tmp_path: Path) -> None:
    save_model(family, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    optional = r"shared|embed|wte|lm_head|pooler"  # a tied tensor may be missing
    needed = sorted(name for name in tensors if not re.search(optional, name))
    for name in (needed[0], needed[-1]):
        wrong, wanted = tensors[name].flatten(), tensors[name].shape
        nothing, there = re.escape(name.split(".", 1)[-1]), f"tensor '{re.escape(name)}'"
        shape = rf"must fit shape \(.*\) by config.json, got \({len(wrong) + 1},\)"
        nan = wrong.index_fill(0, torch.tensor([0]), torch.nan).view(wanted)
        damages: list[tuple[dict[str, Tensor], str]] = [
            ({name: torch.cat((wrong, wrong[:1]))}, f"{there} {shape}"),
            ({name: nan}, f"{there} holds NaN or infinity"),
            ({name: tensors[name].double() + 1e39}, f"{there} holds NaN or infinity"),
            ({name: tensors[name].long()}, f"{there} must be floating-point, got torch.int64"),
            ({f"{name}.x": torch.ones(1)}, f"'{re.escape(name)}.x', which the model does not use"),
            ({}, rf"lacks tensor '.*{nothing}'"),
        ]
        for change, message in damages:
            changed = tensors | change
            if not change:
                del changed[name]
            change_tensors(tmp_path, lambda old, new=changed: (old.clear(), old.update(new)))  # type: ignore[misc]
            with pytest.raises(LoadError, match=message):
                load(family, tmp_path)


REFUSED: dict[str, tuple[tuple[str, Any], ...]] = {
    "gpt2": (
        *(("num_attention_heads", 1), ("num_hidden_layers", 9), ("n_layer", 10**6), ("n_head", 5)),
        *(("activation_function", "gelu_fast"), ("n_embd", True), ("tie_word_embeddings", False)),
    ),
    "llama": (
        *(("head_dim", 7), ("mlp_bias", "no"), ("hidden_act", "mish"), ("rms_norm_eps", "0")),
        *(("num_key_value_heads", 3), ("num_hidden_layers", 2**28)),
        *(("per_layer_config", {"0": {"x": 1}}), ("quantization_config", {"bits": 4})),
        *(("layer_types", ["full_attention", "sliding_attention"]), ("rope_scaling", LINEAR)),
        *(
            ("rope_parameters", settings)
            for settings in (
                *({"rope_type": "dynamic"}, {"rope_type": "linear", "factor": 0.5}),
                *({"rope_type": "linear"}, {"rope_theta": 1e-320}, {"partial_rotary_factor": 0.5}),
                LLAMA3 | {"low_freq_factor": 4.0},
            )
        ),
    ),
    "qwen3": (
        *(("use_sliding_window", 1), ("max_window_layers", -1), ("attention_bias", None)),
        ("layer_types", ["full_attention", "sliding_attention"]),
    ),
    "qwen3_moe": (
        *(("num_experts_per_tok", 5), ("mlp_only_layers", [0.5]), ("norm_topk_prob", 1)),
        *(("decoder_sparse_step", 0), ("moe_intermediate_size", 0)),
    ),
    "gpt_oss": (
        *(("rope_parameters", None), ("num_experts_per_tok", 5), ("hidden_act", "gelu")),
        *(("layer_types", ["full_attention"]), ("swiglu_limit", 0), ("swiglu_alpha", "x")),
        ("attention_bias", 1),
    ),
    "deepseek_v3": (
        *(("n_group", 3), ("head_dim", 8), ("num_key_value_heads", 1)),
        *(("qk_nope_head_dim", 8), ("norm_topk_prob", False)),
    ),
    "gemma3_text": (
        *(("layer_types", ["full_attention"]), ("final_logit_softcapping", "x")),
        *(("sliding_window", None), ("query_pre_attn_scalar", 0), ("hidden_activation", None)),
        ("attn_logit_softcapping", 50.0),
    ),
    "bert": (
        *(("num_attention_heads", 5), ("num_hidden_layers", 0), ("vocab_size", 10**13)),
        *(("layer_norm_eps", 10**400), ("hidden_act", "mish")),
    ),
    "distilbert": (
        *(("n_layers", 2**28), ("num_attention_heads", 3), ("num_hidden_layers", 9)),
        *(("n_heads", 5), ("activation", "mish"), ("pad_token_id", -1)),
    ),
    "roberta": (("max_position_embeddings", 2), ("layer_norm_eps", True)),
    "marian": (
        *(("scale_embedding", False), ("decoder_start_token_id", 5), ("pad_token_id", None)),
        *(("num_attention_heads", 1), ("num_hidden_layers", 9), ("activation_function", "mish")),
        *(("encoder_layers", 10**6), ("max_position_embeddings", 10**8)),
        *(("tie_word_embeddings", False), ("decoder_vocab_size", 9)),
    ),
    "t5": (
        *(("relative_attention_num_buckets", 7), ("feed_forward_proj", "gated-mish")),
        *(("dense_act_fn", "silu"), ("is_gated_act", True), ("num_layers", 2**28)),
        *(("num_hidden_layers", 9), ("num_attention_heads", 9), ("decoder_start_token_id", 2**20)),
        ("scale_decoder_outputs", "yes"),
    ),
}
"""Values of settings that are not implemented, or contradict others."""


@every_family
def test_a_setting_that_is_not_implemented_is_refused_by_name(family: str, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"layer_types": ["sliding_attention"] * 7}
    save_model(family, tmp_path, **(kinds if family == "gemma3_text" else {}))
    load(family, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    config = Config("config.json", content)
    FAMILIES[family](config)
    wrong = [(name, not only) for name, only in ONLY.items() if name not in config.known]
    null = [
        (name, None) for name, only in ONLY.items() if only is True and name not in config.known
    ]
    for name, value in (*REFUSED[family], *wrong, *null):
        (tmp_path / "config.json").write_text(json.dumps(content | {name: value}))
        with pytest.raises(LoadError, match=rf"config\.json: {name}(: \w+)? must .*"):
            load(family, tmp_path)


LARGE = {
    "bert": ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"),
    "llama": ("vocab_size", "hidden_size", "intermediate_size", "head_dim"),
}


@pytest.mark.parametrize("family", LARGE)
def test_a_size_beyond_any_memory_is_compared_with_the_files_first(
    family: str, tmp_path: Path
) -> None:
    save_model(family, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    for name in LARGE[family]:
        size = {name: 2**27 if name == "head_dim" else 2**28}
        (tmp_path / "config.json").write_text(json.dumps(content | size))
        with pytest.raises(LoadError, match=r"by config\.json, got \("):
            load(family, tmp_path)


def test_a_model_of_another_family_is_named_before_its_other_files_are_missed(
    tmp_path: Path,
) -> None:
    for settings, found in (({"model_type": "gptj"}, "'gptj'"), ({}, "None")):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        with pytest.raises(LoadError, match=rf"config.json: model_type must be .*, got {found}$"):
            load("", tmp_path)


# One setting changed

CONFIGS = {family: transformers.AutoConfig.for_model(family).to_dict() for family in THEIRS}
NAMES_OF_SETTINGS = sorted({*ONLY, *(name for each in CONFIGS.values() for name in each)})
ROTARY_NAMES = (*LLAMA3, "type", "beta_fast", "mscale", "mscale_all_dim", "partial_rotary_factor")
VALUES: tuple[Any, ...] = (True, 3, None, False, 0, 1, 2, 0.5, 7.0, "relu", "x", [0], {"x": 1})


def change_one(content: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return settings of which one is changed; its name may be that of an object and a part."""
    outer, _, inner = name.partition(".")
    if not inner:
        return content | {name: value}
    return content | {outer: (content.get(outer) or {}) | {inner: value}}


def compute_changed(family: str, folder: Path, theirs: Any, padding: int | None) -> Tensor | None:
    """Return what transformers computes with changed settings; None if it cannot."""
    tokens = torch.arange(3, 27).view(2, 12)
    options: dict[str, Any] = {}
    if padding is not None:
        options["attention_mask"] = (tokens != padding).long()
    if family in ("t5", "marian"):
        options["decoder_input_ids"] = tokens[:, :7]
    try:
        changed = type(theirs)(transformers.AutoConfig.from_pretrained(folder))
        changed.load_state_dict(theirs.state_dict())
        changed.config._experts_implementation = "eager"
        found = changed.eval()(input_ids=tokens, **options)
        return found.last_hidden_state if family in ENCODERS else found.logits
    except Exception:  # it fails in dozens of ways
        return None


def silent_changes(family: str, folder: Path, number: int) -> tuple[int, list[tuple[str, Any]]]:
    """Change each setting to some values; return how many, and those that are silently ignored."""
    theirs, path = save_model(family, folder), folder / "config.json"
    content, tokens = json.loads(path.read_text()), torch.arange(3, 27).view(2, 12)
    names = [name for name in NAMES_OF_SETTINGS if name not in ("model_type", "rope_parameters")]
    if "rope_parameters" in content:
        names += [f"rope_parameters.{name}" for name in ROTARY_NAMES]
    changes, silent = [*product(names, VALUES[:number])], []
    for name, value in changes:
        path.write_text(json.dumps(change_one(content, name, value)))
        try:
            ours = load(family, folder)
        except LoadError:
            continue
        padding = None if family in DECODERS else ours.padding_id
        with torch.no_grad():
            expected = compute_changed(family, folder, theirs, padding)
            try:
                found = ours(tokens, tokens[:, :7]) if family in ("t5", "marian") else ours(tokens)
            except ValueError:  # longer than the changed model allows
                continue
        if expected is not None and family == "marian":
            found = found.where(found.isfinite(), expected)
        is_equal = expected is None or torch.allclose(found, expected, atol=1e-3)
        if not is_equal and not (padding is not None and (tokens == padding).any()):
            silent.append((name, value))
    return len(changes), silent


@pytest.mark.parametrize(
    ("family", "number"),
    [("distilbert", 1), *(pytest.param(each, 2, marks=pytest.mark.slow) for each in THEIRS)],
)
def test_no_changed_setting_is_silently_ignored(family: str, number: int, tmp_path: Path) -> None:
    count, silent = silent_changes(family, tmp_path, number)
    assert count > 130
    assert not silent
