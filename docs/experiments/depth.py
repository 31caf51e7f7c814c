"""Depth: twelve layers with post-norm and with pre-norm, at initialisation and in training.

    python docs/experiments/depth.py

An encoder with the initialisation of this library sorts sequences of 8 symbols. Two experiments:

- *Gradients at initialisation*: the norm of the gradient of all parameters of each layer, a mean
  over ten seeds, for stacks of 2, 6, 12 and 24 layers. In "On Layer Normalization in the
  Transformer Architecture" (Xiong et al. 2020, https://arxiv.org/abs/2002.04745), the gradient of
  the last layer does not depend on the number of layers N with post-norm, and falls as 1 / sqrt(N)
  with pre-norm.
- *Training*: 500 updates of Adam (betas 0.9, 0.98) with a constant rate, either from the first
  update on, or after a linear warm-up of 200 updates; for two rates and three seeds.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from experiment import Experiment, new_parser, positive, run_single_threaded
from transformer_blocks import (
    PostNorm,
    PreNorm,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
)

COMMAND = "python docs/experiments/depth.py"
ORDERS: dict[str, Callable[..., Residual]] = {"post-norm": PostNorm, "pre-norm": PreNorm}
SYMBOLS, LENGTH = 8, 8
DEPTHS, RATES = (2, 6, 12, 24), (1e-3, 3e-3)
SIZES = {"updates": 500, "warmup": 200, "d_model": 32, "layers": 12, "gradient_seeds": 10}


class Sorter(nn.Module):
    """An encoder that predicts, for each position, the symbol that is there after sorting."""

    def __init__(self, residual: Callable[..., Residual], *, num_layers: int, d_model: int) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(SYMBOLS, d_model)
        self.positions = SinusoidalPositionalEncoding(d_model)
        self.encoder = build_encoder(
            num_layers=num_layers,
            d_model=d_model,
            num_heads=4,
            d_ff=4 * d_model,
            dropout=0.0,
            residual=residual,
        )
        self.output = nn.Linear(d_model, SYMBOLS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute logits: (B, LENGTH) to (B, LENGTH, SYMBOLS)."""
        return self.output(self.encoder(self.positions(self.embedding(tokens))))


def make_batch(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Make random sequences and the same sequences sorted, both of shape (B, LENGTH)."""
    tokens = torch.randint(SYMBOLS, (count, LENGTH), generator=generator)
    return tokens, tokens.sort(dim=1).values


def compute_loss(model: nn.Module, tokens: Tensor, target: Tensor) -> Tensor:
    """Compute the mean cross-entropy of all positions."""
    return F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())


def gradient_norms(residual: Callable[..., Residual], *, seed: int, **sizes: int) -> list[float]:
    """Compute the norm of the gradient of each layer's parameters before the first update."""
    torch.manual_seed(seed)
    model = Sorter(residual, **sizes)
    compute_loss(model, *make_batch(64, torch.Generator().manual_seed(seed))).backward()
    return [
        torch.stack([each.grad.norm() for each in layer.parameters() if each.grad is not None])
        .norm()
        .item()
        for layer in model.encoder.layers
    ]


def train(model: nn.Module, *, updates: int, rate: float, warmup: int, seed: int) -> dict[str, Any]:
    """Train a model; return its loss on 500 other sequences every 50 updates."""
    generator, other = (torch.Generator().manual_seed(each) for each in (seed, 1_000_000 + seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    held_out = make_batch(500, other)
    curve: dict[str, Any] = {"updates": [], "loss": []}
    for update in range(updates + 1):
        if update % 50 == 0 or update == updates:
            curve["updates"].append(update)
            with torch.no_grad():
                curve["loss"].append(compute_loss(model, *held_out).item())
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (update + 1) / max(warmup, 1))
        optimizer.zero_grad()
        compute_loss(model, *make_batch(32, generator)).backward()
        optimizer.step()
    with torch.no_grad():
        right = model(held_out[0]).argmax(-1) == held_out[1]
    return {"seed": seed, "curve": curve, "accuracy": right.float().mean().item()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure gradients at initialisation, train, and record both."""
    parser = new_parser(__doc__, seeds=range(3))
    for name, default in SIZES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=positive, default=default)
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    gradients: dict[str, dict[int, list[float]]] = {}
    runs = []
    for order, residual in ORDERS.items():
        gradients[order] = {}
        for depth in DEPTHS:
            sizes = {"num_layers": depth, "d_model": options.d_model}
            seeds = range(options.gradient_seeds)
            norms = [gradient_norms(residual, seed=seed, **sizes) for seed in seeds]
            gradients[order][depth] = [mean(each) for each in zip(*norms, strict=True)]
        for rate in RATES:
            for warmup in (0, options.warmup):
                run: dict[str, Any] = {"order": order, "rate": rate, "warmup": warmup, "seeds": []}
                for seed in options.seeds:
                    torch.manual_seed(seed)
                    model = Sorter(residual, num_layers=options.layers, d_model=options.d_model)
                    plan = {"updates": options.updates, "rate": rate, "warmup": warmup}
                    run["seeds"].append(train(model, seed=seed, **plan))
                losses = [each["curve"]["loss"][-1] for each in run["seeds"]]
                run["mean_loss"] = mean(losses)
                runs.append(run)
                print(order, rate, warmup, [round(loss, 3) for loss in losses], flush=True)
    settings = {name: getattr(options, name) for name in SIZES}
    results = {"gradient_norm_of_each_layer": gradients, "training": runs}
    print(experiment.write("depth", {**settings, "batch": 32, "rates": RATES}, results))


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
