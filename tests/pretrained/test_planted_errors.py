"""Errors that are planted in models are found by ``first_difference``, and their causes shown."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from tests.pretrained.published import VOCABULARY, every_family, load, save_model
from torch import Tensor, nn

from coursework.museum.exhibit import exhibits
from coursework.museum.models import LEFT_PADDED, PADDED, TOKENS
from transformer_blocks import PreNorm
from transformer_blocks.inspection import first_difference
from transformer_blocks.interop import from_torch

GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.randint(3, VOCABULARY - 1, (3, 12), generator=GENERATOR)
X = torch.randn(2, 6, 16, generator=GENERATOR)
UNTIED = torch.randn(VOCABULARY, 12, generator=GENERATOR)
IS_REAL = torch.arange(6) < torch.tensor([[6], [4]])
STACKS = IDS, IDS[:, :5]
THEIR_STACKS = {"input_ids": IDS, "decoder_input_ids": IDS[:, :5], "use_cache": False}

MUSEUM: dict[str, tuple[Any, str]] = {
    "batch_taken_as_sequence": (X, "setting: batch_first"),
    "bidirectional_mask_in_decoder": (PADDED, "mask: .*causal"),
    "boolean_mask_added": ((X, IS_REAL), "mask: .*infinity"),
    "causal_mask_left_to_the_kernel": (X, "mask: .*causal"),
    "class_read_at_the_last_position": (PADDED, ""),
    "copied_layers": (TOKENS, "weights"),
    "cross_attention_without_source_mask": ((PADDED, TOKENS), ""),
    "dropout_in_evaluation": (TOKENS, "dropout"),
    "fully_masked_row": (
        (PADDED, torch.tensor([[False], [True]]).expand(2, 6)),
        "mask: .*fully masked",
    ),
    "heads_cut_without_transpose": (torch.cat([X, X[:, :2]], dim=1), "heads: .*transposed"),
    "heads_joined_without_transpose": (TOKENS, "heads: .*transposed"),
    "inverted_padding_mask": ((X, IS_REAL), "polarity"),
    "key_heads_tiled": (X, "heads: .*repeated"),
    "last_token_counted_from_the_left": (LEFT_PADDED, ""),
    "length_read_from_end_tokens": ((PADDED, (PADDED != 0).long()), ""),
    "mask_changed_by_a_move": (PADDED, "mask: .*causal"),
    "masked_scores_near_zero": (X, "mask: .*infinity"),
    "mean_over_padding": ((PADDED, PADDED != 0), ""),
    "padding_id_of_zero": (PADDED, "setting: padding_id"),
    "padding_mask_from_vectors": (PADDED, ""),
    "padding_mask_over_queries": ((PADDED, PADDED == 0), "mask: queries and keys"),
    "positions_along_the_batch": (PADDED, ""),
    "positions_through_left_padding": ((LEFT_PADDED, (LEFT_PADDED != 0).long()), ""),
    "rotary_pairs": (X, "rotary: in heads of 16, rows must go from halves to pairs"),
    "scale_of_all_heads": (X, "scale: .* 2$"),
    "scores_multiplied_by_the_mask": ((X, IS_REAL), "mask: .*infinity"),
    "sinusoid_frequencies": (X, ""),
    "softmax_over_queries": (X, "softmax: must be over dimension 2"),
    "softmax_over_the_batch": (TOKENS, "softmax: must be over dimension 1"),
    "statistics_over_padding": ((X, IS_REAL), ""),
    "view_instead_of_transpose": (X, "heads: .*transposed"),
}
"""Inputs of all exhibits of which one forward pass shows the fault, and the causes to be found.

An empty cause is not found. The faulty code is in the ``forward`` of the model itself, or in one of
``PARTS``.
"""
PARTS = {
    "batch_taken_as_sequence": "encoder.layers.0.self_attn",
    "copied_layers": "layers.1.self_attn",
    "inverted_padding_mask": "encoder",
}


class Pair(NamedTuple):
    """Two models that agree.

    Attributes:
        make: Makes the models, with a folder for their files.
        inputs: Inputs for which they agree, of the first model.
        b_inputs: Inputs of the second model, if it is called otherwise.
    """

    make: Callable[[Path], list[Any]]
    inputs: Any = IDS
    b_inputs: Any = None


class Change(NamedTuple):
    """An error: the name of the module to blame, and the function that plants it in a model."""

    module: str
    plant: Callable[[Any], object]


class Planted(NamedTuple):
    """An error that is planted in the second of two models that agree.

    Attributes:
        pair: The models.
        change: The error.
        cause: Pattern of the cause that must be shown.
        module: Pattern of the name of the module that must be named, if not that of the change.
    """

    pair: Pair
    change: Change
    cause: str
    module: str | None = None


def published(family: str, **settings: Any) -> Pair:
    """Return our model, and that of transformers from which it is loaded."""

    def make(folder: Path) -> list[Any]:
        theirs = save_model(family, folder, **settings)
        ours = load(family, folder)
        if family == "marian":  # ours never generates padding
            theirs.final_logits_bias[0, ours.padding_id] = -torch.inf
        return [ours, theirs]

    return Pair(make, STACKS, THEIR_STACKS) if family in ("marian", "t5") else Pair(make)


def twins(family: str) -> Pair:
    """Return a model of transformers, and a copy."""

    def make(folder: Path) -> list[Any]:
        theirs = save_model(family, folder)
        return [theirs, copy.deepcopy(theirs)]

    return Pair(make)


def make_encoders(folder: Path) -> list[Any]:
    """Make an encoder of these blocks, and the one of torch that it is converted from."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    return [from_torch(theirs).eval(), theirs.eval()]


def swap(*names: str) -> Change:
    def change(model: nn.Module) -> None:
        first, second = (model.get_submodule(name).parameters() for name in names)
        for a, b in zip(first, second, strict=True):
            a.data, b.data = b.data, a.data

    return Change(names[0], change)


def weight(module: str, new: Callable[[Tensor], Tensor], name: str = "weight") -> Change:
    def change(model: nn.Module) -> None:
        parameter = model.get_submodule(module).get_parameter(name)
        parameter.data = new(parameter.data).clone().reshape(parameter.shape)

    return Change(module, change)


def put(module: str, key: str, value: Any) -> Change:
    return Change(module, lambda model: setattr(model.get_submodule(module), key, value))


def both(*changes: Change) -> Change:
    return Change(changes[0].module, lambda model: [change.plant(model) for change in changes])


def transpose(w: Tensor) -> Tensor:
    return w.T


def interleave(w: Tensor) -> Tensor:
    return w.view(2, 2, 3, 12).transpose(1, 2)


def transpose_thirds(w: Tensor) -> Tensor:
    return torch.cat([part.T for part in w.chunk(3)])


def thirds(*order: int, dim: int = 0) -> Callable[[Tensor], Tensor]:
    return lambda w: torch.cat([w.chunk(3, dim)[n] for n in order], dim)


def unchanged(model: nn.Module) -> None:
    """Change nothing: the models or their inputs differ already."""


OF_TORCH, OURS = Pair(make_encoders, X), Pair(lambda folder: make_encoders(folder)[::-1], X)
LLAMA, GPT2, BERT = published("llama"), published("gpt2"), published("bert")
GEMMA = published("gemma3_text", num_hidden_layers=2)
T5, MARIAN, ROBERTA = published("t5"), published("marian"), published("roberta")
GATED_T5 = published("t5", feed_forward_proj="gated-gelu")
LAYER, BLOCK, BERT_LAYER = "model.layers.0", "transformer.h.0", "encoder.layer.0"
T5_QUERY, MARIAN_LAYER = "encoder.block.0.layer.0.SelfAttention.q", "model.decoder.layers.0"
GATE, UP = (f"encoder.block.0.layer.1.DenseReluDense.wi_{n}" for n in (0, 1))
QUERY, KEY = (f"layers.0.self_attention.{name}_projection" for name in ("query", "key"))
SELF, JOINED = "layers.0.self_attn", f"{BLOCK}.attn.c_attn"
PADDING = (IDS > 0).long() * (torch.arange(12) < torch.tensor([[12], [9], [5]]))
POLARITIES = [{"input_ids": IDS, "attention_mask": mask} for mask in (PADDING, 1 - PADDING)]
PLANTED: dict[str, Planted] = {
    "llama: transposed value": Planted(
        LLAMA, weight(f"{LAYER}.self_attn.v_proj", transpose), "transposed"
    ),
    "gpt2: transposed output": Planted(
        GPT2, weight(f"{BLOCK}.attn.c_proj", transpose), "transposed"
    ),
    "torch: transposed parts of a joined weight": Planted(
        OF_TORCH, weight(SELF, transpose_thirds, "in_proj_weight"), "transposed"
    ),
    "llama: query and key": Planted(
        *(LLAMA, swap(*(f"model.layers.1.self_attn.{name}_proj" for name in "qk")), "exchanged"),
        module="model.layers.1.self_attn(.[qk]_proj)?",
    ),
    "ours: query and key": Planted(
        OURS, swap(QUERY, KEY), "exchanged", f"{QUERY}|{KEY}|layers.0.self_attention"
    ),
    "torch: value, key, query": Planted(
        OF_TORCH,
        both(*(weight(SELF, thirds(2, 1, 0), f"in_proj_{x}") for x in ("weight", "bias"))),
        "exchanged",
    ),
    "gpt2: key, query, value": Planted(
        GPT2,
        both(weight(JOINED, thirds(1, 0, 2, dim=1)), weight(JOINED, thirds(1, 0, 2), "bias")),
        "exchanged",
    ),
    "bert: two layers": Planted(
        BERT, swap(BERT_LAYER, "encoder.layer.1"), "exchanged", f"{BERT_LAYER}.*"
    ),
    "t5: gate and up of the feed-forward network": Planted(
        GATED_T5, swap(GATE, UP), "exchanged", f"{GATE}|{UP}|{GATE.removesuffix('.wi_0')}"
    ),
    "llama: rotary pairs": Planted(
        LLAMA,
        both(*(weight(f"{LAYER}.self_attn.{name}_proj", interleave) for name in "qk")),
        "rotary",
        f"{LAYER}.self_attn(.[qk]_proj)?",
    ),
    "qwen3: base of the rotary angles": Planted(
        twins("qwen3"),
        put("model.rotary_emb", "inv_freq", 100.0 ** -(torch.arange(0, 6, 2) / 6)),
        "inv_freq",
    ),
    "llama: scale of the scores": Planted(
        LLAMA, put(f"{LAYER}.self_attn", "scaling", 1 / 12**0.5), "scale|scaling"
    ),
    "t5: scaled query": Planted(T5, weight(T5_QUERY, lambda w: w / 2), "scale: .* 2 times"),
    "marian: embeddings without their factor": Planted(
        MARIAN, put("model.encoder", "embed_scale", 1.0), "scale"
    ),
    "gemma3: one added twice to the weight of a norm": Planted(
        GEMMA, weight(f"{LAYER}.input_layernorm", lambda w: w + 1), "scale: each feature"
    ),
    "gpt2: epsilon": Planted(GPT2, put(f"{BLOCK}.ln_1", "eps", 1e-6), "eps"),
    "llama: epsilon": Planted(
        LLAMA, put(f"{LAYER}.post_attention_layernorm", "variance_epsilon", 1e-5), "epsilon"
    ),
    "bert: activation": Planted(
        BERT,
        put(f"{BERT_LAYER}.intermediate", "intermediate_act_fn", nn.ReLU()),
        "activation: must be gelu",
        f"{BERT_LAYER}.intermediate.*",
    ),
    "gpt2: exact activation": Planted(
        *(GPT2, put(f"{BLOCK}.mlp", "act", nn.GELU()), "activation: must be gelu with tanh"),
        module=f"{BLOCK}.mlp.*",
    ),
    "ours: activation": Planted(
        OURS, put("layers.1.feed_forward", "activation", F.relu), "activation: must be gelu"
    ),
    "torch: norm order": Planted(OF_TORCH, put("layers.0", "norm_first", True), "norm_first"),
    "ours: norm order": Planted(
        *(OURS, put("layers.1.feed_forward_residual", "__class__", PreNorm), "norm order"),
        module="layers.1(.feed_forward_residual)?",
    ),
    "bert: bias left out": Planted(
        BERT, weight(f"{BERT_LAYER}.output.dense", torch.zeros_like, "bias"), "bias"
    ),
    "marian: bias of cross-attention left out": Planted(
        MARIAN, weight(f"{MARIAN_LAYER}.encoder_attn.v_proj", torch.zeros_like, "bias"), "bias"
    ),
    "gpt2: untied output": Planted(
        GPT2, put("lm_head", "weight", nn.Parameter(UNTIED)), "tied|wte"
    ),
    "bert: dropout": Planted(BERT, Change("embeddings.dropout", nn.Module.train), "training mode"),
    "roberta: positions": Planted(
        ROBERTA, weight("embeddings.position_embeddings", lambda w: w.roll(1, 0)), "positions"
    ),
    "bert: polarity of the mask": Planted(
        Pair(twins("bert").make, *POLARITIES),
        Change("", unchanged),
        "polarity",
        f"|encoder|{BERT_LAYER}.attention.*",
    ),
    "gpt2: another checkpoint": Planted(
        twins("gpt2"),
        weight(f"{BLOCK}.mlp.c_fc", lambda w: w + 0.1 * torch.randn(w.shape)),
        "weights: .*c_fc",
    ),
}


def museum(name: str) -> Planted:
    """Return the broken model of an exhibit, which is compared with the mended one."""
    exhibit = exhibits()[name]
    inputs, cause = MUSEUM[name]

    def make(folder: Path) -> list[Any]:
        mended, broken = exhibit.make("mended").eval(), exhibit.make("broken").eval()
        if name != "copied_layers":  # whose fault is in the weights
            mended.load_state_dict(broken.state_dict())
        return [mended, broken]

    return Planted(Pair(make, inputs), Change(PARTS.get(name, ""), unchanged), cause)


EVERY = PLANTED | {f"museum: {name}": museum(name) for name in MUSEUM}
ELSEWHERE = {"marian: embeddings without their factor", "museum: rotary_pairs"}
"""Errors that another module is named for: the embedding without its factor, or the projection."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if number % 5 else [])
        for number, name in enumerate(EVERY)
    ],
)
def test_each_of_sixty_planted_errors_is_found(name: str, tmp_path: Path) -> None:
    pair, change, cause, module = EVERY[name]
    a, b = pair.make(tmp_path)
    with torch.no_grad():
        change.plant(b)
    difference = first_difference(a, b, pair.inputs, b_inputs=pair.b_inputs)
    assert difference
    found = re.fullmatch(change.module if module is None else module, difference.module_b)
    assert bool(found) == (name not in ELSEWHERE), difference
    if cause:
        assert re.search(cause, difference.cause or ""), difference
    else:
        assert difference.cause is None, difference


def test_of_sixty_errors_most_are_named_with_module_and_cause() -> None:
    causes = [planted.cause for planted in EVERY.values() if planted.cause]
    assert len(EVERY) == 60
    assert len(EVERY) - len(ELSEWHERE) >= 0.9 * len(EVERY)
    assert len(causes) >= 0.7 * len(EVERY)


@every_family
def test_our_models_do_not_differ_from_those_of_transformers(family: str, tmp_path: Path) -> None:
    pair = published(family)
    ours, theirs = pair.make(tmp_path)
    found = first_difference(ours, theirs, pair.inputs, b_inputs=pair.b_inputs)
    assert not found, found


@pytest.mark.parametrize("change", ["eager", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "bert"])
def test_kernels_and_precisions_do_not_differ(family: str, change: str, tmp_path: Path) -> None:
    a, b = twins(family).make(tmp_path)
    if change == "eager":
        b.set_attn_implementation("eager")
    else:
        b.bfloat16()
    found = first_difference(a, b, IDS)
    assert not found, found
