"""Unit 12, solved."""

import math
from collections import Counter

Sentences = list[list[str]]


def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def modified_precision(hypotheses: Sentences, references: Sentences, n: int) -> tuple[int, int]:
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = ngrams(hypothesis, n)
        matches += sum((found & ngrams(reference, n)).values())
        total += sum(found.values())
    return matches, total


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    if hypothesis_length >= reference_length:
        return 1.0
    return math.exp(1 - reference_length / hypothesis_length) if hypothesis_length else 0.0


def bleu(hypotheses: Sentences, references: Sentences) -> float:
    pairs = [modified_precision(hypotheses, references, n) for n in (1, 2, 3, 4)]
    if not all(matches for matches, _ in pairs):
        return 0.0
    mean = sum(math.log(matches / total) for matches, total in pairs) / 4
    lengths = [sum(map(len, each)) for each in (hypotheses, references)]
    return 100 * brevity_penalty(lengths[0], lengths[1]) * math.exp(mean)
