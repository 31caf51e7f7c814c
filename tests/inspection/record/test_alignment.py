"""Word alignments are read from the cross-attention of one forward pass."""

from typing import Any

import pytest
import torch
from tests.inspection.foreign import FAMILIES
from torch import Tensor, nn

from transformer_blocks import build_decoder, build_seq2seq
from transformer_blocks.inspection import align

ORDER = [3, 1, 4, 2]  # the source position of each target token, after the begin token


class Reordering(nn.Module):
    """A translator whose second head of the last layer attends to known positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 16)
        self.decoder = build_decoder(num_layers=2, d_model=16, num_heads=2, d_ff=32)
        attention = self.decoder.layers[1].get_submodule("cross_attention")
        attention.attention_function = self.attend
        for each in self.decoder.layers[0].get_submodule("cross_attention").parameters():
            nn.init.zeros_(each)  # attends to all positions alike

    def attend(self, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        weights = torch.full((1, 2, query.shape[2], key.shape[2]), 0.0)
        weights[:, 0, :, -1] = 1.0  # sure, and of no use
        for row, place in enumerate([*ORDER, 5, 5, 5][: query.shape[2]]):
            weights[:, 1, row, place] = 0.9
            weights[:, 1, row, 0] = 0.1
        return weights @ value, weights

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decoder(self.embedding(target), self.embedding(source))


@pytest.mark.parametrize("more", [[], [9]], ids=["as long", "one longer"])
def test_a_known_alignment_is_found_with_its_layer_head_and_confidence(more: list[int]) -> None:
    model = Reordering().train()
    source, target = [1, 11, 12, 13, 14, 2], [1, 15, 16, 17, 18, *more, 2]
    found = align(model, source, torch.tensor(target), ignored=[1, 2])
    assert found.pairs == [(place, number + 1) for number, place in enumerate(ORDER)]
    assert (found.layer, found.head) == ("decoder.layers.1.cross_attention", 1)
    assert found.confidence == pytest.approx([0.9] * 4)
    assert found.weights.shape == (len(target), len(source))
    assert not found.weights[0].any()
    bits = {name: each.tolist() for name, each in found.information.items()}
    assert bits["decoder.layers.0.cross_attention"] == pytest.approx([0.0, 0.0], abs=1e-5)
    assert bits["decoder.layers.1.cross_attention"][0] == pytest.approx(0.0, abs=1e-5)
    assert all(part.training for part in model.modules())
    assert str(found).splitlines()[:3] == [
        "decoder.layers.1.cross_attention, head 1",
        "source  target  confidence",
        "13      15      0.90",
    ]
    words = align(
        model, source, target, ignored=[1, 2], words=("^猫犬鳥魚.", "^abcdefg"[: len(target)])
    )
    assert "鳥      a       0.90" in str(words)
    useless = align(model, source, target, layer=found.layer, head=0)
    assert useless.pairs == [(5, number) for number in range(1, len(target))]
    assert align(model, source, target, layer=found.layer, head=0, ignored=[1, 2]).pairs == []


def test_models_of_hugging_face_are_aligned_too() -> None:
    model = FAMILIES["Marian"].build()
    found = align(model, [5, 6, 7, 8], [0, 9, 4, 3, 2])
    assert found.layer.endswith("encoder_attn")
    assert [number for _, number in found.pairs] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"^target must begin with the begin token 0, got 9$"):
        align(model, [5, 6, 7, 8], [9, 4, 3, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": "x"}, r"^layer must be one of \['.*cross_attention', .*, got layer='x'$"),
        ({"target": [5, 2]}, r"^target must begin with the begin token 1, got 5$"),
        ({"source": []}, r"^source must have a token, got none$"),
        ({"target": [1]}, r"^target must have a token after the begin token, got target=\[1\]$"),
    ],
)
def test_what_cannot_be_aligned_is_refused(arguments: dict[str, Any], message: str) -> None:
    model = build_seq2seq(20, 20, num_layers=2, d_model=16, num_heads=4, d_ff=32)
    with pytest.raises(ValueError, match=message):
        align(model, **{"source": [5, 2], "target": [1, 5, 2]} | arguments)


def test_a_model_without_cross_attention_is_refused() -> None:
    class Mean(nn.Module):
        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return source.sum() * target

    with pytest.raises(ValueError, match=r"^model must have cross-attention, got weights of Mean$"):
        align(Mean(), [1, 2], [1, 2, 3])
