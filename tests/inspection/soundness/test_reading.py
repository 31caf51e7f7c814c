"""What the checks of soundness read from an example: what its arguments are, and what is padded."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.inspection.soundness.sound_models import PADDED, SOURCE, TOKENS
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.inspection.soundness.inputs import Inputs
from transformer_blocks.inspection.soundness.reading import read_inputs

X, OTHERS, HIDDEN = torch.randn(3, 6, 4), TOKENS.flip(0), SOURCE == 0
THREE = torch.tensor([[5, 6, 7], [8, 9, 0], [4, 0, 0]])  # as long as the batch is large
COUNTS = torch.tensor([6, 3, 4])


def read(example: Any, padding_id: int | None = None, config: Any = None) -> Inputs:
    def model(**arguments: Any) -> None: ...

    model.config = config  # type: ignore[attr-defined]
    return read_inputs(model, example, padding_id)


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ({"x": X, "real": ~PADDED, "training": True}, "content 0, mask 0, fixed"),
        ({"ids": TOKENS, "mask": (~PADDED).long()}, "content 0, mask 0"),
        ({"ids": TOKENS, "mask": PADDED[:, None, None]}, "content 0, mask 0"),
        ({"ids": TOKENS, "mask": PADDED[:, None]}, "content 0, mask 0"),
        ({"ids": TOKENS, "mask": PADDED[:, None].expand(3, 6, 6)}, "content 0, pairs 0 0"),
        ({"ids": TOKENS, "mask": causal_mask(6)[None]}, "content 0, pairs 0 0"),
        ({"ids": TOKENS, "mask": causal_mask(6).expand(12, 6, 6)}, "content 0, pairs 0 0"),
        ({"ids": TOKENS, "mask": torch.ones(3, 2, 5).bool()}, "content 0, unread"),
        ({"ids": THREE, "mask": causal_mask(3)}, "content 0, pairs 0 0"),
        ({"ids": THREE, "attention_mask": causal_mask(3)}, "content 0, mask 0"),
        ({"ids": TOKENS, "position_ids": torch.arange(6)[None]}, "content 0, indices 0"),
        ({"ids": TOKENS, "position_ids": torch.arange(5)[None]}, "content 0, fixed"),
        ({"ids": TOKENS, "lengths": COUNTS}, "content 0, lengths 0"),
        ({"ids": TOKENS, "labels": COUNTS + 1}, "content 0, rows"),
        ({"ids": TOKENS, "labels": COUNTS}, "content 0, rows"),
        ({"ids": TOKENS, "classes": COUNTS - 3}, "content 0, rows"),
        ({"ids": TOKENS, "weights": torch.rand(3)}, "content 0, rows"),
        ({"query": X, "key": X, "value": X}, "content 0, content 0, content 0"),
        ({"query": X, "key": X + 1, "value": X + 2}, "content 0, content 1, content 1"),
        ({"a": X, "b": X + 1}, "content 0, content 1"),
        (
            {"src": SOURCE, "tgt": SOURCE + 1, "tgt_mask": causal_mask(5), "memory_mask": HIDDEN},
            "content 0, content 1, pairs 1 1, mask 0",
        ),
        (
            {"src": SOURCE, "tgt": SOURCE + 1, "memory_mask": causal_mask(5)},
            "content 0, content 1, pairs 1 0",
        ),
        (
            {"src": SOURCE, "tgt": TOKENS, "memory_mask": torch.zeros(6, 5).bool()},
            "content 0, content 1, pairs 1 0",
        ),
        (
            {"left_ids": TOKENS, "right_ids": OTHERS, "right_mask": PADDED, "left_mask": PADDED},
            "content 0, content 1, mask 1, mask 0",
        ),
        (
            {"a_ids": TOKENS, "b_ids": OTHERS, "ids_mask": PADDED, "other_mask": PADDED},
            "content 0, content 1, mask 0, mask 1",
        ),
        (
            {"decoder_input_ids": TOKENS, "input_ids": OTHERS, "attention_mask": PADDED},
            "content 0, content 1, mask 1",
        ),
    ],
)
def test_arguments_are_told_apart_by_name_shape_and_values(
    example: dict[str, Any], expected: str
) -> None:
    arguments = read(example).arguments
    assert [each.name for each in arguments] == list(example)
    found = (" ".join([each.kind, *map(str, each.groups)]) for each in arguments)
    assert ", ".join(found) == expected
    for each in arguments:
        if each.kind == "indices":
            assert each.value.shape == (3, 6)  # also if one row was given for all


VISIBLE = (~PADDED)[:, None, None].expand(3, 1, 6, 6)


@pytest.mark.parametrize(
    ("example", "padding_id", "has_mask"),
    [
        ({"ids": TOKENS, "lengths": COUNTS}, None, True),
        ({"ids": TOKENS, "mask": PADDED}, None, True),
        ({"ids": TOKENS, "mask": VISIBLE}, None, True),
        ({"ids": TOKENS, "mask": VISIBLE[:, 0]}, None, True),
        ({"ids": TOKENS, "mask": VISIBLE[:, 0].repeat_interleave(2, 0)}, None, True),
        ({"ids": TOKENS}, 0, False),
        ({"x": X, "mask": ~PADDED}, 0, True),  # vectors have no id
    ],
)
def test_padding_is_found_by_lengths_masks_or_its_id(
    example: dict[str, Tensor], padding_id: int | None, has_mask: bool
) -> None:
    (group,) = read(example, padding_id).groups
    assert torch.equal(group.real, ~PADDED)
    assert group.has_mask == has_mask
    assert group.has_padding_id == (padding_id is not None and "ids" in example)


@pytest.mark.parametrize("form", ["hides", "shows", "added"])
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("lengths", [(4, 2), (3, 2), (4, 4)])
def test_the_real_tokens_of_a_mask_are_found_whatever_it_means(
    form: str, side: int, lengths: tuple[int, int]
) -> None:
    real = torch.stack([torch.arange(4) < length for length in lengths])
    real = real if side == 1 else real.flip(1)
    tokens = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 3]]).masked_fill(~real, 1)
    added = torch.zeros(2, 4).masked_fill(~real, -torch.inf)
    mask = {"hides": ~real, "shows": real, "added": added}[form]
    assert torch.equal(read({"ids": tokens, "mask": mask}).groups[0].real, real)


def test_a_mask_whose_meaning_cannot_be_told_is_refused() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    with pytest.raises(ValueError, match="must have one row without padding, the longest"):
        read({"ids": torch.arange(6).view(2, 3), "mask": mask})


def test_a_sequence_without_a_real_token_is_refused() -> None:
    with pytest.raises(ValueError, match="each sequence of inputs must hold a real token"):
        read({"ids": TOKENS * torch.tensor([[1], [0], [1]])}, padding_id=0)


FULL_MASK = torch.ones(3, 6)


@pytest.mark.parametrize(
    ("example", "padding_id", "config", "filler"),
    [
        ({"mask": ~PADDED, "ids": TOKENS + 7}, None, None, 7),  # what stands at padded positions
        ({"ids": TOKENS + 3}, None, None, 3),  # the smallest id
        ({"ids": TOKENS + 3}, 1, SimpleNamespace(pad_token_id=2), 1),
        ({"ids": TOKENS + 3}, None, SimpleNamespace(pad_token_id=2), 2),
        ({"ids": TOKENS + 3}, None, SimpleNamespace(pad_token_id=-1), 3),
        ({"x": X}, None, None, 0.0),
        ({"ids": TOKENS, "mask": PADDED}, None, None, True),
        ({"ids": TOKENS + 3, "attention_mask": FULL_MASK}, None, None, 0.0),
        ({"ids": TOKENS + 3, "mask": 0 * FULL_MASK}, None, None, -torch.inf),
        ({"ids": TOKENS + 3, "attention_mask": 0 * FULL_MASK}, None, None, 1.0),
        ({"ids": TOKENS + 3, "mask": FULL_MASK.bool()}, None, None, False),
    ],
)
def test_the_content_of_padding_is_known(
    example: dict[str, Tensor], padding_id: int | None, config: Any, filler: object
) -> None:
    assert read(example, padding_id, config).arguments[-1].filler == filler
