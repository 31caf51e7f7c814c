"""The checks catch every planted bug, in our blocks and in others, and let right models pass."""

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

SENTENCES = [torch.tensor(ids) for ids in ([5, 6, 7, 8], [9], [4, 3, 5], [6, 6])]
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}


class Reader(nn.Module):
    """Ids to vectors, with whatever mask is asked for."""

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


def test_a_model_that_keeps_its_promises_passes() -> None:
    reader = Reader()
    for tokens in (torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[5, 6, 5, 6], [7, 8, 9, 9]])):
        report = check_causal(partial(reader, causal=True), tokens)
        assert report, report
    assert check_padding(reader, SENTENCES)
    assert str(check_padding(reader, SENTENCES)) == "padding: nothing found"


@pytest.mark.parametrize("attention_function", [fused_attention, scaled_dot_product_attention])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "position 0 changes with position 1, which comes later"),
        (~causal_mask(5), "position 0 changes with position 1, which comes later"),
        (~causal_mask(5), "position 4 notices no earlier position"),
        (causal_mask(5).roll(1, dims=1), "position 0 changes with position 1, which comes later"),
        (
            causal_mask(5).index_fill(0, torch.tensor(3), True),
            "position 3 notices no earlier position",
        ),
    ],
    ids=["dropped", "inverted", "inverted, deaf", "shifted", "too much"],
)
def test_a_wrong_causal_mask_is_found(
    attention_function: Any, mask: Tensor | None, message: str
) -> None:
    attention = MultiHeadAttention(16, 4, attention_function=attention_function).eval()
    report = check_causal(lambda x: attention(x, x, x, mask=mask), torch.randn(2, 5, 16))
    assert not report
    assert message in report.problems


def test_a_window_is_held_to_its_width() -> None:
    attention, x = MultiHeadAttention(16, 4).eval(), torch.randn(1, 6, 16)
    window = causal_mask(6) | (~causal_mask(6)).tril(-2)  # itself and the one before

    def look(mask: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: attention(x, x, x, mask=mask)

    assert check_causal(look(window), x, window=2)
    wide = check_causal(look(causal_mask(6)), x, window=2)
    assert "position 2 changes with position 0, outside its window of 2" in wide.problems


def test_what_is_told_of_later_words_is_found_in_any_function() -> None:
    x = torch.randn(2, 4, 3)
    assert check_causal(lambda x: x.cumsum(dim=1), x)
    assert check_causal(lambda x: 1e4 * x.cumsum(dim=1), 1e4 * x)
    assert not check_causal(lambda x: (1e4 * x).flip(1), 1e4 * x)
    assert not check_causal(lambda x: x.flip(1).cumsum(dim=1).flip(1), x)
    assert not check_causal(lambda x: x - x.mean(dim=1, keepdim=True), x)


def test_right_functions_of_every_kind_pass() -> None:
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
    writer = Writer()

    def never_five(tokens: Tensor) -> Tensor:
        return writer.read(tokens).index_fill(-1, torch.tensor([5]), -torch.inf)

    tokens = torch.tensor([[1, 2, 3, 4], [7, 8, 9, 1], [4, 5, 6, 7]])
    assert check_causal(never_five, tokens)


def test_a_score_for_each_sentence_can_be_checked() -> None:
    assert check_padding(lambda tokens: (tokens != 0).sum(dim=1).float(), SENTENCES)
    assert not check_padding(lambda tokens: (tokens == 0).sum(dim=1).float(), SENTENCES)


@pytest.mark.parametrize("place", [0, -1])
def test_a_change_of_a_single_word_is_found(place: int) -> None:
    def tells_its_width(tokens: Tensor) -> Tensor:
        out = tokens[:, :, None].float()
        for row, length in enumerate((tokens != 0).sum(dim=1).tolist()):
            out[row, place % length] += tokens.shape[1]
        return out

    assert not check_padding(tells_its_width, SENTENCES)


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
def test_a_change_counts_from_the_tolerance_on_measured_in_standard_deviations(
    dtype: torch.dtype, given: float | None, tolerance: float, part: float, is_small: bool
) -> None:
    size = 4.0
    leak = size * part * tolerance

    def outputs(tokens: Tensor) -> Tensor:
        return torch.tensor([-size, 0.0, size] * 2, dtype=dtype).expand(*tokens.shape, 6).clone()

    def score(tokens: Tensor) -> Tensor:  # whose standard deviation is size * sqrt(2 / 3)
        scores = outputs(tokens)
        scores[:, 0, 1] += leak * (2 / 3) ** 0.5 * (tokens[:, -1] == 2)
        return scores

    tokens = torch.tensor([[1, 2, 1, 2]])
    assert bool(check_causal(score, tokens, tolerance=given)) is is_small
    sentences = [torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1, 1])]
    assert bool(check_padding(score, sentences, padding_id=2, tolerance=given)) is is_small

    class Steps:
        def step(self, tokens: Tensor) -> Tensor:
            return score(torch.full((len(tokens), 1), 2))[:, 0]

        def reorder(self, rows: Tensor) -> None:
            pass

    assert bool(check_cache(outputs, Steps, tokens, tolerance=given)) is is_small


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_of_any_dtype_passes_with_its_mask_and_fails_without(dtype: torch.dtype) -> None:
    assert check_padding(Reader().to(dtype), SENTENCES)
    assert not check_padding(Reader(lambda tokens: None).to(dtype), SENTENCES)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "limit"),
    [
        (torch.float32, None, 1e-4),
        (torch.float64, None, 1e-4),
        (torch.bfloat16, None, 0.125),
        (torch.float32, 0.1, 0.1),
        (torch.float64, 1e-9, 1e-9),
    ],
)
@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_a_leak_is_found_from_the_tolerance_on_which_is_in_deviations_of_the_output(
    dtype: torch.dtype, tolerance: float | None, limit: float, size: float
) -> None:
    x = size * torch.randn(2, 4, 16, dtype=dtype)
    tokens = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])
    words = size * torch.randn(5, 16, dtype=dtype)

    def causal(leak: float) -> Callable[[Tensor], Tensor]:
        return lambda x: x + leak * x.roll(-1, dims=1)

    def padded(leak: float) -> Callable[[Tensor], Tensor]:
        return lambda tokens: words[tokens] + leak * size * tokens.shape[1]

    class Steps:
        """Scores each token as the whole does, but for what step by step adds."""

        def __init__(self, leak: float) -> None:
            self.leak = leak

        def step(self, tokens: Tensor) -> Tensor:
            return words[tokens] + self.leak * size

        def reorder(self, rows: Tensor) -> None:
            pass

    for leak, is_found in ((limit / 30, False), (3 * limit, True)):
        checks = (
            check_causal(causal(leak), x, tolerance=tolerance),
            check_padding(padded(leak), [tokens[0], tokens[1, :1]], tolerance=tolerance),
            check_cache(lambda t: words[t], partial(Steps, leak), tokens, tolerance=tolerance),
        )
        for report in checks:
            assert bool(report) != is_found, report


def theirs(*, mask: Callable[[Tensor], Tensor | None]) -> Callable[[Tensor], Tensor]:
    """``nn.TransformerEncoder`` over ids, with a padding mask made by ``mask``."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    embedding = nn.Embedding(10, 16)
    return lambda tokens: model(embedding(tokens), src_key_padding_mask=mask(tokens))


def test_torchs_own_transformer_passes_with_the_right_masks_and_fails_without() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(1, 5, 16)
    assert check_causal(lambda x: model(x, mask=causal_mask(5)), x)
    assert not check_causal(lambda x: model(x, mask=~causal_mask(5).fliplr()), x)
    assert not check_causal(model, x)
    assert check_padding(theirs(mask=lambda tokens: tokens == 0), SENTENCES)
    assert not check_padding(theirs(mask=lambda tokens: None), SENTENCES)


def test_torchs_whole_translator_passes_with_its_masks_and_fails_without() -> None:
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    embedding = nn.Embedding(10, 16)
    memory = torch.randn(1, 4, 16)

    def write(tokens: Tensor, mask: Tensor | None) -> Tensor:
        return model(memory.expand(len(tokens), -1, -1), embedding(tokens), tgt_mask=mask)

    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    assert check_causal(lambda tokens: write(tokens, causal_mask(5)), tokens)
    assert not check_causal(lambda tokens: write(tokens, None), tokens)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, at the import
def test_a_model_of_x_transformers_passes_with_its_masks_and_fails_without() -> None:
    x_transformers = pytest.importorskip("x_transformers")
    sizes = {"dim": 16, "depth": 1, "heads": 2}
    options = {"num_tokens": 10, "max_seq_len": 32}
    decoder, encoder = (
        x_transformers.TransformerWrapper(**options, attn_layers=layers(**sizes)).eval()
        for layers in (x_transformers.Decoder, x_transformers.Encoder)
    )
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    assert check_causal(decoder, tokens)
    assert not check_causal(encoder, tokens)
    assert check_padding(lambda tokens: encoder(tokens, mask=tokens != 0), SENTENCES)
    assert not check_padding(encoder, SENTENCES)


def test_the_masks_of_heads_in_the_wrong_order_are_found() -> None:
    attention, embedding = (
        nn.MultiheadAttention(16, 4, batch_first=True).eval(),
        nn.Embedding(9, 16),
    )
    sentences = [torch.tensor([5, 6, 7]), torch.tensor([8])]

    def look(tokens: Tensor, repeat: Callable[[Tensor], Tensor]) -> Tensor:
        x = embedding(tokens)
        mask = (tokens == 0)[:, None, :].expand(-1, tokens.shape[1], -1)  # (B, L, S)
        return attention(x, x, x, attn_mask=repeat(mask), need_weights=False)[0]

    right = partial(look, repeat=lambda mask: mask.repeat_interleave(4, dim=0))
    wrong = partial(look, repeat=lambda mask: mask.repeat(4, 1, 1))
    assert check_padding(right, sentences)
    assert not check_padding(wrong, sentences)


@pytest.mark.parametrize(
    "mask",
    [
        lambda tokens: None,
        lambda tokens: ~padding_mask(tokens),
        lambda tokens: padding_mask(tokens, 5),
    ],
    ids=["dropped", "inverted", "of another id"],
)
def test_a_wrong_padding_mask_is_found(mask: Callable[[Tensor], Tensor | None]) -> None:
    report = check_padding(Reader(mask), SENTENCES)
    assert not report
    assert "tokens, gives something else" in str(report)


def test_a_sum_over_the_padding_is_found() -> None:
    reader = Reader()

    def mean(tokens: Tensor) -> Tensor:
        return reader(tokens).mean(dim=1)

    def mean_of_words(tokens: Tensor) -> Tensor:
        words = (tokens != 0)[:, :, None]
        return (reader(tokens) * words).sum(dim=1) / words.sum(dim=1)

    assert check_padding(mean_of_words, SENTENCES)
    assert not check_padding(mean, SENTENCES)


class Writer:
    """A decoder that writes step by step, and may have a bug."""

    def __init__(self, bug: str = "") -> None:
        torch.manual_seed(0)
        self.bug = bug
        self.decoder = build_decoder(**SIZES).eval()
        self.embedding = TokenEmbedding(10, 16)
        self.positions = SinusoidalPositionalEncoding(16)
        self.memory = torch.randn(3, 4, 16)
        self.cache: DecoderCache

    def read(self, tokens: Tensor) -> Tensor:
        hidden = self.decoder(self.positions(self.embedding(tokens)), self.memory)
        return hidden @ self.embedding.weight.T

    def begin(self) -> "Writer":
        self.cache = self.decoder.new_cache(self.memory)
        return self

    def step(self, tokens: Tensor) -> Tensor:
        offset = self.cache.length + (1 if self.bug == "shifted" else 0)
        if self.bug == "forgets" and self.cache.length:
            self.cache.layers = self.decoder.new_cache(self.memory).layers
        x = self.positions(self.embedding(tokens[:, None]), offset=offset)
        return self.decoder(x, cache=self.cache)[:, 0] @ self.embedding.weight.T

    def reorder(self, rows: Tensor) -> None:
        in_order = torch.arange(len(rows)) % self.cache.rows
        if self.bug == "memory stays":
            for cache in self.cache.layers:
                cache.reorder(rows)
            past, self.cache.layers = self.cache.layers, []
            self.cache.reorder(in_order)
            self.cache.layers = past
        elif self.bug == "past stays":
            for cache in self.cache.layers:
                cache.reorder(in_order)
            past, self.cache.layers = self.cache.layers, []
            self.cache.reorder(rows)
            self.cache.layers = past
        elif self.bug != "does not select":
            self.cache.reorder(rows)


def test_a_right_cache_passes() -> None:
    writer = Writer()
    tokens = torch.randint(10, (3, 6))
    for length in (2, 3, 6):
        report = check_cache(writer.read, writer.begin, tokens[:, :length])
        assert report, report


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("shifted", 0),
        ("forgets", 1),
        ("memory stays", 3),
        ("past stays", 3),
        ("does not select", 3),
    ],
)
def test_a_wrong_cache_is_found_where_it_goes_wrong(bug: str, first: int) -> None:
    writer = Writer(bug)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3], [4, 5, 6, 7, 8, 9]])
    report = check_cache(writer.read, writer.begin, tokens)
    assert not report
    assert min(int(problem.split()[1]) for problem in report.problems) == first


def test_a_causal_mask_that_is_aligned_top_left_is_found_by_steps() -> None:
    attention = MultiHeadAttention(16, 4).eval()
    embedding = TokenEmbedding(10, 16)

    class Steps:
        """Looks at all so far, under the mask of (1, S) that aligns the wrong corners."""

        def __init__(self) -> None:
            self.written: list[Tensor] = []

        def step(self, tokens: Tensor) -> Tensor:
            self.written.append(embedding(tokens[:, None]))
            memory = torch.cat(self.written, dim=1)
            top_left = torch.ones(1, memory.shape[1], dtype=torch.bool).triu(1)
            return attention(self.written[-1], memory, memory, mask=top_left)[:, 0]

        def reorder(self, rows: Tensor) -> None:
            self.written = [word[rows] for word in self.written]

    def whole(tokens: Tensor) -> Tensor:
        x = embedding(tokens)
        return attention(x, x, x, causal=True)

    report = check_cache(whole, Steps, torch.randint(10, (2, 5)))
    assert "step 1 of row 0 differs" in report.problems


def test_randomness_and_nan_are_told_apart_from_leaks() -> None:
    dropping = nn.Dropout(0.5)
    x = torch.randn(1, 4, 16)
    expected = "two equal calls differ: put the model into eval mode, where nothing is dropped"
    assert check_causal(dropping, x).problems == (expected,)
    assert check_causal(lambda x: x * float("nan"), x).problems == ("the output holds NaN",)
    embedding = nn.Embedding(10, 16)
    assert check_padding(lambda t: dropping(embedding(t)), SENTENCES).problems == (expected,)
    report = check_cache(lambda t: dropping(embedding(t)), Writer().begin, torch.ones(3, 4).long())
    assert report.problems == (expected,)


def test_checks_say_what_they_cannot_check() -> None:
    with pytest.raises(ValueError, match=r"^x must have shape \(B, L, ...\) with L of 2 or more"):
        check_causal(lambda x: x, torch.randn(1, 1, 4))
    with pytest.raises(ValueError, match=r"^x must hold at least two different ids, got"):
        check_causal(lambda x: x, torch.ones(1, 4).long())
    with pytest.raises(ValueError, match=r"^function must keep \(B, L\) = \(1, 4\), got"):
        check_causal(lambda x: x.mean(dim=(1, 2)), torch.randn(1, 4, 4))
    with pytest.raises(ValueError, match=r"^sentences must have different lengths"):
        check_padding(lambda x: x, [torch.ones(3), torch.ones(3)])
    with pytest.raises(ValueError, match=r"^tokens must have shape \(B, L\) with L of 2"):
        check_cache(lambda x: x, Writer().begin, torch.ones(3, 1).long())
    with pytest.raises(ValueError, match=r"^function must give \(B, L, V\) with \(B, L\) = \(3, 4"):
        check_cache(lambda x: x[:, :2], Writer().begin, torch.ones(3, 4).long())
    with pytest.raises(ValueError, match=r"^window must be positive, got window=0$"):
        check_causal(lambda x: x, torch.randn(1, 4, 4), window=0)
    with pytest.raises(ValueError, match=r"^extra_columns must be positive, got extra_columns=-9"):
        check_padding(lambda x: x, SENTENCES, extra_columns=-9)


def test_nothing_to_compare_is_no_proof() -> None:
    nothing = r"^function must give numbers to compare, got shape \(%s\)$"
    for shape in ((0, 4, 3), (2, 4, 0)):
        with pytest.raises(ValueError, match=nothing % ", ".join(map(str, shape))):
            check_causal(lambda x: x.flip(1), torch.randn(shape))
    with pytest.raises(ValueError, match=nothing % "0, 4"):
        check_causal(lambda x: x.flip(1), torch.ones(0, 4).long())
    with pytest.raises(ValueError, match=nothing % "4, 0"):
        check_padding(lambda tokens: torch.ones(*tokens.shape, 0), SENTENCES)
    with pytest.raises(ValueError, match=r"^sentences must have one token or more each"):
        check_padding(lambda tokens: tokens, [torch.ones(0).long(), torch.ones(2).long()])
    with pytest.raises(ValueError, match=nothing % "0, 4, 9"):
        check_cache(lambda x: torch.ones(*x.shape, 9), Writer().begin, torch.ones(0, 4).long())


def test_a_long_report_is_cut() -> None:
    report = check_causal(lambda x: x.flip(1), torch.randn(1, 9, 2))
    assert len(report.problems) > 5
    assert str(report).endswith(f"and {len(report.problems) - 5} more")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, "x", None])
def test_what_is_no_tolerance_or_function_is_refused(wrong: Any) -> None:
    x = torch.randn(1, 3, 4)
    if wrong is not None:
        with pytest.raises((TypeError, ValueError), match=r"^tolerance must"):
            check_causal(lambda x: x, x, tolerance=wrong)
    with pytest.raises(TypeError, match=r"^function must"):
        check_causal(wrong, x)
    with pytest.raises(TypeError, match=r"^x must be a tensor"):
        check_causal(lambda x: x, cast(Any, x.tolist()))
