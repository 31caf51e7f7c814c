"""The answer to unit 1: counts the pairs of every single word anew for each merge."""

from collections import Counter
from itertools import pairwise


def merge(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """Compare the pair at each position in turn."""
    result: list[str] = []
    i = 0
    while i < len(tokens):
        found = tuple(tokens[i : i + 2]) == pair
        result.append("".join(pair) if found else tokens[i])
        i += 1 + found
    return result


def learn_merges(text: str, count: int) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Merge the most frequent pair, ``count`` times."""
    words = [list(word) for word in text.split()]
    ids = {c: i for i, c in enumerate(sorted({c for word in words for c in word}))}
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]))
        words = [merge(word, best) for word in words]
        ids.setdefault("".join(best), len(ids))
        merges.append(best)
    return merges, ids


def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Apply one merge after the other."""
    tokens = list(word)
    for pair in merges:
        tokens = merge(tokens, pair)
    return tokens
