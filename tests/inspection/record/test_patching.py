"""Patches and ablations change the named parts and no others, and the model is then as before."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    AdditiveAttention,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    SingleHeadAttention,
    SinusoidalPositionalEncoding,
    attention_weights,
    build_decoder,
    build_encoder,
    record_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import ablate, patched, record_projections, record_values

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}


@pytest.mark.parametrize("kind", [PreNorm, PostNorm])
def test_an_ablated_residual_connection_does_not_add_its_input(
    kind: type[PreNorm] | type[PostNorm],
) -> None:
    residual, x = kind(16).eval(), torch.randn(2, 3, 16)
    feed_forward = FeedForward(16, 32)
    expected = feed_forward(residual.norm(x)) if kind is PreNorm else residual.norm(feed_forward(x))
    with ablate(residual, residuals=[""]):
        assert torch.equal(residual(x, feed_forward), expected)
    assert not torch.equal(residual(x, feed_forward), expected)


@pytest.mark.parametrize("kind", [SinusoidalPositionalEncoding, LearnedPositionalEncoding])
def test_without_positional_encodings_the_encoder_is_permutation_equivariant(kind: Any) -> None:
    positions = kind(16, max_length=6)
    for parameter in positions.parameters():
        nn.init.normal_(parameter)
    model = nn.Sequential(positions, build_encoder(**SIZES)).eval()
    x, order = torch.randn(1, 6, 16), torch.tensor([3, 1, 5, 0, 2, 4])
    with ablate(model, positions=True):
        torch.testing.assert_close(model(x[:, order]), model(x)[:, order])
        assert torch.equal(model[0](x), x)
    assert not torch.allclose(model(x[:, order]), model(x)[:, order], atol=1e-3)


def test_without_the_scale_scores_are_not_divided_by_sqrt_d_k() -> None:
    x = torch.randn(1, 5, 16)
    multi, single = MultiHeadAttention(16, 4).eval(), SingleHeadAttention(16).eval()
    model = nn.ModuleList([multi, single])
    with ablate(model, scale=True), record_attention(model) as maps:
        outputs = multi(x, x, x), single(x, x, x)
    queries = multi.query_projection(x).unflatten(-1, (4, 4)).transpose(1, 2)
    keys, values = multi.project(x, x)
    weights = attention_weights(queries, keys, scale=1.0)
    expected = multi.output_projection((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(outputs[0], expected)
    torch.testing.assert_close(maps["0"][0], weights)
    torch.testing.assert_close(
        maps["1"][0],
        attention_weights(
            single.query_projection(x)[:, None], single.key_projection(x)[:, None], scale=1.0
        ),
    )
    assert not torch.allclose(outputs[1], single(x, x, x))
    assert single.scale is None


def attributes(model: nn.Module) -> dict[str, Any]:
    """All attributes of a module and its submodules, by name."""
    return {
        f"{name}.{key}": dict(value) if isinstance(value, dict) else value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@torch.no_grad()
def test_cached_decoding_steps_are_ablated_as_a_full_pass() -> None:
    decoder = build_decoder(**SIZES).eval()
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    parts: dict[str, Any] = {
        "heads": {"layers.1.self_attention": [2], "layers.0.cross_attention": [0]},
        "residuals": ["layers.0.feed_forward_residual"],
        "scale": True,
    }
    with ablate(decoder, **parts):
        expected = decoder(x, memory)
        cache = decoder.new_cache(memory)
        steps = [decoder(part, cache=cache) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"heads": {"x": [0]}}, ValueError, r"^model must have a module of this name, got 'x'$"),
        (
            {"residuals": ["layers.0.feed_forward"]},
            TypeError,
            r"^'layers\.0\.feed_forward' must be an instance of PreNorm or PostNorm, got",
        ),
        ({"positions": True}, ValueError, r"^model must have a positional encoding, got none in"),
    ],
)
def test_parts_that_do_not_exist_are_refused(
    parts: dict[str, Any], error: type[Exception], message: str
) -> None:
    encoder = build_encoder(**SIZES)
    before = attributes(encoder)
    with pytest.raises(error, match=message), ablate(encoder, modules=["layers.1"], **parts):
        raise AssertionError("the block must not begin")
    assert attributes(encoder).keys() == before.keys()
    assert not encoder.layers[1]._forward_hooks


class Unused(nn.Module):
    """A model that calls its encoder alone."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = build_encoder(**SIZES)
        self.positions, self.extra = SinusoidalPositionalEncoding(16), PreNorm(16)
        self.attention = MultiHeadAttention(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"positions": True}, "positional encodings"),
        ({"residuals": ["extra"]}, "residual connection 'extra'"),
        ({"modules": ["attention"]}, "module 'attention'"),
        ({"heads": {"attention": [1]}}, "heads of 'attention'"),
    ],
)
def test_a_part_that_the_model_never_calls_is_named(parts: dict[str, Any], name: str) -> None:
    model, x = Unused(), torch.randn(1, 3, 16)
    before = attributes(model)
    with (
        pytest.raises(ValueError, match=rf"^{name} could not be patched: the model was called, "),
        ablate(model, **parts),
    ):
        model(x)
    assert attributes(model) == before
    with ablate(model, **parts):
        model.encoder(x)  # whose part is not in it
    with ablate(model, scale=True):  # one of the layers is called
        model(x)


def test_models_without_a_scale_and_prepared_models_are_refused() -> None:
    for model, message in (
        (nn.Linear(3, 3), r"^model must have an attention layer, got none in Linear$"),
        (prepare(build_encoder(**SIZES)), r"^model must not be prepared for inference; patch"),
    ):
        with pytest.raises(ValueError, match=message):
            ablate(model, scale=True).__enter__()
    additive = MultiHeadAttention(16, 4, attention_function=AdditiveAttention(4, 4))
    before = attributes(additive)
    with (
        pytest.raises(ValueError, match=r"^scale must be False for additive attention, whose"),
        ablate(additive, scale=True, modules=[""]),
    ):
        pass
    assert attributes(additive).keys() == before.keys()
    assert not additive._forward_hooks


def test_a_module_that_returns_no_tensor_cannot_be_ablated() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> list[Tensor]:
            return [x, x]

    with (
        pytest.raises(
            TypeError, match=r"^a module to patch must return a tensor, got list from Pair"
        ),
        ablate(pair := Pair(), modules=[""]),
    ):
        pair(torch.randn(2, 1, 4))


def test_a_copy_made_inside_the_block_computes_with_its_own_weights() -> None:
    residual, x = PreNorm(16).eval(), torch.randn(2, 3, 16)
    with ablate(residual, residuals=[""]):
        copied = copy.deepcopy(residual)
    nn.init.zeros_(copied.norm.get_parameter("weight"))
    assert torch.equal(copied(x, lambda x: x), torch.zeros_like(x))


# --- patching


class Explicit(nn.Module):
    """Attention with an explicit softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q = x.unflatten(-1, (4, 4)).transpose(1, 2)
        return ((q @ q.mT).softmax(-1) @ q).transpose(1, 2).flatten(2)


def with_bias(attention: nn.MultiheadAttention) -> nn.MultiheadAttention:
    nn.init.normal_(attention.out_proj.bias)  # zero at first
    return attention


ATTENTIONS: dict[str, tuple[nn.Module, int, Any]] = {
    "ours": (MultiHeadAttention(16, 4), 4, lambda m, x: m(x, x, x)),
    "one head": (SingleHeadAttention(16), 1, lambda m, x: m(x, x, x)),
    "torch": (
        with_bias(nn.MultiheadAttention(16, 4, batch_first=True)),
        4,
        lambda m, x: m(x, x, x)[0],
    ),
    "one sequence": (nn.MultiheadAttention(16, 4), 4, lambda m, x: m(x[0], x[0], x[0])[0]),
    "explicit": (Explicit(), 4, lambda m, x: m(x)),
}


@pytest.mark.parametrize(("model", "num_heads", "run"), ATTENTIONS.values(), ids=ATTENTIONS)
@torch.no_grad()
def test_with_the_heads_of_another_input_attention_returns_that_of_the_other_input(
    model: nn.Module, num_heads: int, run: Any
) -> None:
    x, other = torch.randn(2, 3, 5, 16)
    before = run(model, x)
    with record_values(model, only=lambda _: False, heads={"": range(num_heads)}) as values:
        expected = run(model, other)
        run(model, x)
    torch.testing.assert_close(expected, run(model, other))
    seen, others = values[""]
    assert f"{values}".startswith(f": heads {', '.join(map(str, seen))} of (")
    assert all(each.shape == others[head].shape for head, each in seen.items())
    with patched(model, {"": seen}):
        torch.testing.assert_close(run(model, x), expected)
    one = {"": {num_heads - 1: seen[num_heads - 1]}}
    with patched(model, one, positions=[2, -1]):
        changed = (run(model, x) != before).any(-1).reshape(-1, 5)
    assert changed.any(0).tolist() == [False, False, True, False, True]
    assert torch.equal(run(model, x), before)


@pytest.mark.parametrize(("model", "num_heads", "run"), ATTENTIONS.values(), ids=ATTENTIONS)
def test_gradients_flow_through_the_heads_that_are_not_patched(
    model: nn.Module, num_heads: int, run: Any
) -> None:
    for patched_heads in (range(num_heads), range(num_heads - 1)):
        x = torch.randn(2, 5, 16, requires_grad=True)
        with patched(model, {"": dict.fromkeys(patched_heads, 0.0)}):
            (gradient,) = torch.autograd.grad(run(model, x).sum(), x)
        assert bool(gradient.any()) == (len(patched_heads) < num_heads)


@torch.no_grad()
def test_the_output_of_a_head_is_its_weights_times_its_values() -> None:
    attention, x = MultiHeadAttention(16, 4, num_key_value_heads=2), torch.randn(2, 5, 16)
    with record_attention(attention) as maps, record_projections(attention) as projections:
        expected = attention(x, x, x)
    heads = maps[""][0] @ projections[""][0].value
    with patched(attention, {"": dict(enumerate(heads.unbind(1)))}):
        torch.testing.assert_close(attention(*3 * [torch.zeros(2, 5, 16)]), expected)


@torch.no_grad()
def test_a_module_is_replaced_by_values_of_another_input_a_number_or_a_function() -> None:
    model = build_encoder(**SIZES).eval()
    x, other = torch.randn(2, 3, 5, 16)
    with record_values(model, only=lambda name: name.startswith("layers.")) as values:
        expected = model(other)
    assert values["layers.0"][0].shape == (3, 5, 16)
    assert "" not in values
    with patched(model, {"layers.0": values["layers.0"][0]}):
        assert torch.equal(model(x), expected)
    with patched(model, {"layers.1": lambda y: y.mean((0, 1)), "layers.0.feed_forward": 0.0}):
        y = model(x)
        assert torch.equal(y, y[:1, :1].expand_as(y))
    name = "layers.0.self_attention"
    with patched(model, {name: {1: 0.0}, "layers.1.feed_forward": 0.0}):
        without = model(x)
    with ablate(model, heads={name: [1]}, modules=["layers.1.feed_forward"]):
        assert torch.equal(model(x), without)
    with patched(model, {"layers.1": values["layers.1"][0]}, positions=[0, 2]):
        assert (model(x) == expected).all(-1)[0].tolist() == [True, False, True, False, False]


def test_numbers_and_tensors_of_another_dtype_are_converted() -> None:
    model, x = build_encoder(**SIZES).eval().double(), torch.randn(2, 5, 16).double()
    for patch in (0.5, torch.full((16,), 0.5)):
        with patched(model, {"": patch}):
            assert model(x).dtype == torch.float64


def test_of_a_tuple_the_first_tensor_is_patched_and_recorded() -> None:
    class Cached(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            return x, [x]

    x = torch.ones(1, 2, 3)
    with patched(model := Cached(), {"": 0.0}), record_values(model) as values:
        y, (cache,) = model(x)
    assert [bool(each.any()) for each in (y, cache, values[""][0])] == [False, True, False]


@pytest.mark.parametrize(
    ("values", "positions", "error", "message"),
    [
        (
            {"": torch.zeros(4)},
            None,
            RuntimeError,
            r"expanded size of the tensor \(16\) must match",
        ),
        ({"": {1: torch.ones(3)}}, None, RuntimeError, r"expanded size of the tensor \(4\) must"),
        ({"": {4: 0.0}}, None, IndexError, r"4 is out of bounds for dimension 1 with size 4"),
        ({"": 0.0}, [5], IndexError, r"5 is out of bounds"),
        ({"": 0.0}, 3, TypeError, r"^positions must be a list, got positions=3$"),
        ({"": lambda y: None}, None, RuntimeError, r"dtype of NoneType"),
    ],
)
def test_what_does_not_fit_is_refused(
    values: Any, positions: Any, error: type[Exception], message: str
) -> None:
    attention, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
    before = attributes(attention)
    with pytest.raises(error, match=message), patched(attention, values, positions=positions):
        attention(x, x, x)
    assert attributes(attention) == before
