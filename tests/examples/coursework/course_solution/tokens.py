"""Unit 1, solved."""

from collections import Counter
from itertools import pairwise

Pair = tuple[str, str]


def merge(tokens: list[str], pair: Pair) -> list[str]:
    merged: list[str] = []
    for token in tokens:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return merged


def learn_merges(text: str, count: int) -> tuple[list[Pair], dict[str, int]]:
    vocabulary = {each: number for number, each in enumerate(sorted(set("".join(text.split()))))}
    words = {tuple(word): number for word, number in Counter(text.split()).items()}
    merges: list[Pair] = []
    while len(merges) < count:
        counts: Counter[Pair] = Counter()
        for tokens, number in words.items():
            for pair in pairwise(tokens):
                counts[pair] += number
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], *(vocabulary[each] for each in pair)))
        words = {tuple(merge(list(tokens), best)): number for tokens, number in words.items()}
        vocabulary.setdefault("".join(best), len(vocabulary))
        merges.append(best)
    return merges, vocabulary


def encode_word(word: str, merges: list[Pair]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        tokens = merge(tokens, pair)
    return tokens
