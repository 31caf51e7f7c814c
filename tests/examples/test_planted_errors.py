"""Errors that are planted in models are found by ``first_difference``, and their causes shown."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.examples.published import VOCABULARY, every_family, load, save_model
from torch import Tensor, nn

from transformer_blocks import PreNorm
from transformer_blocks.inspection import Difference, first_difference
from transformer_blocks.interop import from_torch
from transformer_blocks.museum.exhibit import exhibits
from transformer_blocks.museum.models import LEFT_PADDED, PADDED, TOKENS

GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.randint(3, VOCABULARY - 1, (3, 12), generator=GENERATOR)
X = torch.randn(2, 6, 16, generator=GENERATOR)
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
    "rotary_pairs": (X, "rotary: pairs of 16 numbers must be halved"),
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


@dataclass
class Planted:
    """An error that is planted in one of two models that agree.

    Attributes:
        pair: Makes the models.
        change: Plants the error in the second one.
        module: Pattern of the name of the module that must be named.
        cause: Pattern of the cause that must be shown.
        inputs: Inputs of the first model.
        b_inputs: Inputs of the second model.
    """

    pair: Callable[[Path], list[Any]]
    change: Callable[[Any], object]
    module: str
    cause: str
    inputs: Any
    b_inputs: Any = None

    def find(self, folder: Path) -> Difference:
        a, b = self.pair(folder)
        with torch.no_grad():
            self.change(b)
        return first_difference(a, b, self.inputs, b_inputs=self.b_inputs)


def published(family: str, **settings: Any) -> Callable[[Path], list[Any]]:
    """Return a function that makes our model, and that of transformers from which it is loaded."""

    def make(folder: Path) -> list[Any]:
        theirs = save_model(family, folder, **settings)
        return [load(family, folder), theirs]

    return make


def twins(family: str, **settings: Any) -> Callable[[Path], list[Any]]:
    """Return a function that makes a model of transformers, and a copy."""

    def make(folder: Path) -> list[Any]:
        theirs = save_model(family, folder, **settings)
        return [theirs, copy.deepcopy(theirs)]

    return make


def of_torch(folder: Path) -> list[Any]:
    """Make an encoder of these blocks, and the one of torch that it is converted from."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    return [from_torch(theirs).eval(), theirs.eval()]


def ours(folder: Path) -> list[Any]:
    """Make an encoder of torch, and the one of these blocks that it is converted to."""
    return of_torch(folder)[::-1]


def swap(*names: str) -> Callable[[nn.Module], object]:
    def change(model: nn.Module) -> None:
        first, second = (model.get_submodule(name).parameters() for name in names)
        for a, b in zip(first, second, strict=True):
            a.data, b.data = b.data, a.data

    return change


def weight(name: str, new: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], object]:
    def change(model: nn.Module) -> None:
        parameter = model.get_parameter(name)
        parameter.data = new(parameter.data).clone().reshape(parameter.shape)

    return change


def put(name: str, key: str, value: Any) -> Callable[[nn.Module], object]:
    return lambda model: setattr(model.get_submodule(name), key, value)


def both(*changes: Callable[[nn.Module], object]) -> Callable[[nn.Module], object]:
    return lambda model: [change(model) for change in changes]


def transpose(w: Tensor) -> Tensor:
    return w.T


def interleave(w: Tensor) -> Tensor:
    return w.view(2, 2, 3, 12).transpose(1, 2)


def thirds(w: Tensor, *order: int, dim: int = 0) -> Tensor:
    return torch.cat([w.chunk(3, dim)[n] for n in order], dim)


LLAMA, GPT2, BERT = published("llama"), published("gpt2"), published("bert")
GEMMA = published("gemma3_text", num_hidden_layers=2)
T5, MARIAN, ROBERTA = published("t5"), published("marian"), published("roberta")
LAYER, BLOCK, BERT_LAYER = "model.layers.0", "transformer.h.0", "encoder.layer.0"
T5_QUERY, MARIAN_LAYER = "encoder.block.0.layer.0.SelfAttention.q", "model.decoder.layers.0"
QUERY, KEY = (f"layers.0.self_attention.{name}_projection" for name in ("query", "key"))
PADDING = (IDS > 0).long() * (torch.arange(12) < torch.tensor([[12], [9], [5]]))
PLANTED: dict[str, Planted] = {
    "llama: transposed value": Planted(
        LLAMA,
        weight(f"{LAYER}.self_attn.v_proj.weight", transpose),
        f"{LAYER}.self_attn.v_proj",
        "transposed",
        IDS,
    ),
    "gpt2: transposed output": Planted(
        GPT2,
        weight(f"{BLOCK}.attn.c_proj.weight", transpose),
        f"{BLOCK}.attn.c_proj",
        "transposed",
        IDS,
    ),
    "torch: transposed parts of a joined weight": Planted(
        of_torch,
        weight(
            "layers.0.self_attn.in_proj_weight",
            lambda w: torch.cat([part.T for part in w.chunk(3)]),
        ),
        "layers.0.self_attn",
        "transposed",
        X,
    ),
    "llama: query and key": Planted(
        LLAMA,
        swap("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj"),
        "model.layers.1.self_attn(.[qk]_proj)?",
        "exchanged",
        IDS,
    ),
    "ours: query and key": Planted(
        ours, swap(QUERY, KEY), f"{QUERY}|{KEY}|layers.0.self_attention", "exchanged", X
    ),
    "torch: value, key, query": Planted(
        of_torch,
        both(
            weight("layers.0.self_attn.in_proj_weight", lambda w: thirds(w, 2, 1, 0)),
            weight("layers.0.self_attn.in_proj_bias", lambda w: thirds(w, 2, 1, 0)),
        ),
        "layers.0.self_attn",
        "exchanged",
        X,
    ),
    "gpt2: key, query, value": Planted(
        GPT2,
        both(
            weight(f"{BLOCK}.attn.c_attn.weight", lambda w: thirds(w, 1, 0, 2, dim=1)),
            weight(f"{BLOCK}.attn.c_attn.bias", lambda w: thirds(w, 1, 0, 2)),
        ),
        f"{BLOCK}.attn.c_attn",
        "exchanged",
        IDS,
    ),
    "bert: two layers": Planted(
        BERT, swap("encoder.layer.0", "encoder.layer.1"), f"{BERT_LAYER}.*", "exchanged", IDS
    ),
    "t5: gate and up of the feed-forward network": Planted(
        published("t5", feed_forward_proj="gated-gelu"),
        swap(*(f"encoder.block.0.layer.1.DenseReluDense.wi_{n}" for n in (0, 1))),
        "encoder.block.0.layer.1.DenseReluDense(.wi_[01])?",
        "exchanged",
        STACKS,
        THEIR_STACKS,
    ),
    "llama: rotary pairs": Planted(
        LLAMA,
        both(*(weight(f"{LAYER}.self_attn.{name}_proj.weight", interleave) for name in "qk")),
        f"{LAYER}.self_attn(.[qk]_proj)?",
        "rotary",
        IDS,
    ),
    "qwen3: base of the rotary angles": Planted(
        twins("qwen3"),
        put("model.rotary_emb", "inv_freq", 100.0 ** -(torch.arange(0, 6, 2) / 6)),
        "model.rotary_emb",
        "inv_freq",
        IDS,
    ),
    "llama: scale of the scores": Planted(
        LLAMA,
        put(f"{LAYER}.self_attn", "scaling", 1 / 12**0.5),
        f"{LAYER}.self_attn",
        "scale|scaling",
        IDS,
    ),
    "t5: scaled query": Planted(
        T5,
        weight(f"{T5_QUERY}.weight", lambda w: w / 2),
        T5_QUERY,
        "scale: .* 2 times",
        STACKS,
        THEIR_STACKS,
    ),
    "marian: embeddings without their factor": Planted(
        MARIAN,
        put("model.encoder", "embed_scale", 1.0),
        "model.encoder",
        "scale",
        STACKS,
        THEIR_STACKS,
    ),
    "gemma3: one added twice to the weight of a norm": Planted(
        GEMMA,
        weight("model.layers.0.input_layernorm.weight", lambda w: w + 1),
        "model.layers.0.input_layernorm",
        "scale: each feature",
        IDS,
    ),
    "gpt2: epsilon": Planted(GPT2, put(f"{BLOCK}.ln_1", "eps", 1e-6), f"{BLOCK}.ln_1", "eps", IDS),
    "llama: epsilon": Planted(
        LLAMA,
        put(f"{LAYER}.post_attention_layernorm", "variance_epsilon", 1e-5),
        f"{LAYER}.post_attention_layernorm",
        "epsilon",
        IDS,
    ),
    "bert: activation": Planted(
        BERT,
        put(f"{BERT_LAYER}.intermediate", "intermediate_act_fn", nn.ReLU()),
        f"{BERT_LAYER}.intermediate.*",
        "activation: must be gelu",
        IDS,
    ),
    "gpt2: exact activation": Planted(
        GPT2,
        put(f"{BLOCK}.mlp", "act", nn.GELU()),
        f"{BLOCK}.mlp.*",
        "activation: must be gelu with tanh",
        IDS,
    ),
    "ours: activation": Planted(
        ours,
        put("layers.1.feed_forward", "activation", F.relu),
        "layers.1.feed_forward",
        "activation: must be gelu",
        X,
    ),
    "torch: norm order": Planted(
        of_torch, put("layers.0", "norm_first", True), "layers.0", "norm_first", X
    ),
    "ours: norm order": Planted(
        ours,
        put("layers.1.feed_forward_residual", "__class__", PreNorm),
        "layers.1(.feed_forward_residual)?",
        "norm order",
        X,
    ),
    "bert: bias left out": Planted(
        BERT,
        weight(f"{BERT_LAYER}.output.dense.bias", torch.zeros_like),
        f"{BERT_LAYER}.output.dense",
        "bias",
        IDS,
    ),
    "marian: bias of cross-attention left out": Planted(
        MARIAN,
        weight(f"{MARIAN_LAYER}.encoder_attn.v_proj.bias", torch.zeros_like),
        f"{MARIAN_LAYER}.encoder_attn.v_proj",
        "bias",
        STACKS,
        THEIR_STACKS,
    ),
    "gpt2: untied output": Planted(
        GPT2,
        lambda model: setattr(model.lm_head, "weight", nn.Parameter(torch.randn(VOCABULARY, 12))),
        "lm_head",
        "tied|wte",
        IDS,
    ),
    "bert: dropout": Planted(BERT, nn.Module.train, "embeddings.dropout", "training mode", IDS),
    "roberta: positions": Planted(
        ROBERTA,
        weight("embeddings.position_embeddings.weight", lambda w: w.roll(1, 0)),
        "embeddings.position_embeddings",
        "positions",
        IDS,
    ),
    "bert: polarity of the mask": Planted(
        twins("bert"),
        lambda model: None,
        f"|encoder|{BERT_LAYER}.attention.*",
        "polarity",
        {"input_ids": IDS, "attention_mask": PADDING},
        {"input_ids": IDS, "attention_mask": 1 - PADDING},
    ),
    "gpt2: another checkpoint": Planted(
        twins("gpt2"),
        weight(f"{BLOCK}.mlp.c_fc.weight", lambda w: w + 0.1 * torch.randn(w.shape)),
        f"{BLOCK}.mlp.c_fc",
        "weights: .*c_fc",
        IDS,
    ),
}


def museum(name: str) -> Planted:
    """Return the broken model of an exhibit, which is compared with the mended one."""
    exhibit = exhibits()[name]
    inputs, cause = MUSEUM[name]

    def make(folder: Path) -> list[Any]:
        mended, broken = exhibit.mended().eval(), exhibit.broken().eval()
        if name != "copied_layers":  # whose fault is in the weights
            mended.load_state_dict(broken.state_dict())
        return [mended, broken]

    return Planted(make, lambda model: None, PARTS.get(name, ""), cause, inputs)


EVERY = PLANTED | {f"museum: {name}": museum(name) for name in MUSEUM}
ELSEWHERE = {"marian: embeddings without their factor", "museum: rotary_pairs"}
"""Errors that another module is named for: the embedding without its factor, or the projection."""
FEW = [*EVERY][::5]


def check(name: str, folder: Path) -> None:
    planted = EVERY[name]
    difference = planted.find(folder)
    assert difference
    found = re.fullmatch(planted.module, difference.module_b) is not None
    assert found == (name not in ELSEWHERE), difference
    if planted.cause:
        assert re.search(planted.cause, difference.cause or ""), difference
    else:
        assert difference.cause is None, difference


@pytest.mark.parametrize("name", FEW)
def test_a_planted_error_is_found(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if name not in FEW])
def test_each_of_sixty_planted_errors_is_found(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_of_sixty_errors_most_are_named_with_module_and_cause() -> None:
    causes = [planted.cause for planted in EVERY.values() if planted.cause]
    assert len(EVERY) == 60
    assert len(EVERY) - len(ELSEWHERE) >= 0.9 * len(EVERY)
    assert len(causes) >= 0.7 * len(EVERY)


@every_family
def test_our_models_do_not_differ_from_those_of_transformers(family: str, tmp_path: Path) -> None:
    ours, theirs = published(family)(tmp_path)
    if family == "marian":  # ours never generates padding
        theirs.final_logits_bias[0, ours.padding_id] = -torch.inf
    has_stacks = family in ("marian", "t5")
    found = first_difference(
        ours, theirs, STACKS if has_stacks else IDS, b_inputs=THEIR_STACKS if has_stacks else None
    )
    assert not found, found


@pytest.mark.parametrize("change", ["eager", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "bert"])
def test_kernels_and_precisions_do_not_differ(family: str, change: str, tmp_path: Path) -> None:
    a, b = twins(family)(tmp_path)
    if change == "eager":
        b.set_attn_implementation("eager")
    else:
        b.bfloat16()
    found = first_difference(a, b, IDS)
    assert not found, found
