"""Unit 12: BLEU."""

import math
from collections import Counter
from typing import Any

import torch

from coursework.grader import Mistake, Unit

HYPOTHESES = [
    line.split()
    for line in (
        "the cat sat on the mat today",
        "the the the dog runs in the big garden",
        "a bird sings",
    )
]
REFERENCES = [
    line.split()
    for line in (
        "the cat sat on the mat",
        "the dog runs in the big old garden of the king",
        "a small bird sings a song in the tree",
    )
]
"""A corpus in which the hypotheses are shorter than the references."""


def answer(
    *,
    clip: Any = min,
    divide: Any = lambda matches, total: matches / total,
    mean: Any = lambda values: math.prod(values) ** (1 / len(values)),
    penalty: Any = lambda h, r: min(1.0, math.exp(1 - r / h)) if h else 0.0,
    is_mean_of_sentences: bool = False,
    is_penalised: bool = True,
    order: int = 1,
    longest: int = 4,
    of_missing: int = 1,
) -> dict[str, Any]:
    """Count n-grams one by one."""

    def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
        counts: Counter[tuple[str, ...]] = Counter()
        for i in range(len(tokens) - n + of_missing):
            counts[tuple(tokens[i : i + n])] += 1
        return counts

    def modified_precision(hypotheses: Any, references: Any, n: int) -> tuple[int, int]:
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            known = ngrams(reference, n)
            for gram, count in ngrams(hypothesis, n).items():
                total += count
                matches += clip(count, known[gram]) if known[gram] else 0
        return matches, total

    def bleu(hypotheses: Any, references: Any) -> float:
        if is_mean_of_sentences and len(hypotheses) > 1:
            scores = [bleu([h], [r]) for h, r in zip(hypotheses, references, strict=True)]
            return sum(scores) / len(scores)
        pairs = [modified_precision(hypotheses, references, n + 1) for n in range(longest)]
        if 0 in [matches for matches, _ in pairs]:
            return 0.0
        lengths = [sum(map(len, each)) for each in (hypotheses, references)][::order]
        factor = penalty(*lengths) if is_penalised else 1.0
        return 100 * factor * float(mean([divide(*pair) for pair in pairs]))

    return {
        "ngrams": ngrams,
        "modified_precision": modified_precision,
        "brevity_penalty": penalty,
        "bleu": bleu,
    }


UNIT = Unit(
    "BLEU",
    answer,
    [
        Mistake("matches are not clipped", {"clip": lambda count, known: count}),
        Mistake("each n-gram matches once", {"clip": lambda count, known: 1}),
        Mistake("the last n-gram is left out", {"of_missing": 0}),
        Mistake("a mean of the sentences' scores", {"is_mean_of_sentences": True}),
        Mistake("no brevity penalty", {"is_penalised": False}),
        Mistake("the lengths are exchanged", {"order": -1}),
        Mistake(
            "long hypotheses are penalised too",
            {"penalty": lambda h, r: math.exp(1 - max(r / h, h / r)) if h else 0.0},
        ),
        Mistake("the ratio of the lengths", {"penalty": lambda h, r: min(1.0, h / r)}),
        Mistake(
            "an arithmetic mean of the precisions",
            {"mean": lambda values: sum(values) / len(values)},
        ),
        Mistake("the product of the precisions", {"mean": math.prod}),
        Mistake("n-grams up to three", {"longest": 3}),
        Mistake("one is added to the counts", {"divide": lambda m, n: (m + 1) / (n + 1)}),
    ],
)


@UNIT.law("ngrams")
def every_sequence_of_n_tokens_is_counted(my: Any) -> Any:
    """Repeated ones, too; none if the text is shorter."""
    found = [my.ngrams(list("ababa"), n) for n in (1, 2, 3, 6)]
    return [sorted((gram, count) for gram, count in each.items() if count) for each in found]


@UNIT.law("modified_precision", "n")
def an_ngram_matches_as_often_as_its_reference_has_it(my: Any) -> Any:
    """The matches for n = 1 to 4."""
    return torch.tensor([my.modified_precision(HYPOTHESES, REFERENCES, n)[0] for n in range(1, 5)])


@UNIT.law("modified_precision", "n")
def all_ngrams_of_the_hypotheses_are_counted(my: Any) -> Any:
    """The totals for n = 1 to 4."""
    return torch.tensor([my.modified_precision(HYPOTHESES, REFERENCES, n)[1] for n in range(1, 5)])


@UNIT.law("brevity_penalty", "pair")
def only_short_hypotheses_are_penalised(my: Any) -> Any:
    """Shorter, equal, longer, and empty ones."""
    pairs = ((8, 10), (10, 10), (12, 10), (0, 10))
    return torch.tensor([float(my.brevity_penalty(*pair)) for pair in pairs])


def _sacrebleu() -> float:
    from sacrebleu import corpus_bleu

    lines = [[" ".join(tokens) for tokens in each] for each in (HYPOTHESES, REFERENCES)]
    score = corpus_bleu(lines[0], [lines[1]], tokenize="none", smooth_method="none", force=True)
    return float(score.score)


@UNIT.law("bleu", expected=_sacrebleu)
def the_score_equals_that_of_sacrebleu(my: Any) -> Any:
    """A corpus with short hypotheses."""
    return float(my.bleu(HYPOTHESES, REFERENCES))


@UNIT.law("bleu")
def long_hypotheses_get_no_penalty(my: Any) -> Any:
    """The corpus with its sides exchanged."""
    return float(my.bleu(REFERENCES, HYPOTHESES))


@UNIT.law("bleu")
def a_perfect_translation_has_the_score_100(my: Any) -> Any:
    """Each hypothesis is its reference."""
    return float(my.bleu(REFERENCES, REFERENCES))


@UNIT.law("bleu")
def without_a_common_4_gram_the_score_is_zero(my: Any) -> Any:
    """Three common tokens."""
    return float(my.bleu([["a", "b", "c", "d"]], [["a", "b", "c", "e"]]))
