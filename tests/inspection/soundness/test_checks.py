"""The checks find every planted bug, in our blocks and in others, and correct models pass."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    DecoderCache,
    MultiHeadAttention,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.inspection import check_cache, check_causal, check_padding

SEQUENCES = [torch.tensor(ids) for ids in ([5, 6, 7, 8], [9], [4, 3, 5], [6, 6])]
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}


class EncoderModel(nn.Module):
    """An encoder over token ids, with any mask."""

    def __init__(self, mask: Callable[[Tensor], Tensor | None] = padding_mask) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(10, 16)
        self.positions = SinusoidalPositionalEncoding(16)
        self.encoder = build_encoder(**SIZES)
        self.mask = mask
        self.eval()

    def forward(self, tokens: Tensor, causal: bool = False) -> Tensor:
        x = self.positions(self.embedding(tokens))
        return self.encoder(x, mask=self.mask(tokens), causal=causal)


def test_a_correct_model_passes() -> None:
    model = EncoderModel()
    for tokens in (torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[5, 6, 5, 6], [7, 8, 9, 9]])):
        report = check_causal(partial(model, causal=True), tokens)
        assert report, report
    assert check_padding(model, SEQUENCES)
    assert str(check_padding(model, SEQUENCES)) == "padding: no violation found"


@pytest.mark.parametrize("attention_function", [fused_attention, scaled_dot_product_attention])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "position 0 changes with position 1, which comes later"),
        (~causal_mask(5), "position 0 changes with position 1, which comes later"),
        (~causal_mask(5), "position 4 changes with no earlier position"),
        (causal_mask(5).roll(1, dims=1), "position 0 changes with position 1, which comes later"),
        (
            causal_mask(5).index_fill(0, torch.tensor(3), True),
            "position 3 changes with no earlier position",
        ),
    ],
    ids=["missing", "inverted: future", "inverted: past", "shifted positions", "fully masked row"],
)
def test_a_wrong_causal_mask_is_found(
    attention_function: Any, mask: Tensor | None, message: str
) -> None:
    attention = MultiHeadAttention(16, 4, attention_function=attention_function).eval()
    report = check_causal(lambda x: attention(x, x, x, mask=mask), torch.randn(2, 5, 16))
    assert not report
    assert message in report.problems


def test_a_sliding_window_is_checked() -> None:
    attention, x = MultiHeadAttention(16, 4).eval(), torch.randn(1, 6, 16)
    window = causal_mask(6) | (~causal_mask(6)).tril(-2)  # itself and the one before

    def attend(mask: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: attention(x, x, x, mask=mask)

    assert check_causal(attend(window), x, window=2)
    too_wide = check_causal(attend(causal_mask(6)), x, window=2)
    assert "position 2 changes with position 0, outside its window of 2" in too_wide.problems


def test_leaks_from_later_positions_are_found_in_any_function() -> None:
    x = torch.randn(2, 4, 3)
    assert check_causal(lambda x: x.cumsum(dim=1), x)
    assert check_causal(lambda x: 1e4 * x.cumsum(dim=1), 1e4 * x)
    assert not check_causal(lambda x: (1e4 * x).flip(1), 1e4 * x)
    assert not check_causal(lambda x: x.flip(1).cumsum(dim=1).flip(1), x)
    assert not check_causal(lambda x: x - x.mean(dim=1, keepdim=True), x)


def test_correct_functions_of_every_kind_pass() -> None:
    x, recurrent = torch.randn(1, 40, 16), nn.LSTM(16, 16, batch_first=True)
    convolution = nn.Conv1d(16, 16, kernel_size=3)
    buffer = torch.empty(1, 40, 16)

    def into_one_buffer(x: Tensor) -> Tensor:
        return torch.cumsum(x, dim=1, out=buffer)

    def convolve(x: Tensor) -> Tensor:
        return convolution(nn.functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)

    def in_place(x: Tensor) -> Tensor:
        return x.mul_(2)

    for function in (nn.Linear(16, 16), convolve, into_one_buffer, in_place):
        report = check_causal(function, x)
        assert report, report
    assert check_causal(lambda x: recurrent(x)[0], x)
    assert check_causal(convolve, x, window=3)
    assert not check_causal(convolve, x, window=2)


def test_infinite_logits_are_equal_to_themselves() -> None:
    model = DecoderModel()

    def never_five(tokens: Tensor) -> Tensor:
        return model.full_pass(tokens).index_fill(-1, torch.tensor([5]), -torch.inf)

    tokens = torch.tensor([[1, 2, 3, 4], [7, 8, 9, 1], [4, 5, 6, 7]])
    assert check_causal(never_five, tokens)


def test_one_output_per_sequence_can_be_checked() -> None:
    assert check_padding(lambda tokens: (tokens != 0).sum(dim=1).float(), SEQUENCES)
    assert not check_padding(lambda tokens: (tokens == 0).sum(dim=1).float(), SEQUENCES)


@pytest.mark.parametrize("place", [0, -1])
def test_a_change_at_a_single_position_is_found(place: int) -> None:
    def adds_padded_length(tokens: Tensor) -> Tensor:
        out = tokens[:, :, None].float()
        for row, length in enumerate((tokens != 0).sum(dim=1).tolist()):
            out[row, place % length] += tokens.shape[1]
        return out

    assert not check_padding(adds_padded_length, SEQUENCES)


@pytest.mark.parametrize(
    ("dtype", "given", "tolerance"),
    [
        (torch.float64, None, 1e-4),
        (torch.float32, None, 1e-4),
        (torch.float16, None, 2**-6),
        (torch.bfloat16, None, 2**-3),
        (torch.float32, 0.01, 0.01),
    ],
)
@pytest.mark.parametrize(("part", "is_small"), [(0.75, True), (1.5, False)])
def test_the_tolerance_is_in_standard_deviations(
    dtype: torch.dtype, given: float | None, tolerance: float, part: float, is_small: bool
) -> None:
    size = 4.0
    leak = size * part * tolerance

    def outputs(tokens: Tensor) -> Tensor:  # half of each feature is size, and half is -size
        signs = 1 - 2 * ((torch.arange(tokens.shape[1])[:, None] + torch.arange(6)) % 2)
        return (size * signs).to(dtype).expand(len(tokens), -1, -1).clone()

    def logits_of(tokens: Tensor) -> Tensor:  # whose deviation is estimated as 1.4826 * size
        scores = outputs(tokens)
        scores[:, 0, 1] += leak * 1.4826 * (tokens[:, -1] == 2)
        return scores

    tokens = torch.tensor([[1, 2, 1, 2]])
    assert bool(check_causal(logits_of, tokens, tolerance=given)) is is_small
    sequences = [torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1])]
    assert bool(check_padding(logits_of, sequences, padding_id=2, tolerance=given)) is is_small

    class Steps:
        position = -1

        def step(self, tokens: Tensor) -> Tensor:
            self.position += 1
            return logits_of(torch.full((len(tokens), 4), 2))[:, self.position]

        def reorder(self, rows: Tensor) -> None:
            pass

    assert bool(check_cache(outputs, Steps, tokens, tolerance=given)) is is_small


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_of_any_dtype_passes_with_its_mask_and_fails_without(dtype: torch.dtype) -> None:
    assert check_padding(EncoderModel().to(dtype), SEQUENCES)
    assert not check_padding(EncoderModel(lambda tokens: None).to(dtype), SEQUENCES)


@pytest.mark.parametrize(
    "mask",
    [
        lambda tokens: None,
        lambda tokens: ~padding_mask(tokens),
        lambda tokens: padding_mask(tokens, 5),
    ],
    ids=["missing", "inverted", "of another id"],
)
def test_a_wrong_padding_mask_is_found(mask: Callable[[Tensor], Tensor | None]) -> None:
    report = check_padding(EncoderModel(mask), SEQUENCES)
    assert not report
    assert "changes if it is padded from" in str(report)


@pytest.mark.parametrize("extra", [1, 4])
def test_padding_is_added_beyond_the_longest_sequence(extra: int) -> None:
    sequences = [torch.tensor([5, 6, 7]), torch.tensor([8])]
    table, limit = torch.randn(10, 4), 3 + extra

    def changes_at(tokens: Tensor) -> Tensor:
        return table[tokens] + (tokens.shape[1] == limit)

    report = check_padding(changes_at, sequences, extra_padding=extra)
    assert [each.split(",")[0] for each in report.problems] == [
        f"the output of sequence {number} changes if it is padded from {length} to {limit} tokens"
        for number, length in ((0, 3), (1, 1))
    ]
    assert check_padding(changes_at, sequences, extra_padding=extra + 1)


def test_a_mean_over_the_padding_is_found() -> None:
    model = EncoderModel()

    def mean(tokens: Tensor) -> Tensor:
        return model(tokens).mean(dim=1)

    def masked_mean(tokens: Tensor) -> Tensor:
        is_token = (tokens != 0)[:, :, None]
        return (model(tokens) * is_token).sum(dim=1) / is_token.sum(dim=1)

    assert check_padding(masked_mean, SEQUENCES)
    assert not check_padding(mean, SEQUENCES)


class DecoderModel:
    """A decoder with a cache, and perhaps a bug."""

    def __init__(self, bug: str = "") -> None:
        torch.manual_seed(0)
        self.bug = bug
        self.decoder = build_decoder(**SIZES).eval()
        self.embedding = TokenEmbedding(10, 16)
        self.positions = SinusoidalPositionalEncoding(16)
        self.memory = torch.randn(3, 4, 16)
        self.cache: DecoderCache

    def full_pass(self, tokens: Tensor) -> Tensor:
        hidden = self.decoder(self.positions(self.embedding(tokens)), self.memory)
        return hidden @ self.embedding.weight.T

    def start(self) -> "DecoderModel":
        self.cache = self.decoder.new_cache(self.memory)
        return self

    def step(self, tokens: Tensor) -> Tensor:
        offset = self.cache.length + (1 if self.bug == "shifted positions" else 0)
        if self.bug == "cache is cleared" and self.cache.length:
            self.cache.update(self.decoder.new_cache(self.memory).layers)
        x = self.positions(self.embedding(tokens[:, None]), offset=offset)
        return self.decoder(x, cache=self.cache)[:, 0] @ self.embedding.weight.T

    def reorder(self, rows: Tensor) -> None:
        in_order = torch.arange(len(rows)) % self.cache.rows
        if self.bug == "cross-attention is not reordered":
            layers = self.cache.layers
            self.cache.update([])
            for cache in layers:
                cache.reorder(rows)
            self.cache.reorder(in_order)
            self.cache.update(layers)
        elif self.bug == "self-attention is not reordered":
            layers = self.cache.layers
            self.cache.update([])
            for cache in layers:
                cache.reorder(in_order)
            self.cache.reorder(rows)
            self.cache.update(layers)
        elif self.bug != "nothing is reordered":
            self.cache.reorder(rows)


def test_a_correct_cache_passes() -> None:
    model = DecoderModel()
    tokens = torch.randint(10, (3, 6))
    for length in (2, 3, 6):
        report = check_cache(model.full_pass, model.start, tokens[:, :length])
        assert report, report


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("shifted positions", 0),
        ("cache is cleared", 1),
        ("cross-attention is not reordered", 3),
        ("self-attention is not reordered", 3),
        ("nothing is reordered", 3),
    ],
)
def test_a_wrong_cache_is_found_at_its_first_wrong_step(bug: str, first: int) -> None:
    model = DecoderModel(bug)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3], [4, 5, 6, 7, 8, 9]])
    report = check_cache(model.full_pass, model.start, tokens)
    assert not report
    assert min(int(problem.split()[1]) for problem in report.problems) == first


class ChunkedModel:
    """An attention with a cache, to which several tokens are appended at once; perhaps a bug."""

    def __init__(self, bug: str, *, returns: bool) -> None:
        self.table, self.positions = torch.randn(10, 8), torch.randn(20, 8)
        self.bug, self.returns = bug, returns
        self.keys, self.length = torch.empty(3, 0, 8), 0

    def full_pass(self, tokens: Tensor) -> Tensor:
        x = self.table[tokens] + self.positions[: tokens.shape[1]]
        return self.attend(x, x, causal_mask(tokens.shape[1]))

    def start(self) -> "ChunkedModel":
        if self.bug != "the cache is kept":
            self.keys, self.length = torch.empty(3, 0, 8), 0
        return self

    def attend(self, x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        x, keys = x[:, None], keys[:, None]  # one head
        return scaled_dot_product_attention(x, keys, keys, mask=mask)[0][:, 0]

    def append(self, tokens: Tensor) -> Tensor:
        past, count = self.keys.shape[1], tokens.shape[1]
        x = self.table[tokens] + self.positions[self.length : self.length + count]
        self.length += 1 if self.bug == "a chunk counts as one position" else count
        self.keys = torch.cat([self.keys, x], dim=1)
        mask = causal_mask(count, past + count)
        if self.bug == "a prompt has no causal mask" and not past:
            mask = torch.zeros_like(mask)
        if self.bug == "a chunk is masked from the top left" and count > 1:
            mask = torch.ones_like(mask).triu(1)
        if self.bug == "a chunk of three has no mask" and count == 3 and past:
            mask = torch.zeros_like(mask)
        return self.attend(x, self.keys, mask)

    def prefill(self, tokens: Tensor) -> Tensor | None:
        outputs = self.append(tokens)
        return outputs if self.returns else None

    def step(self, tokens: Tensor) -> Tensor:
        return self.append(tokens[:, None])[:, 0]

    def reorder(self, rows: Tensor) -> None:
        self.keys = self.keys[rows]


@pytest.mark.parametrize(
    ("bug", "returns", "message"),
    [
        ("", True, ""),
        ("", False, ""),
        ("a prompt has no causal mask", True, "one pass of tokens 0 to 1 of row 0 differs in gen"),
        ("a chunk is masked from the top left", True, "one pass of tokens 3 to 4 of row 0 differs"),
        ("a chunk of three has no mask", True, "one pass of tokens 1 to 3 of row 0 differs"),
        ("a chunk counts as one position", False, "step 2 of row 0 differs in generation 2, by"),
        ("the cache is kept", False, "step 2 of row 0 differs in generation 2, by"),
    ],
)
def test_several_tokens_at_once_and_a_second_generation_are_checked(
    bug: str, returns: bool, message: str
) -> None:
    model = ChunkedModel(bug, returns=returns)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3], [4, 5, 6, 7, 8, 9]])
    report = check_cache(model.full_pass, model.start, tokens)
    assert bool(report) == (not bug), report
    assert not bug or report.problems[0].startswith(message), report

    class Steps:  # a model without prefill
        def __init__(self) -> None:
            self.step, self.reorder = model.start().step, model.reorder

    only_steps = check_cache(model.full_pass, Steps, tokens)
    assert bool(only_steps) == (bug != "the cache is kept"), only_steps


def test_randomness_and_nan_are_distinguished_from_leaks() -> None:
    dropout = nn.Dropout(0.5)
    x = torch.randn(1, 4, 16)
    expected = "two equal calls differ: function must be deterministic, as in evaluation mode"
    assert check_causal(dropout, x).problems == (expected,)
    assert check_causal(lambda x: x * float("nan"), x).problems == ("the output holds NaN",)
    embedding = nn.Embedding(10, 16)
    assert check_padding(lambda t: dropout(embedding(t)), SEQUENCES).problems == (expected,)
    report = check_cache(
        lambda t: dropout(embedding(t)), DecoderModel().start, torch.ones(3, 4).long()
    )
    assert report.problems == (expected,)


def test_a_number_that_becomes_nan_has_changed() -> None:
    x, embedding = torch.randn(1, 3, 4), nn.Embedding(10, 16)
    report = check_causal(lambda y: y if torch.equal(y, x) else y * torch.nan, x)
    assert report.problems[0] == "position 0 changes with position 1, which comes later"
    assert len(report.problems) == 3

    def embed(tokens: Tensor) -> Tensor:
        padding = tokens.eq(0).any()
        return embedding(tokens).masked_fill(padding, torch.nan)

    problem = check_padding(embed, SEQUENCES).problems[0]
    assert problem.endswith("tokens, to a number that is not finite")


def test_inputs_that_cannot_be_checked_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^x must have shape \(B, L, ...\) with L of 2 or more"):
        check_causal(lambda x: x, torch.randn(1, 1, 4))
    with pytest.raises(ValueError, match=r"^x must hold at least two different ids, got"):
        check_causal(lambda x: x, torch.ones(1, 4).long())
    with pytest.raises(ValueError, match=r"^function must keep \(B, L\) = \(1, 4\), got"):
        check_causal(lambda x: x.mean(dim=(1, 2)), torch.randn(1, 4, 4))
    with pytest.raises(ValueError, match=r"^sequences must have different lengths"):
        check_padding(lambda x: x, [torch.ones(3), torch.ones(3)])
    with pytest.raises(ValueError, match=r"^tokens must have shape \(B, L\) with L of 2"):
        check_cache(lambda x: x, DecoderModel().start, torch.ones(3, 1).long())
    with pytest.raises(
        ValueError, match=r"^function must return \(B, L, V\) with \(B, L\) = \(3, 4"
    ):
        check_cache(lambda x: x[:, :2], DecoderModel().start, torch.ones(3, 4).long())
    with pytest.raises(ValueError, match=r"^window must be positive, got window=0$"):
        check_causal(lambda x: x, torch.randn(1, 4, 4), window=0)
    with pytest.raises(ValueError, match=r"^extra_padding must be positive, got extra_padding=-9"):
        check_padding(lambda x: x, SEQUENCES, extra_padding=-9)


def test_empty_outputs_are_refused() -> None:
    message = r"^function must return numbers to compare, got shape \(%s\)$"
    for shape in ((0, 4, 3), (2, 4, 0)):
        with pytest.raises(ValueError, match=message % ", ".join(map(str, shape))):
            check_causal(lambda x: x.flip(1), torch.randn(shape))
    with pytest.raises(ValueError, match=message % "4, 0"):
        check_padding(lambda tokens: torch.ones(*tokens.shape, 0), SEQUENCES)
    with pytest.raises(ValueError, match=r"^sequences must have one token or more each"):
        check_padding(lambda tokens: tokens, [torch.ones(0).long(), torch.ones(2).long()])


def test_a_long_report_is_shortened() -> None:
    report = check_causal(lambda x: x.flip(1), torch.randn(1, 9, 2))
    assert len(report.problems) > 5
    assert str(report).endswith(f"and {len(report.problems) - 5} more")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, "x", None])
def test_invalid_tolerances_and_functions_are_refused(wrong: Any) -> None:
    x = torch.randn(1, 3, 4)
    if wrong is not None:
        with pytest.raises((TypeError, ValueError), match=r"^tolerance must"):
            check_causal(lambda x: x, x, tolerance=wrong)
    with pytest.raises(TypeError, match=r"^function must"):
        check_causal(wrong, x)
    with pytest.raises(TypeError, match=r"^x must be a tensor"):
        check_causal(lambda x: x, cast(Any, x.tolist()))
