"""Fine-tuning: a translator learns another word order, with 1 % of its weights or with all.

    python docs/experiments/fine_tuning.py

The model of ``reverse.py`` has learned a language whose sentences are the source reversed: the
*old domain*. In the *new domain*, the words have the order of the source. The trained model is
adapted to it with 30 and with 300 pairs of sentences, in three ways:

- *LoRA* trains matrices of rank 2 beside the projections to queries and values, 0.9 % of the
  weights;
- *full fine-tuning* trains all weights further;
- *from scratch* trains all weights of a new model, as a comparison.

Every training has 300 updates, for each of four learning rates. The rate with the best exact match
on 200 other pairs of the new domain is chosen, and the model that it gave is measured on 500 test
pairs of either domain. The experiment records the exact match, the share of the weights that LoRA
trains, and by how much merging changes its layers and its logits.
"""

import copy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2] / "examples"))

import reverse
from experiment import Experiment, new_parser, positive, run_single_threaded
from reverse import BOS, EOS, PAD, Reverser
from transformer_blocks import LoraLinear, add_lora, merge_lora

COMMAND = "python docs/experiments/fine_tuning.py"
SIZES = {"updates": 1000, "tuning_updates": 300, "d_model": 128, "rank": 2}
RATE, RATES = 3e-3, (1e-3, 3e-3, 1e-2, 3e-2)
BATCH, PAIRS = 64, (30, 300)
METHODS = ("LoRA", "full fine-tuning", "from scratch")
Pairs = tuple[Tensor, Tensor]


def in_order(source: Tensor) -> Tensor:
    """Make the targets of the new domain, which have the order of the source: (B, S + 2)."""
    target = F.pad(source, (1, 1))
    target[:, 0] = BOS
    return target.scatter(1, (source != PAD).sum(1, keepdim=True) + 1, EOS)


def make_domains(count: int, seed: int) -> tuple[Pairs, Pairs]:
    """Make pairs of the old and of the new domain, with the same sources."""
    source, target = reverse.make_batch(count, torch.Generator().manual_seed(seed))
    return (source, target), (source, in_order(source))


def train(model: Reverser, pairs: Pairs, *, updates: int, rate: float, seed: int) -> None:
    """Train the weights of a model that are not frozen, on batches of some pairs."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=updates + 1)
    model.train()
    for _ in range(updates):
        rows = torch.randint(len(pairs[0]), (BATCH,), generator=generator)
        source, target = (each[rows] for each in pairs)
        loss = model.loss(source, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def exact_match(model: Reverser, pairs: Pairs) -> float:
    """Measure the share of sentences that are decoded without a mistake."""
    return reverse.measure(model, *pairs)["exact_match"]


def new_model(trained: Reverser, method: str, *, seed: int, d_model: int, rank: int) -> Reverser:
    """Make the model with which an adaptation by some method begins."""
    torch.manual_seed(seed)
    if method == "from scratch":
        return Reverser(d_model)
    model = copy.deepcopy(trained)
    if method == "LoRA":
        add_lora(model, rank=rank)
    return model


@torch.no_grad()
def change_of_logits(model: Reverser, pairs: Pairs, dtype: torch.dtype) -> float:
    """Measure by how much a logit changes at most when the model is merged."""
    model = copy.deepcopy(model).to(dtype).eval()
    source, target = pairs
    before = model(source, target[:, :-1])
    merge_lora(model)
    return (model(source, target[:, :-1]) - before).abs().max().item()


@torch.no_grad()
def change_of_layers(model: Reverser, pairs: Pairs) -> float:
    """Measure by how much the output of a layer changes at most when it is merged.

    The layer has the same input before and after. The change is relative to its largest output.
    """
    model = copy.deepcopy(model).eval()
    merged = {part: part.merged() for part in model.modules() if isinstance(part, LoraLinear)}
    changes: list[float] = []

    def compare(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        change = (merged[layer](*inputs) - output).abs().max() / output.abs().max()
        changes.append(change.item())

    for layer in merged:
        layer.register_forward_hook(compare)
    source, target = pairs
    model(source, target[:, :-1])
    return max(changes)


def adapt(
    trained: Reverser, method: str, pairs: int, *, seed: int, updates: int, **sizes: int
) -> dict[str, Any]:
    """Adapt a trained model to the new domain, and measure it on both domains.

    Args:
        trained: The model of the old domain.
        method: One of ``METHODS``.
        pairs: Number of pairs of the new domain to train with.
        seed: Seed of the random numbers.
        updates: Number of updates.
        sizes: The hidden size and the rank.
    """
    (_, training), (_, validation) = make_domains(pairs, seed + 100), make_domains(200, seed + 200)
    old, new = make_domains(500, seed + 300)
    best, chosen, chosen_rate = -1.0, trained, 0.0
    for rate in RATES:
        model = new_model(trained, method, seed=seed, **sizes)
        train(model, training, updates=updates, rate=rate, seed=seed)
        found = exact_match(model, validation)
        if found > best:
            best, chosen, chosen_rate = found, model, rate
    weights = list(chosen.parameters())
    run: dict[str, Any] = {
        "method": method,
        "pairs": pairs,
        "seed": seed,
        "rate": chosen_rate,
        "trained_weights": sum(each.numel() for each in weights if each.requires_grad),
        "old_domain": exact_match(chosen, old),
        "new_domain": exact_match(chosen, new),
    }
    if method == "LoRA":
        run["change_by_merging"] = {
            "layers_float32": change_of_layers(chosen, new),
            "logits_float32": change_of_logits(chosen, new, torch.float32),
            "logits_float64": change_of_logits(chosen, new, torch.float64),
        }
    print({key: run[key] for key in ("method", "pairs", "seed", "rate", "new_domain")}, flush=True)
    return run


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summarise the runs of each method by means, and by the standard deviation over the seeds."""
    rows = []
    for pairs in PAIRS:
        for method in METHODS:
            chosen = [run for run in runs if (run["method"], run["pairs"]) == (method, pairs)]
            row: dict[str, Any] = {"method": method, "pairs": pairs}
            for domain in ("old_domain", "new_domain"):
                found = [run[domain] for run in chosen]
                row[domain] = {
                    "mean": mean(found),
                    "deviation": stdev(found) if len(found) > 1 else 0.0,
                }
            rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, adapt, measure and record."""
    parser = new_parser(__doc__, seeds=range(3))
    for name, default in SIZES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=positive, default=default)
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    sizes = {"d_model": options.d_model, "rank": options.rank}
    before, runs, count = [], [], 0
    for seed in options.seeds:
        torch.manual_seed(seed)
        trained = Reverser(options.d_model)
        reverse.train(trained, updates=options.updates, rate=RATE, seed=seed, every=options.updates)
        count = sum(each.numel() for each in trained.parameters())
        old, new = make_domains(500, seed + 300)
        scores = {"old_domain": exact_match(trained, old), "new_domain": exact_match(trained, new)}
        before.append({"seed": seed, **scores})
        runs += [
            adapt(trained, method, pairs, seed=seed, updates=options.tuning_updates, **sizes)
            for pairs in PAIRS
            for method in METHODS
        ]
    settings = {name: getattr(options, name) for name in SIZES}
    results = {
        "weights": count,
        "share_of_lora": runs[0]["trained_weights"] / count,
        "before": before,
        "runs": runs,
        "summary": summary(runs),
    }
    path = experiment.write(
        "fine_tuning", {**settings, "batch": BATCH, "rates": RATES, "pairs": PAIRS}, results
    )
    print(path)


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
