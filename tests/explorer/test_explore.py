"""One call makes the explorer's page of any model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.inspection.foreign import FAMILIES, own_weights
from torch import Tensor, nn

from transformer_blocks import EncoderDecoder, MultiHeadAttention, build_decoder, build_encoder
from transformer_blocks.explorer import explore

SOURCE, TARGET = list("abcdefg"), list("wxyz")


def tokens_of(kind: str) -> Any:
    return {"both": (SOURCE, TARGET), "image": None}.get(kind, SOURCE)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_the_page_holds_the_weights_that_the_model_returns_itself(name: str) -> None:
    family = FAMILIES[name]
    model, inputs = family.build(), family.inputs(padded=True)  # in training mode
    page = explore(model, inputs, tokens=tokens_of(family.kind), sequence=0)
    assert model.training
    own = own_weights(family.eager(model.eval())(**inputs, output_attentions=True))
    expected = [weights[0] for weights in own]
    if family.kind == "both":  # the encoder's layers, then those of the decoder in turn
        expected = [*expected[:2], expected[2], expected[4], expected[3], expected[5]]
        assert [maps.name for maps in page.maps] == [
            *("Encoder self-attention", "Decoder self-attention", "Cross-attention")
        ]
        assert [maps.queries for maps in page.maps] == [SOURCE, TARGET, TARGET]
        assert [maps.key_tokens for maps in page.maps] == [SOURCE, TARGET, SOURCE]
        output = "target (input of the decoder)"
        axes = [("source", "source"), (output, output), (output, "source")]
    else:
        assert [maps.name for maps in page.maps] == ["Self-attention"]
        numbers = [str(position) for position in range(5)]
        assert list(page.maps[0].queries) == (tokens_of(family.kind) or numbers)
        axes = [("query", "key")]
    assert [(maps.query_axis, maps.key_axis) for maps in page.maps] == axes
    found = [layer for maps in page.maps for layer in maps.weights]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("stack", ["own", "torch"])
def test_self_attention_and_cross_attention_of_equal_lengths_are_told_apart(stack: str) -> None:
    x = torch.randn(1, 4, 16)
    model: nn.Module = EncoderDecoder(
        build_encoder(num_layers=2, d_model=16, num_heads=2, d_ff=32),
        build_decoder(num_layers=2, d_model=16, num_heads=2, d_ff=32),
    )
    inputs: Any = (x, x)
    if stack == "torch":
        model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
        future = torch.ones(4, 4, dtype=torch.bool).triu(1)
        inputs = {"src": x, "tgt": x, "tgt_mask": future, "tgt_is_causal": True}
    page = explore(model, inputs, tokens=(list("abcd"), TARGET))
    assert {maps.name: (maps.queries, maps.key_tokens) for maps in page.maps} == {
        "Encoder self-attention": (list("abcd"), list("abcd")),
        "Decoder self-attention": (TARGET, TARGET),
        "Cross-attention": (TARGET, list("abcd")),
    }
    masks = {maps.name: maps.mask for maps in page.maps}
    mask = masks["Decoder self-attention"]
    assert mask is not None
    assert torch.equal(mask, torch.ones(4, 4, dtype=torch.bool).triu(1))
    assert masks["Cross-attention"] is masks["Encoder self-attention"] is None


def test_calls_of_one_module_are_shown_one_after_the_other(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = MultiHeadAttention(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(*[self.attention(x, x, x)] * 3)

    page = explore(Twice(), torch.randn(2, 3, 16), sequence=1, title="Twice")
    assert [maps.name for maps in page.maps] == ["Self-attention", "Self-attention, call 1"]
    assert not torch.equal(page.maps[0].weights, page.maps[1].weights)
    assert all(maps.arithmetic for maps in page.maps)  # each reproduces its own weights
    page.save(tmp_path / "page.html")
    assert "<title>Twice</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_position_is_masked_on_the_page_if_it_is_in_every_layer_and_head() -> None:
    masks = torch.zeros(2, 1, 2, 3, 3, dtype=torch.bool)  # for each layer, (B, H, L, S)
    masks[:, :, :, 0, 2] = True
    masks[:, :, 1, 1, 2] = True  # in one head
    masks[0, :, :, 2, 0] = True  # in one layer

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(MultiHeadAttention(16, 2) for _ in masks)

        def forward(self, x: Tensor) -> Tensor:
            for layer, mask in zip(self.layers, masks, strict=True):
                x = layer(x, x, x, mask=mask)
            return x

    (maps,) = explore(Masked(), torch.randn(1, 3, 16)).maps
    assert maps.mask is not None
    assert torch.equal(maps.mask, masks.all(dim=(0, 1, 2)))


def test_a_model_is_evaluated_without_dropout_and_is_afterwards_as_before() -> None:
    model = build_encoder(num_layers=2, d_model=16, num_heads=2, d_ff=32, dropout=0.5)
    model.layers[1].eval()
    before, x = [module.training for module in model.modules()], torch.randn(1, 3, 16)
    first, second = (explore(model, x).maps[0].weights for _ in range(2))
    assert torch.equal(first, second)
    assert [module.training for module in model.modules()] == before


def encoder() -> nn.Module:
    return build_encoder(num_layers=1, d_model=16, num_heads=2, d_ff=32)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": (["a"], ["b"])}, ValueError, r"^tokens must be those .* got 1 and 1 tokens$"),
        ({"tokens": "abc"}, TypeError, r"^tokens must be a list"),
        ({"sequence": 2}, ValueError, r"^sequence must be in 0\.\.1, got sequence=2$"),
        ({"tokens": (1, 2)}, TypeError, r"^tokens\[0\] must be an instance of str, got .*=1$"),
        (
            {"model": encoder().to("meta"), "inputs": torch.randn(2, 3, 16, device="meta")},
            ValueError,
            r"^model must compute values, got weights on the meta device$",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"model": encoder(), "inputs": torch.randn(2, 3, 16)} | options
    with pytest.raises(error, match=message):
        explore(**given)


def test_a_model_without_attention_is_refused() -> None:
    with (
        pytest.warns(UserWarning, match="no attention weights were recorded in Linear"),
        pytest.raises(ValueError, match=r"^model must compute attention, got none in Linear$"),
    ):
        explore(nn.Linear(4, 4), torch.randn(1, 3, 4))
