"""Cached decoding is compared with a full pass: every planted mistake is found at its step."""

from typing import Any

import pytest
import torch
from tests.inspection.soundness.sound_models import SIZES, D, ask
from torch import Tensor

from transformer_blocks import (
    DecoderCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    causal_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.inspection import check_soundness

IDS = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3], [4, 5, 6, 7, 8, 9]])


class DecoderModel:
    """A decoder with a cache, and perhaps a bug."""

    def __init__(self, bug: str = "") -> None:
        torch.manual_seed(0)
        self.bug = bug
        self.decoder = build_decoder(**SIZES).eval()
        self.embedding = TokenEmbedding(10, D)
        self.positions = SinusoidalPositionalEncoding(D)
        self.memory = torch.randn(3, 4, D)
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
        if self.bug != "nothing is reordered":
            self.cache.reorder(rows)


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("shifted positions", 0),
        ("cache is cleared", 1),
        ("nothing is reordered", 3),
    ],
)
def test_a_wrong_cache_is_found_at_its_first_wrong_step(bug: str, first: int) -> None:
    model = DecoderModel(bug)
    tokens = IDS
    report = ask("cache", model.full_pass, tokens, new_step_model=model.start)
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
    tokens = IDS
    report = ask("cache", model.full_pass, tokens, new_step_model=model.start)
    assert bool(report) == (not bug), report
    assert not bug or report.problems[0].startswith(message), report

    class Steps:  # a model without prefill
        def __init__(self) -> None:
            self.step, self.reorder = model.start().step, model.reorder

    only_steps = ask("cache", model.full_pass, tokens, new_step_model=Steps)
    assert bool(only_steps) == (bug != "the cache is kept"), only_steps


@pytest.mark.parametrize(
    ("bug", "returns", "found"),
    [
        ("", True, ""),
        ("", False, ""),
        ("a prompt has no causal mask", True, "one pass of tokens 0 to 3 of row 0 differs"),
        ("a chunk counts as one position", False, "step 4 of row 0 differs, by"),
        ("the rows are not reordered", True, "step 5 of row 0 differs after a reorder"),
    ],
)
def test_a_few_passes_find_a_wrong_prompt_step_or_reorder(
    bug: str, returns: bool, found: str
) -> None:
    passes: list[str] = []
    model = ChunkedModel(bug, returns=returns)
    if bug == "the rows are not reordered":
        model.reorder = lambda rows: setattr(  # type: ignore[method-assign]
            model, "keys", model.keys[torch.arange(len(rows)) % 3]
        )

    def counted(name: str) -> None:
        original = getattr(model, name)

        def call(tokens: Tensor) -> Tensor:
            passes.append(name)
            output: Tensor = original(tokens)
            return output

        setattr(model, name, call)

    counted("full_pass")
    counted("append")
    report = ask("cache", model.full_pass, IDS, new_step_model=model.start, probes=5)
    assert len(passes) <= 5
    assert report.note.startswith("3 passes were tried")
    assert report.note.endswith("a leak looks the same, and causality was not checked")
    assert report.note in str(report)
    assert "".join(report.problems[:1]).startswith(found), report
    assert bool(report) == (not bug), report


def test_steps_without_a_prompt_are_limited_too() -> None:
    model = DecoderModel("shifted positions")
    report = ask("cache", model.full_pass, IDS, new_step_model=model.start, probes=4)
    assert {problem[:6] for problem in report.problems} == {"step 0", "step 1"}
    refused = ask("cache", model.full_pass, IDS, new_step_model=model.start, probes=2)
    assert refused.not_tried == "probes=2 allows no further forward pass; pass a larger number"


def test_a_cache_of_vectors_is_not_tried() -> None:
    options = {"causal": True, "new_step_model": DecoderModel().start}
    report = ask("cache", lambda x: x.cumsum(1), torch.randn(2, 4, D), **options)
    assert "the model takes vectors" in report.not_tried


def test_properties_share_the_passes() -> None:
    model = DecoderModel()
    soundness = check_soundness(
        model.full_pass, IDS, only=("causality", "cache"), probes=8, new_step_model=model.start
    )
    assert [report.title for report in soundness.reports] == ["causality", "cache"]
    assert soundness, soundness
    assert not soundness.not_tried
    assert soundness["cache"].note.startswith("3 passes were tried")
    assert "causality" not in soundness["cache"].note


@pytest.mark.parametrize("probes", [None, 8])
def test_no_cache_is_blamed_for_a_full_pass_that_reads_later_positions(probes: int | None) -> None:
    model = DecoderModel()

    def leaky(ids: Tensor) -> Tensor:
        y = model.full_pass(ids)
        return y + y.roll(-1, dims=1)

    options: dict[str, Any] = {"only": ("causality", "cache"), "probes": probes}
    found = check_soundness(leaky, IDS, **options, new_step_model=model.start)
    assert found.violated == ("causality",)
    assert found["cache"].not_tried.endswith("mend causality first")
