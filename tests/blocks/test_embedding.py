"""Token embeddings and positional encodings."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.blocks.reference import to_numpy
from torch import nn

from transformer_blocks import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def encoding(position: int, column: int, d_model: int) -> float:
    angle = position / 10000 ** ((column - column % 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("d_model", [1, 2, 7, 8])
def test_sinusoidal_encodings_are_those_of_the_paper_also_for_odd_sizes(d_model: int) -> None:
    expected = [[encoding(position, i, d_model) for i in range(d_model)] for position in range(50)]
    table = sinusoidal_table(50, d_model)
    assert table.dtype == torch.float64
    np.testing.assert_allclose(to_numpy(table), expected, rtol=0, atol=1e-13)
    x = torch.randn(2, 50, d_model, dtype=torch.float64)
    encoded = SinusoidalPositionalEncoding(d_model, max_length=50).double()(x)
    np.testing.assert_allclose(to_numpy(encoded), to_numpy(x) + expected, rtol=0, atol=1e-13)


def test_a_shift_rotates_every_sinusoidal_encoding_by_the_same_angle() -> None:
    table = sinusoidal_table(100, 8).reshape(100, 4, 2)  # a (sine, cosine) pair per frequency
    as_complex = torch.view_as_complex(table.flip(-1).contiguous())
    rotation = as_complex[7] / as_complex[0]
    torch.testing.assert_close(as_complex[7:], as_complex[:-7] * rotation)


@pytest.mark.parametrize("kind", [SinusoidalPositionalEncoding, LearnedPositionalEncoding])
def test_an_offset_selects_later_positions(
    kind: type[SinusoidalPositionalEncoding] | type[LearnedPositionalEncoding],
) -> None:
    positions = kind(6, max_length=9)
    x = torch.randn(2, 9, 6)
    whole = positions(x)
    assert not torch.equal(whole[:, 3:] - x[:, 3:], whole[:, :6] - x[:, :6])
    for start, end in ((0, 4), (3, 9), (8, 9), (5, 5)):
        assert torch.equal(positions(x[:, start:end], offset=start), whole[:, start:end])


@pytest.mark.parametrize("kind", [SinusoidalPositionalEncoding, LearnedPositionalEncoding])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_each_sequence_may_have_its_own_offset(
    kind: type[SinusoidalPositionalEncoding] | type[LearnedPositionalEncoding], dtype: torch.dtype
) -> None:
    positions, x = kind(6, max_length=9), torch.randn(4, 3, 6)
    encoded = positions(x, offset=torch.tensor([0, 6, 2, 2], dtype=dtype))
    for row, offset in enumerate((0, 6, 2, 2)):
        assert torch.equal(encoded[row : row + 1], positions(x[row : row + 1], offset=offset))
    padded = positions(x, offset=torch.tensor([-2, -9, -1, 0], dtype=dtype))
    for row, places in enumerate(([0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 1, 2])):
        expected = torch.cat([positions(x[row, None, i, None], offset=places[i]) for i in range(3)])
        assert torch.equal(padded[row], expected[:, 0])
    with pytest.raises(
        ValueError, match=r"below max_length, got offset=7 \+ length=3 > max_length"
    ):
        positions(x, offset=torch.tensor([0, 7, 2, 2], dtype=dtype))
    none = torch.zeros(0, dtype=dtype)
    assert positions(torch.randn(0, 3, 6), offset=none).shape == (0, 3, 6)


@HALF
@pytest.mark.parametrize("of_input", [torch.float32, None])
def test_half_precision_models_add_exact_encodings_and_round_once(
    dtype: torch.dtype, of_input: torch.dtype | None
) -> None:
    full = SinusoidalPositionalEncoding(16)
    half = copy.deepcopy(full).to(dtype)
    x = torch.zeros(1, 3, 16, dtype=of_input or dtype)
    encoded = half(x, offset=4096)
    assert torch.equal(encoded, full(x.float(), offset=4096).to(x.dtype))


@HALF
def test_converting_to_half_precision_and_back_loses_no_position(dtype: torch.dtype) -> None:
    model = nn.Sequential(SinusoidalPositionalEncoding(16)).to(dtype)
    expected = sinusoidal_table(4099, 16)[4096:]
    x = torch.zeros(1, 3, 16, dtype=torch.float64)
    back = model.to(torch.float32)[0](x.float(), offset=4096)[0]
    torch.testing.assert_close(back, expected.float(), rtol=0, atol=1e-7)
    assert torch.equal(model.to(dtype).double()[0](x, offset=4096)[0], expected)


def test_sinusoidal_encodings_are_not_in_the_state_dict() -> None:
    assert not SinusoidalPositionalEncoding(6).state_dict()
    assert not list(SinusoidalPositionalEncoding(6).parameters())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_an_embedding_is_its_row_of_the_weight_times_sqrt_d_model(dtype: torch.dtype) -> None:
    embedding = TokenEmbedding(10, 16).double()
    vectors = embedding(torch.tensor([[3, 0, 9], [3, 3, 1]], dtype=dtype))
    assert vectors.shape == (2, 3, 16)
    torch.testing.assert_close(vectors[0, 2], 4.0 * embedding.weight[9])
    assert torch.equal(vectors[0, 0], vectors[1, 1])


def test_initial_embeddings_are_as_large_as_positional_encodings() -> None:
    vectors = TokenEmbedding(1000, 64)(torch.arange(1000)[None])
    assert 0.95 < vectors.std() < 1.05


@pytest.mark.parametrize("unknown", [-1, 10, 2**40])
def test_an_unknown_id_is_reported_with_its_place_and_the_vocabulary_size(unknown: int) -> None:
    tokens = torch.tensor([[1, 2, 9], [0, unknown, 3]])
    message = rf"0\.\.9 \(vocabulary_size=10\), got id {unknown} at position 1 of sequence 1$"
    with pytest.raises(IndexError, match=message):
        TokenEmbedding(10, 16)(tokens)


def test_a_learned_encoding_is_added_and_has_small_initial_values() -> None:
    positions = LearnedPositionalEncoding(64, max_length=50)
    x = torch.randn(2, 5, 64)
    torch.testing.assert_close(positions(x), x + positions.weight[:5])
    assert 0.018 < positions.weight.std() < 0.022


def test_only_the_used_positions_get_a_gradient() -> None:
    for offset, used in ((4, [4, 5, 6]), (torch.tensor([4, 1]), [1, 2, 3, 4, 5, 6])):
        positions = LearnedPositionalEncoding(6, max_length=9)
        positions(torch.zeros(2, 3, 6), offset=offset).sum().backward()
        assert positions.weight.grad is not None
        assert (positions.weight.grad != 0.0).any(-1).nonzero().flatten().tolist() == used
