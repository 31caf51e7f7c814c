"""Unit 12: BLEU, the score of section 6.1 of the paper. Chapter 10 of the book.

"BLEU: a Method for Automatic Evaluation of Machine Translation", Papineni et al. 2002.
"""

from collections import Counter


def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    """Count the sequences of n adjacent tokens; none if there are fewer than n tokens."""
    raise NotImplementedError


def modified_precision(
    hypotheses: list[list[str]], references: list[list[str]], n: int
) -> tuple[int, int]:
    """Count the n-grams of all hypotheses, and those that match.

    An n-gram of a hypothesis matches at most as many times as it occurs in the reference of that
    hypothesis.

    Args:
        hypotheses: The tokens of each translation.
        references: The tokens of its reference, one for each translation.
        n: Length of the n-grams.

    Returns:
        The number of matches, and the number of n-grams of the hypotheses.
    """
    raise NotImplementedError


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """Compute the factor for too short translations.

    exp(1 - reference_length / hypothesis_length), at most 1. It is 0 if there is no token in
    the hypotheses.
    """
    raise NotImplementedError


def bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    """Compute the BLEU score of a corpus, from 0 to 100.

    It is 100 times the brevity penalty of the summed lengths, times the geometric mean of the
    modified precisions of the corpus for n = 1 to 4. It is 0 if one of the precisions is 0.

    Args:
        hypotheses: The tokens of each translation.
        references: The tokens of its reference.

    Returns:
        The score.
    """
    raise NotImplementedError
