"""Models of torch with converted parts: the same calls, with each of torch's masks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.blocks.reference import randomise
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import Encoder, MultiHeadAttention, causal_mask, record_attention
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import assert_equivalent
from transformer_blocks.interop import from_torch
from transformer_blocks.interop.torch_calls import TorchCall

D_MODEL, NUM_HEADS = 16, 4
SEEDED = torch.Generator().manual_seed(0)  # for the tensors that are made before the seed fixture
X, MEMORY = (torch.randn(2, length, D_MODEL, generator=SEEDED).double() for length in (5, 7))


def random_mask(*shape: int) -> Tensor:
    mask = torch.rand(*shape, generator=SEEDED) < 0.4
    return mask & (torch.arange(shape[-1]) > 0)  # torch gives NaN if every key is masked


FUTURE, PADDING = causal_mask(5), torch.arange(7) >= torch.tensor([[7], [3]])
MASKS = [None, random_mask(5, 5), random_mask(2 * NUM_HEADS, 5, 5), FUTURE]
CROSS_MASKS = [None, random_mask(5, 7), random_mask(2 * NUM_HEADS, 5, 7)]


def as_given(floats: bool, **masks: Tensor | None) -> dict[str, Tensor | None]:
    """Return the masks, or the same as 0 and -inf: torch wants all masks of a call of one type."""
    zero = torch.zeros((), dtype=torch.float64)
    return {
        name: zero.expand_as(mask).masked_fill(mask, -torch.inf)
        if floats and mask is not None
        else mask
        for name, mask in masks.items()
    }


class Model(nn.Module):
    """A model that calls a part of it with options of torch."""

    def __init__(self, part: Any, **options: Any) -> None:
        super().__init__()
        self.part, self.options = part, options
        self.output = nn.Linear(D_MODEL, 3)
        randomise(self.double().eval(), std=0.3)

    def forward(self, *inputs: Tensor) -> Tensor:
        found = self.part(*inputs, **self.options)
        return self.output(found[0] if isinstance(found, tuple) else found)


def layer(kind: Any = nn.TransformerEncoderLayer, **options: Any) -> Any:
    return kind(D_MODEL, NUM_HEADS, 24, **{"batch_first": True} | options)


def encoder(**options: Any) -> nn.TransformerEncoder:
    return nn.TransformerEncoder(layer(**options), 2, enable_nested_tensor=False)


def decoder(**options: Any) -> nn.TransformerDecoder:
    return nn.TransformerDecoder(layer(nn.TransformerDecoderLayer, **options), 2)


def assert_same_calls(model: nn.Module, *inputs: Tensor) -> None:
    converted = from_torch(model)
    assert type(converted) is type(model)
    assert any(isinstance(part, TorchCall) for part in converted.modules())
    assert not any(isinstance(part, nn.MultiheadAttention) for part in converted.modules())
    assert_equivalent(model, converted, inputs)


def ordered(batch_first: bool, *inputs: Tensor) -> list[Tensor]:
    return [x if batch_first else x.transpose(0, 1) for x in inputs]


@every_pair(
    {
        "batch_first": [True, False],
        "floats": [True, False],
        "mask": MASKS,
        "padding": [None, PADDING[:, :5]],
        "memory_mask": [*CROSS_MASKS, "encoder"],
        "memory_padding": [None, PADDING],
        "stack": [True, False],
    }
)
def test_stacks_and_layers_take_the_masks_of_torch_and_are_causal_only_by_one(
    batch_first: bool,
    floats: bool,
    mask: Any,
    padding: Any,
    memory_mask: Any,
    memory_padding: Any,
    stack: bool,
) -> None:
    if memory_mask == "encoder":  # which has no memory
        part: Any = encoder(batch_first=batch_first)
        own = {"mask" if stack else "src_mask": mask, "src_key_padding_mask": padding}
        options, inputs = as_given(floats, **own), [X]
    else:
        part, inputs = decoder(batch_first=batch_first), [X, MEMORY]
        options = as_given(
            floats,
            tgt_mask=mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=padding,
            memory_key_padding_mask=memory_padding,
        )
    hint = {"is_causal" if len(inputs) == 1 else "tgt_is_causal": mask is FUTURE}
    model = Model(part if stack else part.layers[0], **options, **hint)
    assert_same_calls(model, *ordered(batch_first, *inputs))


@every_pair(
    {
        "batch_first": [True, False],
        "floats": [True, False],
        "mask": CROSS_MASKS,
        "padding": [None, PADDING],
        "averaged": [True, False],
    }
)
def test_attention_takes_the_masks_of_torch_and_returns_weights(
    batch_first: bool, floats: bool, mask: Any, padding: Any, averaged: bool
) -> None:
    part = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=batch_first)
    masks = as_given(floats, attn_mask=mask, key_padding_mask=padding)
    model = Model(part, **masks, average_attn_weights=averaged)
    query, memory = ordered(batch_first, X, MEMORY)
    assert_same_calls(model, query, memory, memory)
    converted = from_torch(model)
    theirs, ours = (
        each.part(query, memory, memory, **each.options)[1] for each in (model, converted)
    )
    torch.testing.assert_close(ours, theirs)
    output, weights = converted.part(query, memory, memory, **masks, need_weights=False)
    torch.testing.assert_close(converted.output(output), model(query, memory, memory))
    assert weights is None


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_inside_a_model_calls_its_converted_parts(batch_first: bool) -> None:
    parts = encoder(batch_first=batch_first), decoder(batch_first=batch_first)
    model = Model(
        nn.Transformer(
            *(D_MODEL, NUM_HEADS),
            custom_encoder=parts[0],
            custom_decoder=parts[1],
            batch_first=batch_first,
        ),
        src_mask=random_mask(7, 7),
        tgt_mask=FUTURE,
        memory_mask=random_mask(5, 7),
        src_key_padding_mask=PADDING,
        tgt_key_padding_mask=PADDING[:, :5],
        memory_key_padding_mask=PADDING,
    )
    assert_same_calls(model, *ordered(batch_first, MEMORY, X))


def test_floats_other_than_zero_and_minus_infinity_are_refused() -> None:
    model = from_torch(Model(encoder()))
    for name, mask in (("mask", torch.full((5, 5), -1e9)), ("mask", torch.zeros(5, 5).long())):
        with pytest.raises(ValueError, match=r"^attn_mask must be boolean, .*got other numbers"):
            model.part(X, **{name: mask})
    with pytest.raises(ValueError, match=r"^key_padding_mask must be boolean"):
        model.part(X, src_key_padding_mask=torch.ones(2, 5))
    with pytest.raises(
        ValueError, match=r"^attn_mask must be given with is_causal=True, as in tor"
    ):
        model.part(X, is_causal=True)


class Several(nn.Module):
    """A model with parts that can be converted and others that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, D_MODEL)
        self.encoders = nn.ModuleList([encoder(), layer()])
        self.again = self.encoders[1]
        self.attention = nn.MultiheadAttention(D_MODEL, NUM_HEADS, add_zero_attn=True)
        self.special = nn.TransformerEncoder(Special(D_MODEL, NUM_HEADS, batch_first=True), 1)
        self.output = nn.Linear(D_MODEL, 9)
        self.output.weight = self.embedding.weight


class Special(nn.TransformerEncoderLayer):
    """May compute something else."""


def test_what_cannot_be_converted_is_left_and_named() -> None:
    model = Several()
    model.encoders[0].eval()
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(UserWarning, match="^from_torch leaves") as caught:
        converted = from_torch(model)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message).splitlines() == [
        "from_torch leaves these parts as they are:",
        "  attention: add_zero_attn=True has no equivalent here",
        "  special: module must be one of MultiheadAttention, TransformerEncoderLayer, "
        "TransformerDecoderLayer, TransformerEncoder, TransformerDecoder, Transformer, got Special",
    ]
    assert type(converted.special.layers[0]) is Special
    assert isinstance(converted.encoders[0].block, Encoder)
    assert converted.again is converted.encoders[1]  # shared, as it was
    assert converted.output.weight is converted.embedding.weight
    assert converted.output.weight is not model.output.weight
    assert [part.training for part in converted.encoders] == [False, True]
    assert model.state_dict().keys() == before.keys()  # the model is not changed
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def tie_inside(model: Any) -> None:
    model.first = model.part.layers[0]


def tie_outside(model: Any) -> None:
    model.output.weight = model.part.layers[0].linear2.weight


@pytest.mark.parametrize(
    ("tie", "name"), [(tie_inside, r"first\.linear1\.weight"), (tie_outside, r"output\.weight")]
)
def test_weights_of_a_converted_part_are_never_untied(
    tie: Callable[[Any], None], name: str
) -> None:
    model = Model(encoder())
    tie(model)
    with pytest.raises(
        ValueError, match=rf"^each weight that is converted .* shared weights .*{name}"
    ):
        from_torch(model)


def test_a_model_of_which_nothing_is_converted_is_refused() -> None:
    message = "^module must be or contain one of MultiheadAttention, .*, got Model\n  part: add_"
    with pytest.raises(TypeError, match=message):
        from_torch(Model(nn.MultiheadAttention(D_MODEL, NUM_HEADS, add_bias_kv=True)))
    mixed = encoder()
    mixed.layers[1] = layer(batch_first=False)
    with pytest.raises(TypeError, match="part: batch_first must be the same in all attentions"):
        from_torch(Model(mixed))


def test_a_converted_model_is_recorded_and_prepared_like_all_models() -> None:
    model = from_torch(Model(encoder(batch_first=False), src_key_padding_mask=PADDING[:, :5]))
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    x = X.transpose(0, 1)
    with torch.no_grad(), record_attention(model) as recorded:
        expected = model(x)
        real = ~PADDING[:, :5].T
        torch.testing.assert_close(prepare(model)(x)[real], expected[real])
    assert len(recorded) == len(attentions) == 2


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_single_sequence_is_taken_as_torch_takes_it(batch_first: bool) -> None:
    options: dict[str, Any] = {"batch_first": batch_first, "dtype": torch.float64}
    attention = nn.MultiheadAttention(D_MODEL, NUM_HEADS, **options)
    encoder = nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, 32, **options)
    decoder = nn.TransformerDecoderLayer(D_MODEL, NUM_HEADS, 32, **options)
    theirs = nn.ModuleList([attention, encoder, decoder]).eval()
    ours = from_torch(theirs)
    x, memory, padding = X[0], MEMORY[0], PADDING[1]
    calls: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = [
        ((x, memory, memory), {"key_padding_mask": padding}),
        ((x,), {"src_mask": FUTURE, "src_key_padding_mask": padding[-5:] & False}),
        ((x, memory), {"tgt_mask": FUTURE, "memory_key_padding_mask": padding}),
    ]
    for number, (args, masks) in enumerate(calls):
        pairs = [model[number](*args, **masks) for model in (theirs, ours)]
        expected, found = (each if isinstance(each, tuple) else (each,) for each in pairs)
        for a, b in zip(expected, found, strict=True):
            assert a.shape == b.shape
            assert torch.allclose(a, b)


def test_a_subclass_of_transformer_is_converted_alone_and_in_a_model() -> None:
    class Summing(nn.Transformer):
        def forward(self, *args: Any, **options: Any) -> Tensor:
            return super().forward(*args, **options).sum(dim=-1)

    theirs = Summing(D_MODEL, NUM_HEADS, 1, 1, 32, batch_first=True, dtype=torch.float64).eval()
    for model in (from_torch(theirs), from_torch(nn.Sequential(theirs))[0]):
        assert type(model) is Summing
        assert torch.allclose(model(MEMORY, X), theirs(MEMORY, X))
        assert any(isinstance(part, MultiHeadAttention) for part in model.modules())
