"""A model is compared with values that another process or framework has saved."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_blocks import build_encoder
from transformer_blocks.inspection import first_difference, save_values
from transformer_blocks.inspection.record.values import load_values
from transformer_blocks.interop import from_torch

X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def make_model() -> Any:
    """Make an encoder of two layers, the same each time."""
    torch.manual_seed(0)
    return build_encoder(num_layers=2, d_model=8, num_heads=1, d_ff=12, activation=nn.GELU()).eval()


def normalise(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def compute_with_numpy(model: Any) -> dict[str, Any]:
    """Compute a layer's attention and output, and what it adds, as another framework would."""
    x, values = X.double().numpy(), {}
    for number, layer in enumerate(model.layers):
        w = {name: each.double().numpy() for name, each in layer.state_dict().items()}

        def linear(name: str, x: Any, w: Any = w) -> Any:
            return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        query, key, value, output = (
            f"self_attention.{name}_projection" for name in ("query", "key", "value", "output")
        )
        scores = linear(query, x) @ linear(key, x).transpose(0, 2, 1) / np.sqrt(8)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        values[f"block{number}/mixed"] = linear(output, weights @ linear(value, x))
        x = normalise(x + values[f"block{number}/mixed"])
        hidden: Any = torch.from_numpy(linear("feed_forward.up_projection", x))
        hidden = nn.functional.gelu(hidden).numpy()
        values[f"block{number}/mlp"] = linear("feed_forward.down_projection", hidden)
        x = values[f"block{number}"] = normalise(x + values[f"block{number}/mlp"])
    return values | {"logits": x.copy()}


FORMS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "other names": lambda values: values,
    "float32": lambda values: {name: x.float() for name, x in values.items()},
    "bfloat16": lambda values: {name: x.bfloat16() for name, x in values.items()},
    "features first, no output": lambda values: {
        name: x.permute(2, 1, 0).contiguous() for name, x in values.items() if name != "logits"
    },
    "missing tensors": lambda values: {
        name: values[name] for name in ("block0", "block1/mixed", "logits")
    },
    "more tensors": lambda values: values | {"cache": torch.ones(3, 3, 3), "ids": torch.arange(9)},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@torch.no_grad()
def test_values_of_plain_numpy_code_are_compared_in_any_form(tmp_path: Path, form: Any) -> None:
    model, path = make_model(), tmp_path / "golden.safetensors"
    values = {name: torch.from_numpy(x) for name, x in compute_with_numpy(model).items()}
    save_file(form(values), path)
    same = first_difference(path, model, X)
    assert not same, same
    lost = [name for name in same.skipped if "cache" in name]
    assert same.skipped == tuple(lost)
    assert len(lost) == ("cache" in form(values))
    model.layers[1].self_attention.value_projection.weight.t_()
    found = first_difference(str(path), model, X)
    name = "layers.1.self_attention.value_projection"
    assert (found.module_b, found.cause) == (name, f"transposed: {name}.weight")
    assert found.first is not None
    assert found.first.a == "block1/mixed output"
    assert found.skipped == same.skipped


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_values_show_the_first_difference_and_its_cause(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    model, path = make_model(), tmp_path / "golden.safetensors"
    save_values(make_model().to(dtype), X.to(dtype), path)
    same = first_difference(path, model, X)
    assert not same, same
    assert same.precision == str(dtype).removeprefix("torch.")
    model.layers[0].feed_forward.activation = nn.Tanh()
    found = first_difference(path, model, X)
    assert found.module_a == found.module_b == "layers.0.feed_forward.activation"
    assert found.cause == "activation: must be gelu"


@torch.no_grad()
def test_values_of_another_library_are_paired_by_what_follows_from_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    ours, x, path = from_torch(theirs), torch.randn(2, 5, 16), tmp_path / "golden.safetensors"
    save_values(theirs, x, path)
    assert not first_difference(path, ours, x)
    name = "layers.0.self_attention.value_projection"
    ours.get_submodule(name).get_parameter("weight").t_()
    found = first_difference(path, ours, x)
    assert (found.module_a, found.module_b) == ("layers.0.self_attn", name)
    assert found.cause == f"transposed: {name}.weight"


def test_saved_values_keep_their_order_and_all_their_names(tmp_path: Path) -> None:
    path = tmp_path / "golden.safetensors"
    model = nn.Sequential(*(nn.Identity() if n % 2 else nn.Linear(8, 8) for n in range(12)))
    save_values(model, X, path)
    places = [*load_values(path)]
    assert places[:3] == [("", "input", 0), ("0", "input", 0), ("0", "output", 0)]
    assert [name for name, what, _ in places if what == "output"] == [*map(str, range(12)), ""]
    save_file({f"layer{n}": torch.rand(2) for n in range(12)} | {"Output": torch.rand(2)}, path)
    assert [name for name, *_ in load_values(path)] == [*(f"layer{n}" for n in range(12)), ""]


def test_what_is_no_reference_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "golden.safetensors"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"golden\.safetensors must be a file of safetensors, got"):
        first_difference(path, torch.sin, X)
    save_file({"ids": torch.arange(3)}, path)
    with pytest.raises(ValueError, match=r"must hold tensors of floating-point numbers, got \['id"):
        first_difference(path, torch.sin, X)
    save_file({"x": torch.rand(7)}, path)
    with pytest.raises(ValueError, match=r"^saved values must fit those of b, got none that does"):
        first_difference(path, torch.sin, X)
    for no_file in (tmp_path / "nothing", tmp_path):
        with pytest.raises(OSError, match=no_file.name):
            first_difference(no_file, torch.sin, X)


class Cancelling(nn.Module):
    """Loses four digits, and is wrong by more if ``error`` is not zero."""

    def __init__(self, error: float = 0.0) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(8, 8), error

    def forward(self, x: Tensor) -> Tensor:
        return (self.layer(x) + 1e4) - 1e4 * (1 + self.error)


def test_rounding_of_saved_values_is_that_of_the_model_in_their_dtype(tmp_path: Path) -> None:
    path, model = tmp_path / "golden.safetensors", Cancelling()
    save_values(model, X, path)
    same = first_difference(path, model, X)
    assert not same, same
    assert same.outputs.distance > 1e-5  # more than rounding of a single operation
    assert first_difference(path, model, X, tolerance=1e-5)
    model.error = 1e-6
    assert first_difference(path, model, X)


class Projected(nn.Module):
    """Attention whose queries, keys and values are computed by one layer, or by three."""

    def __init__(self, *, is_fused: bool, order: Sequence[int] = (0, 1, 2)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, fused = nn.Embedding(9, 8), nn.Linear(8, 24)
        nn.init.normal_(fused.weight)
        parts = [nn.Linear(8, 8) for _ in order]
        for part, number in zip(parts, order, strict=True):
            part.weight.data, part.bias.data = (
                each.data.chunk(3)[number].clone() for each in (fused.weight, fused.bias)
            )
        self.parts = nn.ModuleList([fused] if is_fused else parts)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        projected = torch.cat([part(x) for part in self.parts], dim=-1)
        query, key, value = projected.chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(query, key, value)


IDS = torch.arange(8).view(2, 4)


def test_exchanged_projections_are_named_beside_one_that_computes_all_three(tmp_path: Path) -> None:
    path = tmp_path / "golden.safetensors"
    save_values(Projected(is_fused=True), IDS, path)
    same = first_difference(path, Projected(is_fused=False), IDS)
    assert not same
    assert not same.skipped
    found = first_difference(path, Projected(is_fused=False, order=(1, 0, 2)), IDS)
    assert found.cause == "exchanged: parts.0 and parts.1"
    assert ("parts.0 third 1 of output", "parts.1 output") in [(p.a, p.b) for p in found.agreed]


@pytest.mark.parametrize("form", ["ids", "vectors"])
def test_other_inputs_than_the_saved_ones_are_named(tmp_path: Path, form: str) -> None:
    path = tmp_path / "golden.safetensors"
    model, x = (Projected(is_fused=True), IDS) if form == "ids" else (make_model(), X)
    save_values(model, x, path)
    found = first_difference(path, model, x.flip(0))
    assert found.cause == "inputs: b must receive the saved ones"
    assert found.first is not None
    assert (found.first.a, found.first.b) == ("model input", "model input")
