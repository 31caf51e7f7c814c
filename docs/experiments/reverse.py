"""Reverse: an encoder-decoder learns to reverse a sequence, with and without cross-attention.

    python docs/experiments/reverse.py

The source is a sequence of 4 to 10 random symbols, the target the same symbols in reverse order.
The target cannot be guessed: all that the decoder knows of the source reaches it through the
cross-attention, whose weights become an anti-diagonal. The experiment records

- the *teacher-forced* accuracy: the share of tokens that are predicted correctly after the correct
  prefix; and the *autoregressive* accuracy: the same after the model's own prefix, where one wrong
  token can shift or change the rest; and the *exact match*, the share of sequences that are right
  as a whole;
- a map of the cross-attention weights, and the share of tokens whose largest weight is on the
  mirrored source position;
- the same model trained without cross-attention, and the trained model whose cross-attention is
  ablated.
"""

import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from experiment import Experiment, new_parser, positive, run_single_threaded
from transformer_blocks import (
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    greedy_search,
    record_attention,
)
from transformer_blocks.inspection import ablate

COMMAND = "python docs/experiments/reverse.py"
PAD, BOS, EOS, SYMBOLS = 0, 1, 2, 10  # ids 3 to 12 are the symbols
SHORTEST, LONGEST = 4, 10
CROSS = "decoder.layers.0.cross_attention"


def make_batch(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Make sources, of shape (B, S), and their reversals with BOS and EOS, of shape (B, S + 2)."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (count, 1), generator=generator)
    places = torch.arange(LONGEST)
    symbols = torch.randint(3, 3 + SYMBOLS, (count, LONGEST), generator=generator)
    source = symbols.where(places < lengths, PAD)
    mirrored = source.gather(1, (lengths - 1 - places).clamp(min=0)).where(places < lengths, PAD)
    target = F.pad(mirrored, (1, 1))
    target[:, 0] = BOS
    return source, target.scatter(1, lengths + 1, EOS)


class Reverser(Seq2Seq):
    """An encoder-decoder with one layer on each side, and one head in the cross-attention.

    Args:
        d_model: Hidden size.
        crosses: Whether the decoder attends to the memory; if not, all of it is masked.
    """

    def __init__(self, d_model: int = 64, *, crosses: bool = True) -> None:
        sizes: dict[str, Any] = {
            "num_layers": 1,
            "d_model": d_model,
            "num_heads": 1,
            "d_ff": 2 * d_model,
            "dropout": 0.0,
        }
        embedding = TokenEmbedding(3 + SYMBOLS, d_model)
        super().__init__(
            *(embedding, embedding, build_encoder(**sizes), build_decoder(**sizes)),
            positions=SinusoidalPositionalEncoding(d_model),
            output=nn.Linear(d_model, 3 + SYMBOLS),
            padding_id=PAD,
            begin_id=BOS,
        )
        self.crosses = crosses

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the source; the second tensor is the mask of the cross-attention."""
        memory, mask = super().encode(source)
        return memory, mask if self.crosses else torch.ones_like(mask)

    @torch.no_grad()
    def decode(self, source: Tensor) -> Tensor:
        """Decode greedily, LONGEST + 1 tokens: (B, S) to (B, LONGEST + 1), padded with PAD."""
        start = torch.full((len(source),), BOS)
        found = greedy_search(self.begin(source), start, end_id=EOS, max_length=LONGEST + 1)
        rows = [[*each.tokens, EOS] if each.finished else each.tokens for each in found]
        return torch.tensor([row + [PAD] * (LONGEST + 1 - len(row)) for row in rows])


@torch.no_grad()
def measure(model: Reverser, source: Tensor, target: Tensor) -> dict[str, float]:
    """Compute the loss, both accuracies per token, and the exact match of whole sequences."""
    right, real = target[:, 1:], target[:, 1:] != PAD
    logits = model.eval()(source, target[:, :-1])
    decoded = model.decode(source)
    return {
        "loss": F.cross_entropy(logits[real], right[real]).item(),
        "teacher_forced_accuracy": (logits.argmax(-1) == right)[real].float().mean().item(),
        "autoregressive_accuracy": (decoded == right)[real].float().mean().item(),
        "exact_match": ((decoded == right) | ~real).all(1).float().mean().item(),
    }


def train(model: Reverser, *, updates: int, rate: float, seed: int, every: int) -> dict[str, Any]:
    """Train a model; return its measures on 500 other sequences after every so many updates."""
    generator, other = (torch.Generator().manual_seed(each) for each in (seed, 1_000_000 + seed))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=updates + 1)
    held_out = make_batch(500, other)
    curves: dict[str, list[float]] = {
        "updates": [],
        **{key: [] for key in measure(model, *held_out)},
    }
    for update in range(updates + 1):
        if update % every == 0 or update == updates:
            for key, value in {"updates": update, **measure(model, *held_out)}.items():
                curves[key].append(value)
            print(f"seed {seed}, update {update}: {curves['exact_match'][-1]:.3f}", flush=True)
        source, target = make_batch(64, generator)
        loss = model.train().loss(source, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return curves


@torch.no_grad()
def cross_attention(model: Reverser, source: Tensor, target: Tensor) -> Tensor:
    """Record the cross-attention weights with teacher forcing, of shape (B, L, S)."""
    with record_attention(model.eval()) as maps:
        model(source, target[:, :-1])
    weights: Tensor = maps[CROSS][0][:, 0]
    return weights


def anti_diagonal(weights: Tensor, source: Tensor) -> float:
    """Compute the share of symbols whose largest weight is on the mirrored source position."""
    lengths = (source != PAD).sum(1, keepdim=True)
    places = torch.arange(LONGEST)
    found = weights[:, :LONGEST].argmax(-1) == lengths - 1 - places  # token i is at query i
    return found[places < lengths].float().mean().item()


def without_source() -> dict[str, float]:
    """Compute the best loss and teacher-forced accuracy of a model that knows no source.

    Each of the n symbols is one of 10; where the end token may follow, it is more probable than any
    symbol: 1 / 7 against 6 / 70 after four symbols. A sequence has n + 1 tokens.
    """
    lengths = LONGEST - SHORTEST + 1
    symbols = (SHORTEST + LONGEST) / 2
    return {
        "loss": (symbols * math.log(SYMBOLS) + math.log(lengths)) / (symbols + 1),
        "teacher_forced_accuracy": (SHORTEST / SYMBOLS + 1) / (symbols + 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with and without cross-attention, and record accuracies and one attention map."""
    parser = new_parser(__doc__, seeds=range(3))
    for name, default in (("--updates", 1000), ("--every", 50), ("--d-model", 64)):
        parser.add_argument(name, type=positive, default=default)
    options = parser.parse_args(arguments)
    experiment = Experiment(COMMAND, options)
    settings = {"updates": options.updates, "d_model": options.d_model, "rate": 3e-3, "batch": 64}
    plan = {"updates": options.updates, "rate": 3e-3, "every": options.every}
    runs: dict[str, Any] = {"with_cross_attention": [], "without_cross_attention": []}
    for seed in options.seeds:
        for name, of_name in runs.items():
            torch.manual_seed(seed)
            model = Reverser(options.d_model, crosses=name == "with_cross_attention")
            of_name.append({"seed": seed, "curves": train(model, seed=seed, **plan)})
            if not model.crosses:
                continue
            source, target = make_batch(500, torch.Generator().manual_seed(2_000_000 + seed))
            weights = cross_attention(model, source, target)
            of_name[-1]["anti_diagonal"] = anti_diagonal(weights, source)
            with ablate(model, modules=[CROSS]):
                of_name[-1]["ablated"] = measure(model, source, target)
            first = int((source[:, 7] != PAD).logical_and(source[:, 8] == PAD).nonzero()[0])
            of_name[-1]["map"] = {
                "source": source[first, :8].tolist(),
                "target": target[first, 1:10].tolist(),
                "weights": weights[first, :9, :8].double().round(decimals=4).tolist(),
            }
    print(experiment.write("reverse", settings, {**runs, "without_source": without_source()}))


if __name__ == "__main__":
    run_single_threaded(partial(main, None))
