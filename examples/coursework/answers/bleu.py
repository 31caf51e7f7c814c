"""The answer to unit 12: counts n-grams one by one."""

import math
from collections import Counter
from typing import Any


def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    """Count at each position."""
    counts: Counter[tuple[str, ...]] = Counter()
    for i in range(len(tokens) - n + 1):
        counts[tuple(tokens[i : i + n])] += 1
    return counts


def modified_precision(hypotheses: Any, references: Any, n: int) -> tuple[int, int]:
    """Count matches and n-grams."""
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        known = ngrams(reference, n)
        for gram, count in ngrams(hypothesis, n).items():
            total += count
            matches += min(count, known[gram])
    return matches, total


def brevity_penalty(h: int, r: int) -> float:
    """Compute the penalty."""
    return min(1.0, math.exp(1 - r / h)) if h else 0.0


def bleu(hypotheses: Any, references: Any) -> float:
    """Multiply the penalty and the mean."""
    pairs = [modified_precision(hypotheses, references, n) for n in range(1, 5)]
    if 0 in [matches for matches, _ in pairs]:
        return 0.0
    precisions = [matches / total for matches, total in pairs]
    penalty = brevity_penalty(sum(map(len, hypotheses)), sum(map(len, references)))
    return float(100 * penalty * math.prod(precisions) ** (1 / len(precisions)))
