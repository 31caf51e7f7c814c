"""Conversions from and to torch's modules: the same weights give the same outputs and gradients."""

import copy
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.blocks.reference import randomise
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    AdditiveAttention,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import assert_equivalent
from transformer_blocks.interop import from_torch, load_weights, to_torch

D_MODEL, NUM_HEADS, D_FF = 16, 4, 24
SEEDED = torch.Generator().manual_seed(0)  # for the tensors that are made before the seed fixture
X, MEMORY = (torch.randn(2, length, D_MODEL, generator=SEEDED).double() for length in (5, 7))
FUTURE, PADDING = causal_mask(5), torch.arange(7) >= torch.tensor([[7], [3]])


def layer_options(norm_first: bool = False, bias: bool = True, activation: Any = F.relu) -> Any:
    return {
        "dim_feedforward": D_FF,
        "norm_first": norm_first,
        "bias": bias,
        "activation": activation,
        "batch_first": True,
        "dtype": torch.float64,
    }


@every_pair(
    {
        "dtype": [torch.float64, torch.float32],
        "attention_function": [fused_attention, scaled_dot_product_attention],
        "bias": [True, False],
        "widths": [(None, None), (6, None), (None, 5), (6, 5)],
        "padded": [False, True],
        "causal": [False, True],
    }
)
def test_attention_survives_the_round_trip(
    dtype: torch.dtype,
    attention_function: Any,
    bias: bool,
    widths: tuple[int | None, ...],
    padded: bool,
    causal: bool,
) -> None:
    theirs: Any = randomise(
        nn.MultiheadAttention(
            *(D_MODEL, NUM_HEADS, 0.2, bias),
            kdim=widths[0],
            vdim=widths[1],
            batch_first=True,
            dtype=dtype,
        )
    ).eval()
    options: Any = {
        "key_padding_mask": PADDING[:, :5] if padded else None,
        "attn_mask": FUTURE if causal else None,
        "average_attn_weights": False,
    }
    mask = PADDING[:, None, None, :5] if padded else None
    inputs = [torch.randn(2, 5, width or D_MODEL, dtype=dtype) for width in (None, *widths)]
    ours = from_torch(theirs)
    assert isinstance(ours, MultiHeadAttention)
    assert ours.dropout == 0.2
    assert_same_state(to_torch(ours), theirs)
    assert_equivalent(theirs, ours, inputs)
    ours.attention_function = attention_function
    assert_equivalent(
        lambda *inputs: theirs(*inputs, **options),
        lambda *inputs: ours(*inputs, mask=mask, causal=causal),
        inputs,
    )
    assert_equivalent(
        lambda *inputs: theirs(*inputs, **options)[1],
        lambda query, key, _: ours.attention_weights(query, key, mask=mask, causal=causal),
        inputs,
    )


@every_pair(
    {
        "kind": [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer],
        "dtype": [torch.float64, torch.float32],
        "norm_first": [False, True],
        "bias": [True, False],
        "activation": [F.relu, F.gelu, nn.SiLU()],
    }
)
def test_a_layer_survives_the_round_trip(
    kind: Any, dtype: torch.dtype, norm_first: bool, bias: bool, activation: Any
) -> None:
    options = layer_options(norm_first, bias, activation)
    theirs: Any = randomise(kind(D_MODEL, NUM_HEADS, **options), 0.3).to(dtype).eval()
    ours, x, memory = from_torch(theirs), X.to(dtype), MEMORY.to(dtype)
    mask, memory_mask = PADDING[:, None, None, :5], PADDING[:, None, None]
    assert_same_state(to_torch(ours), theirs)
    if kind is nn.TransformerEncoderLayer:
        assert_equivalent(theirs, ours, [x])
        assert_equivalent(to_torch(ours), ours, [x])
        assert_equivalent(
            lambda x: theirs(x, src_mask=FUTURE, src_key_padding_mask=PADDING[:, :5]),
            lambda x: ours(x, causal=True, mask=mask),
            [x],
        )
    else:
        assert_equivalent(
            lambda *inputs: theirs(*inputs, FUTURE, None, PADDING[:, :5], PADDING),
            lambda *inputs: ours(*inputs, mask=mask, memory_mask=memory_mask),
            [x, memory],
        )


@pytest.mark.parametrize("norm", [True, False])
def test_a_whole_transformer_survives_the_round_trip(norm: bool) -> None:
    norms = [
        nn.LayerNorm(D_MODEL, eps=1e-3, dtype=torch.float64) if norm else None for _ in range(2)
    ]
    encoder_layer = nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, **layer_options())
    decoder_layer = nn.TransformerDecoderLayer(D_MODEL, NUM_HEADS, **layer_options())
    encoder = nn.TransformerEncoder(encoder_layer, 3, norms[0], enable_nested_tensor=False)
    theirs: Any = nn.Transformer(
        *(D_MODEL, NUM_HEADS),
        custom_encoder=encoder,
        custom_decoder=nn.TransformerDecoder(decoder_layer, 2, norms[1]),
        batch_first=True,
    )
    randomise(theirs, 0.3).eval()
    ours = from_torch(theirs)
    assert_equivalent(encoder, ours.encoder, [X])
    assert_equivalent(
        lambda source, target: theirs(
            source,
            target,
            tgt_mask=FUTURE,
            src_key_padding_mask=PADDING,
            memory_key_padding_mask=PADDING,
        ),
        lambda source, target: ours(source, target, source_mask=PADDING[:, None, None]),
        [MEMORY, X],
    )
    again = to_torch(ours)
    assert_same_state(again, theirs)
    assert (again.d_model, again.nhead) == (D_MODEL, NUM_HEADS)
    assert_equivalent(again, lambda *inputs: ours(*inputs, causal=False), [MEMORY, X])


SIZES: dict[str, Any] = {"num_layers": 2, "d_model": D_MODEL, "num_heads": NUM_HEADS, "d_ff": D_FF}


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_blocks_survive_the_round_trip_bit_for_bit(residual: Any) -> None:
    ours = EncoderDecoder(
        build_encoder(**SIZES, residual=residual, dropout=0.3, attention_dropout=0.2),
        build_decoder(**SIZES, residual=residual, activation=F.gelu),
    )
    randomise(ours, 0.3).train()
    ours.encoder.layers[0].requires_grad_(False)
    back = from_torch(to_torch(ours))
    assert_same_state(back, ours)
    assert [weight.requires_grad for weight in back.parameters()] == [
        weight.requires_grad for weight in ours.parameters()
    ]
    assert back.training
    assert str(back) == str(ours)  # dropouts, sizes and norms
    layer = from_torch(nn.TransformerEncoderLayer(8, 2, dropout=0.3, batch_first=True))
    assert layer.feed_forward.get_submodule("dropout").p == 0.3
    theirs = to_torch(ours.encoder)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
    assert all(weight.any() for weight in ours.parameters())  # the module has copies


def assert_same_state(a: nn.Module, b: nn.Module) -> None:
    states = a.state_dict(), b.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        assert tensor.dtype == states[1][name].dtype
        assert torch.equal(tensor, states[1][name]), name


def attention(**options: Any) -> nn.Module:
    return nn.MultiheadAttention(D_MODEL, NUM_HEADS, **{"batch_first": True} | options)


class Subclass(nn.TransformerEncoderLayer):
    """May compute something else."""


def encoder_layer(
    feed_forward: nn.Module | None = None, norm: nn.Module | None = None, **options: Any
) -> EncoderLayer:
    return EncoderLayer(
        MultiHeadAttention(D_MODEL, NUM_HEADS, **options),
        feed_forward or FeedForward(D_MODEL, D_FF),
        residual=lambda: PreNorm(D_MODEL, norm=copy.deepcopy(norm)),
    )


def mixed_layer() -> EncoderLayer:
    residuals = iter([PreNorm(D_MODEL), PostNorm(D_MODEL)])
    return EncoderLayer(
        MultiHeadAttention(D_MODEL, NUM_HEADS),
        FeedForward(D_MODEL, D_FF),
        residual=residuals.__next__,
    )


class Tied(nn.Module):
    """Tied embeddings: one weight for the input and the output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.output = nn.Linear(2, 3, bias=False)
        self.output.weight = self.embedding.weight


WRONG: dict[str, tuple[Tensor | None, str]] = {
    "missing": (None, r"^the weights lack tensor 'embedding.weight' \(1 missing"),
    "shape": (torch.ones(2, 3), r"\(3, 2\), got .* \(2, 3\)$"),
    "dtype": (torch.ones(3, 2).double(), r"torch\.float32 of .* got torch\.float64"),
    "infinity": (torch.full((3, 2), torch.inf), "NaN or infinity"),
    "tied": (torch.ones(3, 2), "^'embedding.weight' and 'output.weight' are tied in the module"),
}


@pytest.mark.parametrize("name", [*WRONG, "extra"])
def test_weights_that_do_not_fit_are_refused_by_name(name: str) -> None:
    model = Tied()
    weights = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    before, changed = model.embedding.weight.detach().clone(), dict(weights)
    tensor, message = WRONG.get(name, (weights["embedding.weight"], r"no tensor 'gate' \(1 extra"))
    del changed["embedding.weight"]
    if tensor is not None:
        changed["embedding.weight"] = tensor
    if name == "extra":
        changed["gate"] = torch.ones(2)
    with pytest.raises(ValueError, match=message):
        load_weights(model, changed)
    assert torch.equal(model.embedding.weight, before)
    load_weights(model, weights)
    torch.testing.assert_close(model.embedding.weight.detach(), before + 1)


def linear_with(gradient_factor: float, *, frozen: str = "-") -> nn.Module:
    """Make a linear layer that multiplies its gradient; what ``frozen`` names has none."""
    layer = nn.Linear(2, 2)
    for name, parameter in layer.named_parameters():
        nn.init.ones_(parameter)
        parameter.requires_grad_(frozen not in name)
    layer.weight.register_hook(lambda gradient: gradient_factor * gradient)
    return layer


OF_INPUT, OF_WEIGHTS = "output gradient of input 0 ", "output gradient of all parameters "
DIFFERENT: list[tuple[Any, Any, str]] = [
    (lambda x: x, lambda x: x + torch.is_grad_enabled(), "model output model output 5e-01"),
    (lambda x: x, lambda x: x.detach() + 0 * x, OF_INPUT),
    (linear_with(1.0), linear_with(-1.0), OF_WEIGHTS),
    (linear_with(1.0), linear_with(1.0, frozen="bias"), r"shapes \(6,\) \(a\) and \(4,\) \(b\)"),
]


@pytest.mark.parametrize(("a", "b", "message"), DIFFERENT)
def test_a_difference_of_outputs_or_gradients_is_named(a: Any, b: Any, message: str) -> None:
    with pytest.raises(AssertionError) as error:
        assert_equivalent(a, b, [torch.ones(2, 2)])
    assert re.search(message, " ".join(str(error.value).split())), error.value


def test_an_assertion_changes_nothing_and_passes_on_what_is_no_tensor() -> None:
    x, ours = torch.ones(2), build_encoder(**SIZES)
    assert_equivalent(lambda x, k: (1 * x).mul_(k), lambda x, k: x * k, [x, 3])
    assert torch.equal(x, torch.ones(2))
    assert not x.requires_grad
    assert_equivalent(ours, copy.deepcopy(ours), [X.float()])
    assert ours.training  # as it was
    assert all(weight.grad is None for weight in ours.parameters())
    with pytest.raises(TypeError, match=r"a list of arguments, got a tensor; pass \[x\]"):
        assert_equivalent(torch.abs, torch.abs, x)  # type: ignore[arg-type]


class SubclassedAttention(nn.MultiheadAttention):
    """May compute something else."""


def their_layer(**parts: Any) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, D_FF, batch_first=True)
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


def changed(make: Callable[[], Any], change: Callable[[Any], object]) -> Callable[[], Any]:
    """Return a function that makes a module and changes it."""

    def make_changed() -> Any:
        module = make()
        change(module)
        return module

    return make_changed


def replaced(method: str, path: str = "") -> Callable[[Any], None]:
    """Return a function that replaces a method of a part of a module by itself."""

    def change(module: Any) -> None:
        part = module.get_submodule(path)
        setattr(part, method, getattr(part, method))

    return change


def share(part: str, other: str) -> Callable[[Any], None]:
    """Return a function that gives a module the same part or parameter in two places."""

    def change(module: Any) -> None:
        owner, _, name = part.rpartition(".")
        setattr(module.get_submodule(owner), name, attrgetter(other)(module))

    return change


def their_stack() -> nn.Module:
    return nn.TransformerEncoder(their_layer(), 2, enable_nested_tensor=False)


def our_decoder() -> nn.Module:
    return build_decoder(**SIZES)


def both_stacks() -> nn.Module:
    return EncoderDecoder(build_encoder(**SIZES), build_decoder(**SIZES))


REFUSED_FROM_TORCH: list[tuple[Callable[[], Any], str]] = [
    (lambda: attention(add_bias_kv=True), "add_bias_kv=True has no equivalent"),
    (lambda: attention(batch_first=False), "set batch_first = True in it and in each"),
    (lambda: Subclass(16, 4, batch_first=True), "must be one of .*, got Subclass$"),
    (lambda: nn.Linear(2, 2), "contain one of MultiheadAttention, .* got Linear$"),
    (
        lambda: their_layer(self_attn=SubclassedAttention(16, 4, batch_first=True)),
        "attention must be a MultiheadAttention, got SubclassedAttention",
    ),
    (lambda: their_layer(linear1=nn.Sequential()), "linear1 must be a Linear"),
    (
        changed(their_layer, lambda layer: layer.linear1.register_forward_hook(print)),
        "linear1 must have neither hooks .*got hooks$",
    ),
    (
        changed(their_stack, replaced("forward", "layers.0")),
        "^layers.0 must have neither .*got a replaced forward$",
    ),
    (
        changed(their_stack, share("layers.1.linear1.weight", "layers.0.linear1.weight")),
        r"got shared weights layers\.1\.linear1\.weight$",
    ),
    (lambda: nn.TransformerEncoderLayer, "module must be a module.*pass an instance of the class$"),
]
OF_ATTENTION: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda layer: setattr(layer, "output_projection", nn.Linear(8, 8, bias=False)),
        "all projections must have a bias, or none",
    ),
    (lambda layer: layer.query_projection.requires_grad_(False), "must all be frozen, or none"),
    (lambda layer: layer.key_projection.to("meta"), "^weights that torch concatenates must have"),
]
SHARED = r"^each weight .* must belong to one part, .* shared weights "
OWN, CROSS = "layers.1.self_attention", "layers.0.cross_attention"
REFUSED_TO_TORCH: list[tuple[Callable[[], Any], str]] = [
    (lambda: encoder_layer(GatedFeedForward(16, 24)), "feed_forward must be a Feed"),
    (lambda: encoder_layer(norm=nn.RMSNorm(16)), "norm must be a LayerNorm, got RMS"),
    (
        lambda: encoder_layer(attention_function=AdditiveAttention(4, 4)),
        "attention_function must be scaled dot-product attention, as in torch, got Additive",
    ),
    (
        lambda: MultiHeadAttention(8, 2, transforms=[QueryKeyNorm(4)]),
        "^transforms must be empty, as torch's attention has no",
    ),
    (
        lambda: MultiHeadAttention(8, 2, num_key_value_heads=1),
        "num_key_value_heads be num_heads, as in torch, got .* num_key_value_heads=1$",
    ),
    (mixed_layer, "all PreNorm or all PostNorm, got PostNorm, PreNorm"),
    (lambda: prepare(build_encoder(**SIZES)), "must be one of .* got UnpaddedEncoder"),
    (lambda: nn.Linear(2, 2), "block must be one of MultiHead.* got Linear"),
    *(
        (changed(lambda: MultiHeadAttention(8, 2), change), message)
        for change, message in OF_ATTENTION
    ),
    (
        changed(
            our_decoder, share(f"{OWN}.key_projection.weight", f"{CROSS}.key_projection.weight")
        ),
        rf"{SHARED}{OWN}.key_projection\.weight$",
    ),
    (
        changed(
            both_stacks,
            share("encoder.layers.1.self_attention", "decoder.layers.0.self_attention"),
        ),
        rf"{SHARED}decoder\.layers\.0\.self_attention\.query_.*$",
    ),
]


@pytest.mark.parametrize(
    ("convert", "make", "message"),
    [
        *((from_torch, *case) for case in REFUSED_FROM_TORCH),
        *((to_torch, *case) for case in REFUSED_TO_TORCH),
    ],
)
def test_what_has_no_equivalent_is_refused_by_name(
    convert: Any, make: Callable[[], Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        convert(make())


def test_parts_outside_of_torchs_fast_path_disable_it() -> None:
    for layer in (
        encoder_layer(FeedForward(D_MODEL, D_FF, bias=False)),
        encoder_layer(norm=nn.LayerNorm(D_MODEL, bias=False)),
        encoder_layer(FeedForward(D_MODEL, D_FF, activation=nn.GELU("tanh"))),
    ):
        layer.eval()
        assert_equivalent(to_torch(layer), layer, [torch.randn(2, 5, D_MODEL)])


def test_a_conversion_preserves_shared_layers_and_their_modes() -> None:
    theirs = nn.TransformerEncoder(their_layer(), 4, enable_nested_tensor=False)
    theirs.layers[3] = theirs.layers[1] = theirs.layers[0]
    theirs.layers[0].eval()
    ours = from_torch(theirs)
    for stack in (ours, to_torch(ours), from_torch(to_torch(ours))):
        layers = list(stack.layers)
        assert layers[0] is layers[1] is layers[3] is not layers[2]
        assert stack.training
        assert [layer.training for layer in layers] == [False, False, True, False]
        numbers = [sum(weight.numel() for weight in each.parameters()) for each in (stack, theirs)]
        assert numbers[0] == numbers[1]


def test_weights_may_be_views_of_the_module_but_not_on_the_meta_device() -> None:
    pair = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    first, second = (weight.detach().clone() for weight in pair.parameters())
    state = pair.state_dict()
    load_weights(pair, {"0.weight": state["1.weight"], "1.weight": state["0.weight"]})
    assert torch.equal(pair[0].get_parameter("weight"), second)
    assert torch.equal(pair[1].get_parameter("weight"), first)
    on_meta = nn.Linear(2, 2, device="meta")
    with pytest.raises(ValueError, match="'weight' must hold numbers, and is on the meta device"):
        load_weights(on_meta, nn.Linear(2, 2).state_dict())


def test_a_buffer_may_be_infinite() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    load_weights(Masked(), Masked().state_dict())
    with pytest.raises(ValueError, match="NaN or infinity"):
        load_weights(Masked(), {"mask": torch.tensor([torch.inf, -torch.inf])})
