"""What the programs compute, computed again: plain formulas, one sentence at a time, in float64.

Nothing here is shared with what it checks but the model's forward pass and its tokenizers, which
have tests of their own: no batch, no padding, no library of scores, no kernel of a loss.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from common.tokenizer import BOS, EOS
from translation.translator import Translator

Model = TypeVar("Model", bound=nn.Module)


def with_weights(model: Model, weights: Sequence[Tensor]) -> Model:
    """Put weights, in the order of the parameters, into a model in float64 and evaluation mode."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return model


def saved_weights(checkpoint: Path, group: str, model: nn.Module) -> list[Tensor]:
    """Read the weights of a checkpoint from its file, in the order of a model's parameters."""
    stored = load_file(checkpoint)
    return [stored[f"{group}.{name}"] for name, _ in model.named_parameters()]


def check_weights(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Check that weights are equal up to rounding."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-6)


def token_losses(scores: Tensor, right: Sequence[int], smoothing: float = 0.0) -> Tensor:
    """Compute each token's cross-entropy against its smoothed target (section 5.4).

    Args:
        scores: Logits. Shape (L, V).
        right: The L tokens.
        smoothing: Share of the target that is spread over all V tokens alike.

    Returns:
        Shape (L,).
    """
    log_probabilities = scores - scores.exp().sum(-1, keepdim=True).log()
    words = scores.shape[-1]
    target = torch.full_like(scores, smoothing / words)
    for row, token in zip(target, right, strict=True):
        row[token] += 1.0 - smoothing
    return -(target * log_probabilities).sum(-1)


def sentence_losses(
    model: Translator, source: Sequence[int], target: Sequence[int], smoothing: float
) -> Tensor:
    """Compute the losses of a translation's tokens and of the end token that follows them."""
    given = torch.tensor([[BOS, *target]])
    scores = model(torch.tensor([[*source, EOS]]), given)[0]
    return token_losses(scores, [*target, EOS], smoothing)


@torch.no_grad()
def greedy(model: Translator, source: Sequence[int]) -> list[int]:
    """Decode greedily, with a forward pass over the whole prefix at each step."""
    written: list[int] = []
    for _ in range(2 * (len(source) + 1) + 10):
        scores = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *written]]))
        token = int(scores[0, -1].argmax())
        if token == EOS:
            break
        written.append(token)
    return written


def moving_average(weights: Sequence[Sequence[Tensor]], keep: float) -> list[list[Tensor]]:
    """Average the weights after each update; the average forgets its beginning fast.

    Args:
        weights: The parameters after each update.
        keep: Share of the average that an update keeps, once the average is old.

    Returns:
        The average after each update.
    """
    averages = [[each.double() for each in weights[0]]]
    for count, current in enumerate(weights[1:], start=1):
        kept = min(keep, (1 + count) / (10 + count))
        averages.append(
            [
                kept * old + (1.0 - kept) * new.double()
                for old, new in zip(averages[-1], current, strict=True)
            ]
        )
    return averages


def ngrams(tokens: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams of a sequence."""
    return Counter(tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1))


def counted(
    outputs: Sequence[Sequence[str]], references: Sequence[Sequence[str]], size: int
) -> tuple[int, int, int]:
    """Count n-grams of a corpus: of the outputs, of the references, and matches, clipped."""
    pairs = [
        (ngrams(output, size), ngrams(reference, size))
        for output, reference in zip(outputs, references, strict=True)
    ]
    return (
        sum(output.total() for output, _ in pairs),
        sum(reference.total() for _, reference in pairs),
        sum((output & reference).total() for output, reference in pairs),
    )


def bleu(
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    cut: Callable[[str], list[str]] = str.split,
) -> float:
    """Compute BLEU of a corpus (Papineni et al. 2002), with sacreBLEU's smoothing of zero matches.

    Args:
        outputs: What a model wrote.
        references: What a person wrote, one for each output.
        cut: Cuts a sentence into words.
    """
    outputs_cut, references_cut = list(map(cut, outputs)), list(map(cut, references))
    logs, nothing = [], 0
    for size in (1, 2, 3, 4):
        written, _, matches = counted(outputs_cut, references_cut, size)
        if not matches:
            if size == 1:
                return 0.0
            nothing += 1  # each order without a match counts half of what the one before did
        logs.append(math.log((matches or 0.5**nothing) / written))
    length, wanted = (sum(map(len, each)) for each in (outputs_cut, references_cut))
    brevity = min(1.0, math.exp(1.0 - wanted / length))
    return 100.0 * brevity * math.exp(sum(logs) / 4)


def chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Compute chrF2 of a corpus (Popović 2015): recall counts twice, spaces do not count."""
    of_outputs, of_references = (
        [list("".join(text.split())) for text in texts] for texts in (outputs, references)
    )
    precisions, recalls = [], []
    for size in range(1, 7):
        written, wanted, matches = counted(of_outputs, of_references, size)
        if written and wanted:
            precisions.append(matches / written)
            recalls.append(matches / wanted)
    precision, recall = (sum(each) / len(each) for each in (precisions, recalls))
    return 100.0 * 5.0 * precision * recall / (4.0 * precision + recall)
