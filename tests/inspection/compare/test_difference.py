"""The first difference of two models is named, its cause shown, and rounding raises no alarm."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    FeedForward,
    PreNorm,
    add_lora,
    build_decoder,
    build_encoder,
    causal_mask,
    merge_lora,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import assert_equivalent, first_difference
from transformer_blocks.interop import from_torch, to_torch

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[5, 3, 8, 2, 7], [6, 9, 1, 4, 2]])
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
PAIRS = (
    *("torch encoder", "training mode"),
    *("decoder to torch", "bfloat16", "float16", "prepared encoder", "merged LoRA"),
    *("sequence first", "rows alone", "GELU by hand"),
)


def randomise(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def their_encoder(**options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    return randomise(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def make_pair(name: str) -> tuple[Any, Any, Any]:
    """Make two models that agree up to rounding, and their inputs."""
    torch.manual_seed(0)
    ours = randomise(build_encoder(**SIZES))
    match name:
        case "torch encoder":
            theirs = their_encoder()
            return theirs, from_torch(theirs), X
        case "training mode":
            theirs = their_encoder(dropout=0.5).train()
            return theirs, from_torch(theirs), X
        case "decoder to torch":
            decoder = randomise(build_decoder(**SIZES))
            theirs = to_torch(decoder)
            return decoder, lambda x, y: theirs(x, y, tgt_mask=causal_mask(5)), (X, X)
        case "bfloat16":
            return ours, copy.deepcopy(ours).bfloat16(), X
        case "float16":
            return ours.half(), copy.deepcopy(ours).float(), X
        case "prepared encoder":
            return ours, prepare(ours), X
        case "merged LoRA":
            add_lora(ours, rank=2)
            return randomise(ours), merge_lora(ours), X
        case "sequence first":
            theirs = their_encoder()
            other = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 4, 32), 2, enable_nested_tensor=False
            )
            other.load_state_dict(theirs.state_dict())
            return theirs, lambda x: other.eval()(x.transpose(0, 1)), X
        case "rows alone":
            return ours, lambda x: torch.cat([ours(row[None]) for row in x]), X
        case _:
            return F.gelu, lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), X


@pytest.mark.parametrize("name", PAIRS)
def test_rounding_raises_no_alarm(name: str) -> None:
    a, b, inputs = make_pair(name)
    difference = first_difference(a, b, inputs)
    assert not difference, difference
    assert difference.cause is None
    assert str(difference).startswith("no difference: the outputs agree to ")


def plant(change: Any) -> tuple[Any, Any]:
    """Make an encoder of torch, and the same of these blocks with an error."""
    theirs, ours, _ = make_pair("torch encoder")
    with torch.no_grad():
        change(ours)
    return theirs, ours


def exchange(model: Any) -> None:
    attention = model.layers[1].self_attention
    attention.query_projection, attention.key_projection = (
        attention.key_projection,
        attention.query_projection,
    )


ERRORS: dict[str, tuple[Any, str, str]] = {
    "transposed": (
        lambda m: m.layers[0].self_attention.value_projection.weight.t_(),
        "layers.0.self_attention.value_projection",
        "transposed: layers.0.self_attention.value_projection.weight",
    ),
    "exchanged": (
        exchange,
        "layers.1.self_attention.query_projection",
        "exchanged: layers.1.self_attention.query_projection and "
        "layers.1.self_attention.key_projection",
    ),
    "activation": (
        lambda m: setattr(m.layers[1].feed_forward, "activation", F.gelu),
        "layers.1.feed_forward",
        "activation: must be relu",
    ),
    "epsilon": (
        lambda m: setattr(m.layers[0].feed_forward_residual.norm, "eps", 1e-6),
        "layers.0.feed_forward_residual.norm",
        "setting: eps of layers.0.feed_forward_residual.norm must be 1e-05",
    ),
    "bias": (
        lambda m: m.layers[0].feed_forward.down_projection.bias.zero_(),
        "layers.0.feed_forward.down_projection",
        "bias: the output lacks a bias, or has another one",
    ),
    "norm order": (
        lambda m: setattr(m.layers[0].self_attention_residual, "__class__", PreNorm),
        "layers.0.self_attention_residual",
        "norm order: layers.0.self_attention_residual must be a PostNorm",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_named_with_its_module_and_cause(name: str) -> None:
    change, module, cause = ERRORS[name]
    difference = first_difference(*plant(change), X)
    assert (difference.module_b, difference.cause) == (module, cause)
    assert difference.first is not None
    assert difference.first.distance > 1e-5 > max(pair.distance for pair in difference.agreed)


def test_the_table_fits_into_80_columns_and_can_be_shown_in_a_notebook() -> None:
    difference = first_difference(*plant(ERRORS["exchanged"][0]), X)
    lines = str(difference).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("first difference: layers.1.self_attn (a)")
    assert lines[-1].startswith("model output")
    page = difference._repr_html_()
    assert page.count("<tr>") == page.count("</tr>") == 1 + 6 + 2
    assert f">{difference.first and difference.first.b}</td>" in page


def test_what_cannot_be_corrected_is_named_without_a_cause() -> None:
    class Clipped(FeedForward):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).clamp(max=0.5)

    def clip(model: Any) -> None:
        model.layers[1].feed_forward.__class__ = Clipped

    difference = first_difference(*plant(clip), X)
    assert (difference.module_b, difference.cause) == ("layers.1.feed_forward", None)
    assert "cause: not found" in str(difference)


class Halved(nn.Module):
    """Stores a vector twice as large, halves it for one output, and forgets this in the other."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.divided, self.output = nn.Linear(16, 16), nn.Identity(), nn.Linear(16, 4)
        vars(self.divided)["forward"] = lambda x: x / factor
        for each in self.layer.parameters():
            each.data *= factor

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        vectors = self.layer(x)
        return {"logits": self.output(vectors), "other": self.divided(vectors)}


def test_a_tensor_that_is_only_stored_in_another_form_is_not_the_first_difference() -> None:
    difference = first_difference(Halved(1.0), Halved(2.0), X)
    assert difference.outputs.a == "model output"
    assert difference.module_b != "layer"


def test_only_the_first_of_several_errors_is_named_and_its_cause_is_not_shown() -> None:
    def change(model: Any) -> None:
        ERRORS["exchanged"][0](model)
        ERRORS["bias"][0](model)

    difference = first_difference(*plant(change), X)
    assert (difference.module_b, difference.cause) == (ERRORS["bias"][1], None)


def test_the_same_error_in_all_layers_is_corrected_in_all() -> None:
    def change(model: Any) -> None:
        for layer in model.layers:
            layer.feed_forward.activation = F.gelu

    cause = first_difference(*plant(change), X).cause
    assert cause == "activation: must be relu; the same in all 2 layers"


class Rotary(nn.Module):
    """Attention with rotary positions, of which pairs are halves or neighbours."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(16, 16) for _ in range(4))
        self.kind = kind

    def rotate(self, x: Tensor) -> Tensor:
        angles, is_halves = torch.arange(5)[:, None] / 3.0 ** torch.arange(4), self.kind == "halves"
        u, v = x.chunk(2, -1) if is_halves else (x[..., ::2], x[..., 1::2])
        pairs = u * angles.cos() - v * angles.sin(), u * angles.sin() + v * angles.cos()
        return torch.cat(pairs, -1) if is_halves else torch.stack(pairs, -1).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            each(x).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.wq, self.wk, self.wv)
        )
        y = F.scaled_dot_product_attention(self.rotate(query), self.rotate(key), value)
        return x + self.wo(y.transpose(1, 2).flatten(2))


def test_rotary_pairs_are_found_whatever_the_projections_are_called() -> None:
    halves, neighbours = Rotary("halves"), Rotary("neighbours")
    neighbours.load_state_dict(randomise(halves).state_dict())
    rows = "in heads of 8, rows must go from halves to pairs"
    assert (first_difference(halves, neighbours, X).cause or "").startswith(
        f"rotary: {rows}: wq.weight"
    )


def test_the_models_and_inputs_are_not_changed() -> None:
    theirs, ours = plant(ERRORS["transposed"][0])
    ours.train()
    before, x = copy.deepcopy(ours.state_dict()), X.clone()
    settings = [dict(vars(part)) for part in ours.modules()]
    random = torch.get_rng_state()
    first_difference(theirs, ours, x)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), random)
    assert [dict(vars(part)) for part in ours.modules()] == settings


def test_training_mode_of_one_model_is_a_cause() -> None:
    theirs = their_encoder(dropout=0.5)
    difference = first_difference(theirs, from_torch(theirs).train(), X)
    assert difference.cause == "training mode: dropout is on"


def test_inputs_can_be_of_other_forms_for_each_model() -> None:
    layer: Any = build_encoder(**SIZES).layers[0].eval()
    padding = torch.arange(5) >= torch.tensor([[5], [3]])
    found = first_difference(
        to_torch(layer),
        layer,
        {"src": X, "src_key_padding_mask": padding},
        b_inputs={"x": X, "mask": padding[:, None, None]},
    )
    assert not found, found
    assert first_difference(torch.sin, torch.sin, X, b_inputs=X + 1e-3)
    assert not first_difference(torch.sin, torch.sin, X, b_inputs=X + 1e-3, tolerance=0.1)


def test_functions_are_compared_by_their_outputs() -> None:
    difference = first_difference(torch.sin, torch.tanh, X)
    assert difference
    assert (difference.module_a, difference.module_b, difference.cause) == ("", "", None)
    assert "the model itself (a), the model itself (b)" in str(difference)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda x: x[:1], r"shapes (2, 5, 16) (a) and (1, 5, 16) (b)"),
        (lambda x: x.mT, r"shapes (2, 5, 16) (a) and (2, 16, 5) (b)"),
        (lambda x: x * math.nan, "NaN in 0 numbers of a and 160 of b"),
        (lambda x: x / 0, "infinity in 0 numbers of a and 160 of b"),
    ],
)
def test_other_shapes_nan_and_infinity_are_said(change: Any, note: str) -> None:
    difference = first_difference(lambda x: x, change, X)
    assert (difference.outputs.distance, difference.outputs.note) == (math.inf, note)
    assert note in " ".join(str(difference).split())
    assert str(difference).split()[-1] == note.split()[0]


def test_sequence_first_is_no_difference_and_a_reshape_is_one() -> None:
    same = first_difference(lambda x: x, lambda x: x.transpose(0, 1), X)
    assert not same
    assert "shapes (2, 5, 16) (a) and (5, 2, 16) (b)" in same.summary
    assert not first_difference(lambda x: x.flatten(1), lambda x: x.unflatten(2, (4, 4)), X)
    assert first_difference(lambda x: x.transpose(0, 1), lambda x: x.reshape(5, 2, 16), X)
    heads = first_difference(
        lambda x: x.unflatten(2, (4, 4)).transpose(1, 2), lambda x: x.reshape(2, 4, 5, 4), X
    )
    assert heads


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (lambda x: (x, x), lambda x: (x, x + 1), "1"),
        (
            lambda x: {"logits": x, "loss": x.mean()},
            lambda x: {"logits": x, "loss": x.sum()},
            "loss",
        ),
        (lambda x: [x, (1.0, 2)], lambda x: [x, (1.0, 3)], "1.1"),
        (lambda x: (x, x.argmax(-1)), lambda x: (x, x.argmin(-1)), "1"),
    ],
)
def test_all_outputs_are_compared(a: Any, b: Any, name: str) -> None:
    difference = first_difference(a, b, X)
    assert difference.outputs.a == difference.outputs.b == f"model output {name}"
    rows = str(difference).splitlines()
    assert len(rows) == len({*rows})
    assert not first_difference(a, a, X).skipped


def test_outputs_that_are_not_compared_are_listed() -> None:
    found = first_difference(lambda x: x, lambda x: {"logits": x, "cache": [x + 1]}, X)
    assert not found
    assert found.skipped == ("output cache.0 of b, which the other model does not return",)
    assert "\nnot compared: output cache.0 of b" in str(found)
    found = first_difference(lambda x: (x, x * math.nan), lambda x: (x, x * math.nan), X)
    assert found.skipped == ("output 1, which holds NaN alone",)


def test_what_is_computed_from_no_float_is_float64_without_a_change_of_the_default() -> None:
    defaults = set()

    def compute(x: Tensor) -> Tensor:
        defaults.add(torch.get_default_dtype())
        third = torch.arange(1, 17) / 3 + torch.ones(16) / 3 + torch.tensor(0.1)
        return x + third + torch.full((16,), 0.1) + torch.arange(16) * 0.1

    def double(x: Tensor) -> Tensor:
        numbers = torch.arange(16, dtype=torch.float64)
        return x + (numbers + 2) / 3 + 0.2 + numbers * 0.1

    found = first_difference(compute, double, X)
    assert (defaults, found.precision) == ({torch.float32}, "float64")
    assert found.outputs.distance < 1e-14


def test_the_coarser_dtype_of_two_outputs_decides() -> None:
    for a, b in ((torch.Tensor.bfloat16, torch.clone), (torch.clone, torch.Tensor.bfloat16)):
        found = first_difference(a, b, X)
        assert not found
        assert found.precision == "bfloat16"


def test_more_than_rounding_is_printed() -> None:
    found = first_difference(torch.clone, lambda x: x * (1 + 1e-7), X)
    assert not found
    assert "more than rounding: pass tolerance=1e-11" in " ".join(str(found).split())
    assert first_difference(torch.clone, lambda x: x * (1 + 1e-7), X, tolerance=1e-11)


def test_nan_in_both_models_is_no_difference() -> None:
    holes = torch.where(X > 0, X, math.nan)
    assert not first_difference(lambda x: x + holes, lambda x: holes + x, X)


def test_errors_name_the_argument() -> None:
    with pytest.raises(TypeError, match=r"^b must be a function or a module"):
        first_difference(torch.sin, 3, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^a model must return a floating-point tensor"):
        first_difference(torch.sin, lambda x: None, X)
    with pytest.raises(ValueError, match=r"^models must return numbers to compare, got NaN alone"):
        first_difference(lambda x: x * math.nan, lambda x: x * math.nan, X)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        first_difference(nn.Linear(16, 2), nn.Linear(3, 2), X)


def test_a_failed_comparison_shows_the_first_difference() -> None:
    models = plant(ERRORS["bias"][0])
    with pytest.raises(AssertionError) as error:
        assert_equivalent(*models, [X])
    lines = str(error.value).splitlines()
    assert lines[0].startswith("first difference: layers.0.linear2 (a), layers.0.feed_forward")
    assert "cause: bias: the output lacks a bias, or has another one" in lines


def test_a_part_that_computes_in_float32_is_compared_in_float64() -> None:
    class Rounded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).float()

    model = Rounded(X.shape[-1], 4)
    assert first_difference(model, model, X).precision == "float64"
