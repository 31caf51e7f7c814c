"""Each correction does what its text says: it is applied by hand, and compared."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import first_difference
from transformer_blocks.inspection.compare.corrections import Site, corrected, corrections

IDS = torch.tensor([[5, 3, 0, 2, 1, 4], [1, 0, 4, 3, 2, 5]])


class Model(nn.Module):
    """A model in which every choice that a correction makes is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(6, 8), nn.Embedding(6, 8)
        self.norm, self.joined = nn.LayerNorm(8), nn.Linear(8, 24)
        self.wq, self.wk = nn.Linear(8, 8), nn.Linear(8, 8)
        self.output = nn.Linear(8, 6, bias=False)
        self.mask = torch.rand(6, 6) < 0.4
        self.factor, self.fill, self.dim = 1.0, -0.5, -1
        self.activation: Callable[[Tensor], Tensor] = F.gelu
        self.is_causal = self.is_transposed = False
        self.change: Callable[[Tensor], Tensor] = lambda y: y
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.embedding(ids) + self.positions(torch.arange(6)))
        query, key, value = self.joined(x).chunk(3, dim=-1)
        scores = self.wq(query) * torch.arange(0.1, 0.5, 0.05) @ self.wk(key).mT  # the order counts
        scores = scores.masked_fill(self.mask, self.fill) * self.factor
        if self.is_causal:
            scores = scores + torch.full((6, 6), -torch.inf).triu(1)
        y = self.activation(torch.softmax(scores, self.dim) @ value)
        heads = (
            y.unflatten(-1, (2, 4)).transpose(1, 2) if self.is_transposed else y.view(2, 2, 6, 4)
        )
        heads = heads * torch.tensor([1.0, 3.0])[:, None, None]
        return self.change(self.output(heads.transpose(1, 2).flatten(2)))


torch.manual_seed(0)
MODEL, OTHER = Model().eval(), Model().eval()
OTHER.factor, OTHER.dim = 2.0, -2
with torch.no_grad():
    FOUND = MODEL(IDS)
WANTED = 4 * FOUND


def tensor(model: nn.Module, name: str) -> Any:
    return model.get_parameter(name).data


def regroup(model: Model, match: re.Match[str]) -> None:
    d_k, half = int(match[1]), int(match[1]) // 2
    for name in match[3].split(", "):
        w = tensor(model, name)
        old = w.clone()
        for start in range(0, len(w), d_k):
            for n in range(half):
                pair, halves = (start + 2 * n, start + 2 * n + 1), (start + n, start + n + half)
                new, given = (pair, halves) if match[2] == "halves" else (halves, pair)
                w[list(new)] = old[list(given)]


def reorder(model: Model, match: re.Match[str]) -> None:
    for w in model.get_submodule(match[1]).parameters():
        dim = w.shape.index(max(w.shape))
        if w.shape[dim] % 3 == 0:
            thirds = w.data.chunk(3, dim)
            w.data = torch.cat([thirds[int(n)] for n in match[2].split(", ")], dim)


def shift(model: Model, match: re.Match[str]) -> None:
    w, step = tensor(model, match[2]), int(match[1])
    w[:] = torch.stack([w[(p + step) % len(w)] for p in range(len(w))])


def exchange(model: Model, match: re.Match[str]) -> None:
    first, second = (model.get_submodule(match[n]).parameters() for n in (1, 2))
    for a, b in zip(first, second, strict=True):
        a.data, b.data = b.data, a.data


def set_weights(model: Model, match: re.Match[str]) -> None:
    for name in match[1].split(", "):
        tensor(model, name).copy_(tensor(OTHER, name))


def assign(model: nn.Module, key: str, value: Any) -> None:
    setattr(model, key, value)


def transpose(model: Model, match: re.Match[str]) -> None:
    w = model.get_parameter(match[2])
    thirds = w.data.chunk(3) if match[1] else [w.data]
    w.data = torch.cat([each.reshape(each.shape[::-1]).T for each in thirds])


ACTIVATIONS: dict[str, Any] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu with tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
BY_HAND: dict[str, Callable[[Model, Any], object]] = {
    r"transposed: (each third of )?(\S+)": transpose,
    r"positions: position p must be row p ([+-]\d) of (\S+)": shift,
    r"tied: (\S+) must be (\S+)": lambda m, t: tensor(m, t[1]).copy_(tensor(m, t[2]).clone()),
    r"exchanged: the thirds of (\S+) must be in the order \((.*)\)": reorder,
    r"exchanged: (\S+) and (\S+)": exchange,
    r"rotary: in heads of (\d+), rows must go from (\w+) to \w+: (.*)": regroup,
    r"weights: (.*) must hold other numbers": set_weights,
    r"setting: (\w*eps\w*) of (\S+) must be (\S+)": lambda m, t: assign(
        m.get_submodule(t[2]), t[1], float(t[3])
    ),
    r"setting: (\w+) of (the model|\S+) must be (True|False)": lambda m, t: assign(
        m if t[2] == "the model" else m.get_submodule(t[2]), t[1], t[3] == "True"
    ),
    r"setting: (\w+) of the model must be (-?[\d.]+)": lambda m, t: assign(
        m, t[1], type(getattr(m, t[1]))(t[2])
    ),
    r"scale: the output must be (\S+) times as large": lambda m, t: assign(
        m, "change", lambda y: float(t[1]) * y
    ),
    r"scale: each feature of the output must be multiplied by its own factor": lambda m, t: assign(
        m, "change", lambda y: 4 * y
    ),
    r"bias: the output lacks a bias, or has another one": lambda m, t: assign(
        m, "change", lambda y: y + (WANTED - FOUND).mean(dim=(0, 1))
    ),
    r"scale: the attention scores must be multiplied by (\S+)": lambda m, t: assign(
        m, "factor", float(t[1])
    ),
    r"activation: must be (.*)": lambda m, t: assign(m, "activation", ACTIVATIONS[t[1]]),
    r"softmax: must be over dimension (\d)": lambda m, t: assign(m, "dim", int(t[1])),
    r"polarity: the mask must be inverted": lambda m, t: assign(m, "mask", ~m.mask),
    r"mask: queries and keys must be exchanged": lambda m, t: assign(m, "mask", m.mask.mT),
    r"mask: masked scores must be minus infinity": lambda m, t: assign(m, "fill", -torch.inf),
    r"mask: attention must be causal": lambda m, t: assign(m, "is_causal", True),
    r"heads: must be transposed, not only reshaped(, where they are cut)?": lambda m, t: assign(
        m, "is_transposed", True
    ),
    r"mask: weights of fully masked rows must be zero": lambda m, t: None,  # there is none
    r"dropout: .*|heads: (keys and values must be repeated .*|.*, where joined)": (
        lambda m, t: None  # nor these
    ),
}
"""What the text of a correction says, as the user would do it."""


@torch.no_grad()
def test_each_correction_does_what_its_text_says() -> None:
    parts, others = dict(MODEL.named_modules()), dict(OTHER.named_modules())
    changing = set()
    for text, values in corrections(Site(parts, "", others, "", FOUND, WANTED)):
        pattern = next((each for each in BY_HAND if re.fullmatch(each, text)), None)
        assert pattern, f"no application by hand of {text!r}"
        mended = copy.deepcopy(MODEL)
        BY_HAND[pattern](mended, re.fullmatch(pattern, text))
        try:
            expected = mended(IDS)
        except IndexError:
            continue  # such as a softmax over a dimension that there is not
        with corrected(parts, values):
            found = MODEL(IDS)
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True), text
        if not expected.allclose(FOUND):
            changing.add(pattern)
    assert [*BY_HAND][:-2] == [each for each in BY_HAND if each in changing]
    assert torch.equal(MODEL(IDS), FOUND)


@pytest.mark.parametrize("broken", ["cut", "joined"])
def test_heads_that_are_reshaped_on_one_side_only_are_named(broken: str) -> None:
    class Heads(nn.Module):
        def __init__(self, broken: str) -> None:
            super().__init__()
            self.linear, self.broken = nn.Linear(8, 8), broken

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            heads = y.reshape(2, 6, 2, 4).transpose(1, 2)
            heads = y.reshape(2, 2, 6, 4) if self.broken == "cut" else heads
            heads = heads.cumsum(2) * torch.tensor([1.0, 3.0])[:, None, None]
            return (
                heads.reshape(2, 6, 8)
                if self.broken == "joined"
                else heads.transpose(1, 2).reshape(2, 6, 8)
            )

    right, wrong = Heads(""), Heads(broken)
    wrong.load_state_dict(right.state_dict())
    cause = first_difference(right, wrong, torch.randn(2, 6, 8)).cause
    where = "where they are cut" if broken == "cut" else "where joined"
    assert cause is not None
    assert cause.startswith(f"heads: must be transposed, not only reshaped, {where}"), cause
