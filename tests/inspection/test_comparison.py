"""Outputs are compared feature by feature: a large constant hides no error, and is none itself."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from tests.inspection.soundness.sound_models import FULL, TOKENS, D, ask, decoder_only
from torch import Tensor, nn

from transformer_blocks import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Report, check_soundness, first_difference
from transformer_blocks.inspection.comparison import measure_changes, measure_scales, perturb

CONSTANTS: dict[str, Callable[[torch.dtype], float]] = {
    "-1e9": lambda dtype: -1e9,
    "-1e4": lambda dtype: -1e4,
    "smallest": lambda dtype: torch.finfo(dtype).min,
    "-inf": lambda dtype: -torch.inf,
    "3e4": lambda dtype: 3e4,
}


class Constant(nn.Module):
    """A language model whose logits of two ids are a constant, added or in their place."""

    def __init__(self, constant: str, *, causal: bool = True) -> None:
        super().__init__()
        self.model = decoder_only(SinusoidalPositionalEncoding(D))
        self.constant, self.causal = CONSTANTS[constant], causal

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model.output(
            self.model.decoder(self.model.embed(tokens), causal=self.causal)
        )
        number = self.constant(logits.dtype)
        logits[..., 7] += number if number > torch.finfo(logits.dtype).min else 0.0
        return logits.index_fill(-1, torch.tensor([0, 3], device=logits.device), number)


class Steps:
    """Decoding that computes the whole prefix anew, with or without its last but one token."""

    def __init__(self, model: nn.Module, *, forgets: bool = False) -> None:
        self.model, self.forgets = model, forgets
        self.tokens = torch.empty(len(FULL), 0, dtype=torch.long)

    def step(self, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens[:, None]], 1)
        read = self.tokens.clone()
        read[:, -2:-1] = read[:, -1:] if self.forgets else read[:, -2:-1]
        logits: Tensor = self.model(read)[:, -1]
        return logits

    def reorder(self, rows: Tensor) -> None:
        self.tokens = self.tokens[rows]


def labelled(model: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
    return model(tokens[:, :-1]), tokens[:, 1:]


@pytest.mark.parametrize("constant", CONSTANTS)
def test_a_constant_in_the_logits_hides_no_violation_and_is_none(constant: str) -> None:
    torch.manual_seed(0)
    sound = Constant(constant).eval()
    for causal in (True, False):
        model = Constant(constant, causal=causal).eval()
        soundness = check_soundness(model, FULL, causal=True)
        expected = [] if causal else ["causality"]
        expected += ["dtype"] if constant == "-1e9" else []  # float16 has no such number
        assert [*soundness.violated] == expected, soundness
        reports: list[Report] = [
            ask("causality", model, FULL, probes=8),
            ask("labels", partial(labelled, model), FULL),
            ask("padding", model, TOKENS, padding_id=0),
            ask("cache", sound, FULL, new_step_model=partial(Steps, sound, forgets=not causal)),
        ]
        assert list(map(bool, reports)) == [causal] * 4, reports


@pytest.mark.parametrize("constant", CONSTANTS)
def test_a_constant_in_the_logits_hides_no_difference(constant: str) -> None:
    a, b = Constant(constant).eval(), Constant(constant).eval()
    assert first_difference(a, b, FULL)
    b.load_state_dict(a.state_dict())
    assert not first_difference(a, b, FULL)


def test_a_large_constant_in_the_gradient_hides_no_error_of_a_loss() -> None:
    logits = torch.randn(3, 4, 12, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[3, 4, 5, 0], [4, 0, 0, 0], [5, 6, 0, 0]])

    def loss(parts: Sequence[tuple[Tensor, Tensor]], *, wrong: bool) -> Tensor:
        """The mean over all tokens, or over the means of the parts."""
        count = sum((y != 0).sum() for _, y in parts)
        large = torch.stack([1e9 * (z[..., 0] * (y != 0)).sum() for z, y in parts]).sum()
        means = [
            nn.functional.cross_entropy(z.mT, y, ignore_index=0, reduction="sum")
            / (len(parts) * (y != 0).sum().clamp(min=1) if wrong else count)
            for z, y in parts
        ]
        return large + torch.stack(means).sum() - large.detach()

    assert ask("loss", partial(loss, wrong=False), (logits, target), padding_id=0)
    assert not ask("loss", partial(loss, wrong=True), (logits, target), padding_id=0)


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e-3])
def test_the_tolerance_of_each_check_separates_small_changes_from_large_ones(factor: float) -> None:
    """It is relative: the same with outputs of any scale."""
    model = decoder_only(SinusoidalPositionalEncoding(D)).eval()
    deviation = float(model(FULL).detach().std())

    def leaky(tokens: Tensor) -> Tensor:  # the last token changes all outputs a little
        return factor * (model(tokens) + 0.01 * deviation * (tokens[:, -1:, None] - 6))

    def shifted(tokens: Tensor) -> Tensor:
        return model(tokens) + 0.01 * deviation

    def shows_next(tokens: Tensor) -> tuple[Tensor, Tensor]:
        return leaky(tokens)[:, :-1], tokens[:, 1:]

    def loss(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:  # 1 % more for each part
        losses = [nn.functional.cross_entropy(z.mT, y, reduction="sum") for z, y in parts]
        return factor * torch.stack(losses).sum() * (1 + 0.01 * len(parts))

    def padded_loss(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        return loss([(z * (y != 0)[..., None], y.where(y != 0, -100)) for z, y in parts])

    target = torch.tensor([[3, 4, 5, 0], [4, 6, 0, 0]])
    logits = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(0))
    for tolerance, is_large in ((None, True), (1e-3, True), (0.5, False)):
        reports: list[Report] = [
            ask("causality", leaky, FULL, tolerance=tolerance, probes=8),
            ask("padding", leaky, TOKENS, padding_id=0, tolerance=tolerance),
            ask("cache", shifted, FULL, new_step_model=partial(Steps, model), tolerance=tolerance),
            ask("labels", shows_next, FULL, tolerance=tolerance),
            ask("loss", padded_loss, (logits, target), padding_id=0, tolerance=tolerance),
            ask("causality", leaky, FULL, tolerance=tolerance),
        ]
        if factor != 1.0:
            del reports[2]  # whose steps have another scale
        assert [not each for each in reports] == [is_large] * len(reports), reports


def test_the_padding_id_of_each_check_is_the_one_that_counts() -> None:
    target = torch.tensor([[3, 4, 5, 0], [4, 7, 0, 0], [7, 5, 0, 0]])
    logits = torch.randn(3, 4, 12, generator=torch.Generator().manual_seed(0))

    def loss(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        losses = [
            nn.functional.cross_entropy(z.mT, y, ignore_index=0, reduction="sum") for z, y in parts
        ]
        return torch.stack(losses).sum()

    def count(tokens: Tensor) -> Tensor:
        return (tokens != 0).sum(1).float()

    def copies_padding(tokens: Tensor) -> tuple[Tensor, Tensor]:  # sound, but for the padding
        x = nn.functional.one_hot(tokens[:, :-1], 12).float()
        x[..., 0] += (tokens[:, 1:] == 0).float()
        return x, tokens[:, 1:]

    for padding_id, is_sound in ((0, True), (7, False)):
        assert bool(ask("loss", loss, (logits, target), padding_id=padding_id)) == is_sound
        padded = torch.tensor([[3, 4, 5], [6, padding_id, padding_id]])
        assert bool(ask("padding", count, padded, padding_id=padding_id)) == is_sound
        report = ask("labels", copies_padding, target, padding_id=padding_id)
        assert bool(report) == is_sound, report
        assert not ask("labels", copies_padding, target)


def test_the_scale_of_a_feature_is_its_standard_deviation() -> None:
    deviations = torch.tensor([1.0, 5.0, 1e4, 2.0])
    x = torch.randn(4, 1000, 4, generator=torch.Generator().manual_seed(0)) * deviations + 3.0
    assert torch.allclose(measure_scales(x), deviations.double().clamp(min=1.75), rtol=0.3)
    constant = torch.cat([x, torch.full((4, 1000, 2), -1e9)], dim=2)
    constant[:, :150, :4] = 1e20  # some positions
    scales = measure_scales(constant)
    assert torch.allclose(scales[:4], measure_scales(x), rtol=1.5)
    assert torch.equal(scales[4:], scales[:4].min().expand(2))  # not 1e9, nor 0
    assert float(measure_scales(constant[0, 400:401]).max()) < 1e5  # of a single position
    changes = measure_changes(x, x + 5.0, None)[0, 0]
    assert torch.allclose(changes, 5.0 / measure_scales(x))  # of each feature in its own


@pytest.mark.parametrize("shape", [(1, 4, 16), (2, 5, 8), (3, 6, 16)])
def test_noise_does_not_repeat_what_it_disturbs(shape: tuple[int, ...]) -> None:
    """A norm removes the factor of x + x: the causal mask is missing, and nothing changes."""
    for seed in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        for position in range(shape[1]):
            for given in (x, x[:, position], x[x > -9.0]):
                other = perturb(given, x, seed=position)
                pair = torch.stack([given.flatten(), (other - given).flatten()])
                assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.9
