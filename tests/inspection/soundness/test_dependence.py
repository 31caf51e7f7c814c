"""Outputs depend on no later position: leaks are found wherever they are, in many passes or few."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from tests.inspection.soundness.sound_models import TOKENS, D, ask
from torch import Tensor, nn

from transformer_blocks import MultiHeadAttention, causal_mask
from transformer_blocks.inspection import check_soundness

LATER = "position 0 of row 0 changes with position 1, which comes later"


def test_an_inverted_causal_mask_is_found() -> None:
    attention, mask = MultiHeadAttention(D, 4).eval(), ~causal_mask(5)
    report = ask("causality", lambda x: attention(x, x, x, mask=mask), torch.randn(2, 5, D))
    assert report.problems[0].startswith(LATER), report
    assert report.problems[-1] == "no output depends on an earlier position"
    assert "\n  next: pass a causal mask to each attention" in str(report)


def test_a_causal_mask_that_the_model_ignores_says_that_no_output_may_depend_on_later() -> None:
    attention, x = MultiHeadAttention(D, 4).eval(), torch.randn(2, 5, D)
    model = lambda x, mask: attention(x, x, x)  # noqa: E731
    biases = torch.arange(5.0).expand(5, 5).masked_fill(causal_mask(5), -torch.inf)
    for mask in (causal_mask(5), biases):
        assert check_soundness(model, (x, mask)).violated == ("causality",)
    assert not check_soundness(model, (x, causal_mask(5) & False)).violated


def test_sound_functions_of_any_kind_pass_and_nan_is_a_leak() -> None:
    x, recurrent = torch.randn(2, 40, D), nn.LSTM(D, D, batch_first=True)
    convolution, buffer = nn.Conv1d(D, D, kernel_size=3), torch.empty(2, 40, D)

    def convolve(x: Tensor) -> Tensor:
        return convolution(nn.functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)

    def into_one_buffer(x: Tensor) -> Tensor:
        return torch.cumsum(x, dim=1, out=buffer[: len(x), : x.shape[1]])

    sound: list[Callable[[Tensor], Tensor]] = [
        convolve,
        into_one_buffer,
        lambda x: recurrent(x)[0],
        lambda x: 1e4 * x.cumsum(dim=1),
        lambda x: x.cumsum(1).index_fill(-1, torch.tensor(3), -torch.inf),
    ]
    for function in sound:
        for options in ({}, {"probes": 8}):
            report = ask("causality", function, x, **options)
            assert report, report
            assert not report.not_tried
    function = lambda y: y if torch.equal(y[:, :40], x[:, :40]) else y * torch.nan  # noqa: E731
    assert "to a number that is not finite" in ask("causality", function, x).problems[0]


def test_random_or_infinite_outputs_are_no_leak() -> None:
    x = torch.randn(1, 4, D)
    for function, message in (
        (nn.Dropout(0.5).forward, "two equal calls differ"),
        (lambda x: x * math.nan, "is not finite"),
    ):
        soundness = check_soundness(function, x, only="causality")
        assert message in soundness["determinism"].problems[0]
        assert soundness.not_tried == ("causality",)


def test_properties_that_are_not_known_or_of_other_functions_are_refused() -> None:
    for only in ("causal", (), ("causality", "labels"), ("loss", "labels", "speed")):
        with pytest.raises(ValueError, match=r"^only must name some of determinism, causality"):
            check_soundness(lambda x: x, torch.randn(1, 3, 4), only=only)
    with pytest.raises(ValueError, match=r"^probes must be positive, got probes=0$"):
        check_soundness(lambda x: x, torch.randn(1, 3, 4), probes=0)


def test_a_long_report_is_shortened() -> None:
    report = ask("causality", lambda x: x.flip(1), torch.randn(1, 13, 2))
    assert len(report.problems) > 5
    assert f"\n  and {len(report.problems) - 5} more\n  next: " in str(report)


# Few passes


class Mixer(nn.Module):
    """A causal language model of two layers, with a function that mixes positions."""

    def __init__(self, mix: Callable[[Tensor], Tensor], *, shift: int = 0, most: int = 400) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(50, D), nn.Embedding(most, D)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 2, 32, 0.1, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.mix, self.shift, self.passes = mix, shift, 0

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.embedding(tokens) + self.positions(torch.arange(length))  # or refuse them
        self.passes += 1
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1 + self.shift)
        for layer in self.layers:
            x = layer(x, src_mask=hidden)
        return self.mix(x) @ self.embedding.weight.T


def itself(x: Tensor) -> Tensor:
    return x


def of_next_block(x: Tensor, size: int = 64) -> Tensor:
    """Add the first position of each block to the last one of the block before."""
    is_last = torch.arange(x.shape[1]) % size == size - 1
    return x + nn.functional.pad(x[:, 1:], (0, 0, 0, 1)) * is_last[:, None]


def of_whole_blocks(x: Tensor, size: int = 16) -> Tensor:
    """Add the mean of each whole block at all its positions."""
    means = x[:, : x.shape[1] // size * size].unflatten(1, (-1, size)).mean(2)
    return x + nn.functional.pad(means.repeat_interleave(size, 1), (0, 0, 0, x.shape[1] % size))


def of_all(x: Tensor) -> Tensor:
    """Normalise over the positions."""
    return x - x.mean(1, keepdim=True)


def wrapped(x: Tensor) -> Tensor:
    """Add the token before; at the first position, the last."""
    return x + x.roll(1, dims=1)


def of_fourths(x: Tensor) -> Tensor:
    """Add the next position at each fourth one."""
    is_fourth = torch.arange(x.shape[1]) % 4 == 0
    return x + nn.functional.pad(x[:, 1:], (0, 0, 0, 1)) * is_fourth[:, None]


def far_behind(x: Tensor) -> Tensor:
    """Add the last position to the first."""
    return torch.cat([x[:, :1] + x[:, -1:], x[:, 1:]], dim=1)


def of_blocks(x: Tensor, size: int = 4) -> Tensor:
    """Attend to the means of whole blocks, of which those that have not ended are not hidden."""
    blocks = x[:, : x.shape[1] // size * size].unflatten(1, (-1, size)).mean(2)
    ends = torch.arange(blocks.shape[1]) * size + size - 1
    has_ended = torch.arange(x.shape[1])[:, None] >= ends
    scores = (x @ blocks.mT).masked_fill(has_ended, -torch.inf)
    return x + scores.softmax(-1).nan_to_num() @ blocks


LEAKS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "a mask that is off by one": (itself, 1),
    "the border of a block": (of_next_block, 0),
    "whole blocks of 16": (of_whole_blocks, 0),
    "whole blocks of 64": (lambda x: of_whole_blocks(x, 64), 0),
    "a norm over positions": (of_all, 0),
    "a shift that wraps": (wrapped, 0),
    "the last token": (far_behind, 0),
    "each fourth position": (of_fourths, 0),
    "attention to compressed blocks": (of_blocks, 0),
}


@pytest.mark.parametrize("length", [8, 20, 70, 130])
@pytest.mark.parametrize("rows", [1, 4])
def test_eight_passes_find_leaks_of_every_kind(length: int, rows: int) -> None:
    tokens = torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(0))
    for name, (mix, shift) in LEAKS.items():
        model = Mixer(mix, shift=shift)
        report = ask("causality", model, tokens, probes=8)
        assert report.problems, name
        assert model.passes <= 8
    model = Mixer(itself)
    report = ask("causality", model, tokens, probes=8)
    assert report, report
    assert model.passes <= 8
    assert "a leak from fewer than" in report.note


def test_the_positions_that_were_tried_are_counted() -> None:
    tokens, table = torch.arange(130)[None] % 50, torch.randn(50, D)
    changed = set[int]()

    def model(ids: Tensor) -> Tensor:
        changed.update(int((row != tokens[0]).int().argmax()) for row in ids)
        return table[ids].cumsum(1)

    note = ask("causality", model, tokens, probes=8).note
    assert note.startswith(f"{len(changed - {0})} of 129 positions were tried")


@pytest.mark.parametrize("length", [10, 64, 150])
@pytest.mark.parametrize("name", [*LEAKS, "none"])
def test_a_leak_of_any_kind_is_found_by_all_passes(name: str, length: int) -> None:
    mix, shift = LEAKS.get(name, (itself, 0))
    tokens = torch.randint(50, (2, length), generator=torch.Generator().manual_seed(0))
    assert bool(ask("causality", Mixer(mix, shift=shift), tokens)) == (name == "none")


def test_a_leak_is_sought_in_the_real_tokens_alone() -> None:
    found = check_soundness(Mixer(of_all), TOKENS, causal=True, padding_id=0)["causality"]
    assert found.problems
    for problem in found.problems:
        output, row, changed = map(int, re.findall(r"\d+", problem)[:3])
        assert TOKENS[row, [output, changed]].all(), problem


@pytest.mark.parametrize("most", [6, 18, 40])
def test_a_leak_is_sought_as_far_as_the_model_allows(most: int) -> None:
    def of_long_sequences(x: Tensor) -> Tensor:
        return far_behind(x) if x.shape[1] > 16 else x

    causality = ask("causality", Mixer(of_long_sequences, most=most), torch.arange(6)[None])
    assert bool(causality) == (most == 6)
    assert not causality.not_tried
    if most > 6:
        assert f"repeated to {18 if most == 18 else 34} tokens" in causality.problems[0]


def test_a_model_that_takes_no_more_tokens_is_checked_with_its_own() -> None:
    tokens = torch.arange(8)[None]
    model = Mixer(of_fourths, most=8)
    assert not ask("causality", model, tokens, probes=8)
    assert model.passes <= 8
    for place in range(7):  # the next position at one only
        at = torch.arange(8)[:, None] == place
        leak = Mixer(lambda x, at=at: x + x.roll(-1, dims=1) * at, most=8)  # type: ignore[misc]
        assert not ask("causality", leak, tokens, probes=8)
    report = ask("causality", Mixer(itself, most=8), tokens, probes=8)
    assert report
    assert not report.note  # all positions were tried


@pytest.mark.parametrize("form", ["ids", "vectors", "source"])
@pytest.mark.parametrize("is_leaky", [False, True])
def test_labels_are_no_input_of_a_decoder(form: str, is_leaky: bool) -> None:
    gru, y = nn.GRU(D, D, batch_first=True), torch.randn(2, 6, D)
    x, embed = torch.arange(12).view(2, 6), nn.Embedding(12, D)

    def model(ids: Tensor, targets: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        hidden = gru(embed(ids) + (embed(targets) if form == "source" else 0))[0]
        output = hidden + hidden.flip(1) if is_leaky else hidden
        return output, (output.sum(-1) - labels.view(2, 6, -1)[..., 0]).square().mean()

    labels = y if form == "vectors" else x.flip(0)
    batch = {"ids": x, "targets": x.flip(1), "labels": labels}
    found = check_soundness(model, batch)
    assert found.kind == ("encoder-decoder" if form == "source" else "causal")
    gate = check_soundness(model, batch, only="causality", probes=8)
    assert gate.violated == (("causality",) if is_leaky else ()), gate


def test_rows_that_depend_on_others_are_told_from_a_leak() -> None:
    model = Mixer(lambda x: x + x.mean((0, 1)).abs().max())
    report = ask("causality", model, torch.arange(24).view(3, 8), probes=8)
    assert any("changes with the tokens of other rows" in each for each in report.problems), report


def test_the_state_of_a_training_is_as_before() -> None:
    model = Mixer(itself).train()
    model.layers[0].eval()
    model.to(torch.float64)
    tokens = torch.arange(16).view(2, 8)
    model(tokens).sum().backward()
    modes = [part.training for part in model.modules()]
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    state = torch.random.get_rng_state()
    assert check_soundness(model, tokens, only=("causality", "cache"), probes=8)
    assert modes == [part.training for part in model.modules()]
    assert torch.equal(state, torch.random.get_rng_state())
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    after = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(map(torch.equal, gradients, after))
    assert len(gradients) == len(after) > 0


@pytest.mark.parametrize("probes", [None, 8])
def test_a_gate_that_could_not_try_anything_is_not_passed(probes: int | None) -> None:
    embedding, x = nn.Embedding(10, D), torch.tensor([[4]])
    found = check_soundness(
        lambda ids: embedding(ids).cumsum(1), x, only="causality", causal=True, probes=probes
    )
    assert found.not_tried == ("causality",)
    assert not found
