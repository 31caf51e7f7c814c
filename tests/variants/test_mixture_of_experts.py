"""Mixtures of experts: the equations of their papers, and that a token depends on itself alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.blocks.reference import Array, to_numpy
from torch import nn

from transformer_blocks import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    PreNorm,
    SigmoidRouting,
    balancing_loss,
    build_encoder,
    build_language_model,
    record_attention,
    record_router_logits,
    softmax_over_all,
    softmax_over_chosen,
)
from transformer_blocks.inference import layers, prepare
from transformer_blocks.inspection import check_soundness

WIDTH, EXPERTS, TOP = 6, 8, 3
F64 = torch.float64


def biased(**options: Any) -> SigmoidRouting:
    """Make a routing whose biases change the choice."""
    routing = SigmoidRouting(EXPERTS, **options)
    nn.init.normal_(routing.bias, std=0.2)
    return routing


ROUTINGS: dict[str, Callable[[], Any]] = {
    "chosen": lambda: softmax_over_chosen,
    "all": lambda: softmax_over_all,
    "sigmoid": biased,
    "sigmoid, groups": lambda: biased(scale=2.5, num_groups=4, top_groups=2),
}
every_routing = pytest.mark.parametrize("make", ROUTINGS.values(), ids=ROUTINGS)


def mixture(routing: Any = softmax_over_chosen, **options: Any) -> MixtureOfExperts:
    sizes: dict[str, Any] = {"num_experts": EXPERTS, "top_k": TOP}
    sizes["expert"] = lambda: GatedFeedForward(WIDTH, 5)
    made = MixtureOfExperts(WIDTH, routing=routing, **sizes | options)
    nn.init.normal_(made.router.weight)  # so that tokens choose different experts
    return made.double().eval()


def weights_of_token(logits: Array, routing: Any) -> dict[int, float]:
    """Choose the experts of one token, with their weights, one after the other."""
    numbers = list(range(EXPERTS))
    if not isinstance(routing, SigmoidRouting):
        chosen = sorted(numbers, key=lambda e: -logits[e])[:TOP]
        of = chosen if routing is softmax_over_chosen else numbers
        total = sum(np.exp(logits[e]) for e in of)
        return {e: float(np.exp(logits[e]) / total) for e in chosen}
    scores = 1.0 / (1.0 + np.exp(-logits))
    biased = scores + to_numpy(routing.bias)
    size = EXPERTS // routing.num_groups
    groups = [numbers[i : i + size] for i in range(0, EXPERTS, size)]
    groups.sort(key=lambda group: -sum(sorted((biased[e] for e in group), reverse=True)[:2]))
    allowed = [e for group in groups[: routing.top_groups] for e in group]
    chosen = sorted(allowed, key=lambda e: -biased[e])[:TOP]
    total = sum(scores[e] for e in chosen)
    return {e: float(routing.scale * scores[e] / total) for e in chosen}


@every_routing
@pytest.mark.parametrize("has_shared", [False, True])
@torch.no_grad()
def test_it_equals_the_loop_over_tokens(make: Callable[[], Any], has_shared: bool) -> None:
    shared: Any = FeedForward(WIDTH, 4) if has_shared else None
    layer = mixture(make(), shared=shared, bias=True)
    nn.init.normal_(layer.router.bias)
    x = torch.randn(3, 7, WIDTH, dtype=F64)
    found, experts = layer(x), [*layer.experts]
    logits = to_numpy(x) @ to_numpy(layer.router.weight).T + to_numpy(layer.router.bias)
    choices = set()
    for place in np.ndindex(3, 7):
        token, weights = x[place], weights_of_token(logits[place], layer.routing)
        choices.add(tuple(sorted(weights)))
        expected = sum(weight * experts[e](token) for e, weight in weights.items())
        expected = expected if shared is None else expected + shared(token)
        torch.testing.assert_close(found[place], expected, rtol=0, atol=1e-12)
    assert len(choices) > 4


@torch.no_grad()
def test_an_expert_is_called_once_with_the_tokens_that_chose_it() -> None:
    layer, calls = mixture(), list[int]()
    for expert in layer.experts:
        expert.register_forward_hook(lambda expert, inputs, output: calls.append(len(output)))
    layer(torch.randn(4, 9, WIDTH, dtype=F64))
    assert len(calls) <= EXPERTS
    assert sum(calls) == 4 * 9 * TOP
    calls.clear()
    layer(torch.randn(1, 1, WIDTH, dtype=F64))
    assert calls == [1] * TOP


def test_every_parameter_has_a_gradient_also_of_an_expert_that_no_token_chose() -> None:
    layer: Any = mixture(softmax_over_all)
    layer(torch.randn(1, 1, WIDTH, dtype=F64)).square().sum().backward()
    sizes = [expert.up_projection.weight.grad for expert in layer.experts]
    assert sum(bool(grad.any()) for grad in sizes if grad is not None) == TOP
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert layer.router.weight.grad is not None
    assert layer.router.weight.grad.any()


@every_routing
def test_where_sizes_cannot_depend_on_values_the_numbers_are_the_same(
    make: Callable[[], Any],
) -> None:
    layer, x = mixture(make()), torch.randn(3, 5, WIDTH, dtype=F64, requires_grad=True)
    expected, found = layer(x), torch.vmap(layer)(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(y.cos().sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_the_balancing_loss_is_that_of_the_paper() -> None:
    logits = torch.randn(20, EXPERTS, dtype=F64, requires_grad=True)
    values = to_numpy(logits)
    probabilities = np.exp(values) / np.exp(values).sum(-1, keepdims=True)
    counts = np.zeros(EXPERTS)
    for row in values:
        for expert in sorted(range(EXPERTS), key=lambda e: -row[e])[:TOP]:
            counts[expert] += 1
    expected = EXPERTS * float(counts / (20 * TOP) @ probabilities.mean(0))
    loss = balancing_loss(logits, TOP)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, logits)
    step = balancing_loss(logits - 0.1 * gradient, TOP)
    assert step < loss
    assert balancing_loss(torch.zeros(4, EXPERTS), TOP).item() == pytest.approx(1.0)


def test_biases_balance_the_choice_without_a_gradient_and_are_saved() -> None:
    routing = SigmoidRouting(EXPERTS)
    logits = torch.randn(400, EXPERTS) + torch.linspace(0, 2, EXPERTS)

    def largest() -> int:
        return int(routing(logits, TOP)[1].flatten().bincount().max())

    before = largest()
    for _ in range(400):
        routing.balance(logits, TOP, rate=0.002)
    assert largest() < 0.6 * before
    assert not routing.bias.requires_grad
    assert "bias" in routing.state_dict()
    plain, biased = (each(logits, EXPERTS)[0].sort()[0] for each in (SigmoidRouting(8), routing))
    torch.testing.assert_close(plain, biased)  # who is chosen changes, and no weight


def test_router_logits_are_recorded_of_all_layers_with_gradients() -> None:
    model = language_model()
    with record_router_logits(model) as logits:
        model.loss(torch.randint(20, (2, 5)))
    assert [each.shape for each in logits] == [(8, EXPERTS)] * 2
    assert all(each.requires_grad for each in logits)
    model(torch.randint(20, (2, 5)))
    assert len(logits) == 2


def language_model() -> Any:
    model = build_language_model(20, num_layers=2, d_model=WIDTH, num_heads=2, dropout=0.0)
    model.decoder = build_encoder(
        num_layers=2, d_model=WIDTH, num_heads=2, residual=PreNorm, feed_forward=mixture
    )
    return model.double().eval()


@torch.no_grad()
def test_a_model_of_experts_is_sound_is_recorded_and_can_be_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "MIN_SAVED_WORK", 0)
    model, tokens = language_model(), torch.randint(1, 20, (2, 6))
    report = check_soundness(model, tokens)
    assert report, report
    expected, ready = model(tokens), prepare(model)
    with record_attention(model) as maps:
        assert torch.equal(model(tokens), expected)
    assert len(maps) == 2
    torch.testing.assert_close(ready(tokens), expected, rtol=0, atol=1e-12)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [0] * 6], dtype=torch.bool)[:, None, None]
    x = torch.randn(2, 6, WIDTH, dtype=F64)
    found = ready.decoder(x, mask=mask)
    torch.testing.assert_close(found[0, :3], model.decoder(x[:1, :3])[0], rtol=0, atol=1e-12)
    assert (found[0, 3:] == 0).all()  # padding is not computed


@torch.no_grad()
def test_a_router_prepared_in_8_bits_chooses_the_same_experts() -> None:
    layer, x = mixture(shared=FeedForward(WIDTH, 5)).float(), torch.randn(2, 9, WIDTH)
    assert torch.equal(prepare(layer, int8=True).router(x), layer.router(x))


GROUPS = "num_groups must divide num_experts, and be at least"
REFUSED: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (mixture, {"top_k": 9}, r"top_k must be at most num_experts=8, got top_k=9$"),
    (mixture, {"num_experts": 0}, "num_experts must be positive"),
    (mixture, {"expert": nn.Identity().train}, "expert must return a new module at each call"),
    (biased, {"num_groups": 3}, GROUPS),
    (biased, {"num_groups": 2, "top_groups": 3}, GROUPS),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_numbers_that_do_not_fit_are_refused(
    make: Callable[..., object], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make(**options)
