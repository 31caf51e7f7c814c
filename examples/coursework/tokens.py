"""Unit 1: byte-pair training and encoding."""

from collections import Counter
from itertools import pairwise
from typing import Any

from coursework.grader import Mistake, Unit

TEXT = "low lower lowest newest newest newest widest widest aaaa slow"
MERGES = [("b", "c"), ("a", "b"), ("a", "bc"), ("c", "d"), ("ab", "cd")]


def answer(
    *,
    words_of: Any = str.split,
    rank: Any = lambda pair, ids: (ids[pair[0]], ids[pair[1]]),
    is_repeated: bool = True,
    order: Any = list,
    is_longest: bool = False,
) -> dict[str, Any]:
    """Count the pairs of every single word anew for each merge."""

    def merge(tokens: list[str], pair: tuple[str, str]) -> list[str]:
        result: list[str] = []
        i = 0
        while i < len(tokens):
            found = tuple(tokens[i : i + 2]) == pair
            found = found and (is_repeated or "".join(pair) not in result)
            result.append("".join(pair) if found else tokens[i])
            i += 1 + found
        return result

    def learn_merges(text: str, count: int) -> tuple[list[tuple[str, str]], dict[str, int]]:
        words = [list(word) for word in words_of(text)]
        vocabulary = {c: i for i, c in enumerate(sorted({c for word in words for c in word}))}
        merges: list[tuple[str, str]] = []
        for _ in range(count):
            counts = Counter(pair for word in words for pair in pairwise(word))
            if not counts:
                break
            best = min(counts, key=lambda pair: (-counts[pair], rank(pair, vocabulary)))
            words = [merge(word, best) for word in words]
            vocabulary.setdefault("".join(best), len(vocabulary))
            merges.append(best)
        return merges, vocabulary

    def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
        tokens = list(word)
        for pair in order(merges):
            tokens = merge(tokens, pair)
        if not is_longest:
            return tokens
        known, tokens = {"".join(pair) for pair in merges}, []
        while word:
            ends = [n for n in range(1, len(word) + 1) if n == 1 or word[:n] in known]
            tokens.append(word[: max(ends)])
            word = word[max(ends) :]
        return tokens

    return {"merge": merge, "learn_merges": learn_merges, "encode_word": encode_word}


UNIT = Unit(
    "byte-pair encoding",
    answer,
    [
        Mistake(
            "pairs are counted once for each different word",
            {"words_of": lambda text: list(dict.fromkeys(text.split()))},
        ),
        Mistake(
            "pairs are counted across spaces", {"words_of": lambda text: [text.replace(" ", "")]}
        ),
        Mistake("a space is a character of a pair", {"words_of": lambda text: [text]}),
        Mistake(
            "of equally frequent pairs, the last is merged",
            {"rank": lambda pair, ids: (-ids[pair[0]], -ids[pair[1]])},
        ),
        Mistake(
            "of equally frequent pairs, the first of the text is merged",
            {"rank": lambda pair, ids: 0},
        ),
        Mistake("only the first occurrence is merged", {"is_repeated": False}),
        Mistake(
            "merges are applied in order of length",
            {"order": lambda merges: sorted(merges, key=lambda pair: -len("".join(pair)))},
        ),
        Mistake("merges are applied from the last to the first", {"order": lambda m: m[::-1]}),
        Mistake("the longest token is taken first", {"is_longest": True}),
    ],
)


@UNIT.law("merge")
def every_occurrence_is_merged_from_left_to_right(my: Any) -> Any:
    """Also adjacent and overlapping ones."""
    return my.merge(list("aaabaacaa"), ("a", "a"))


@UNIT.law("merge", expected=lambda: list("abab"))
def the_tokens_that_are_given_remain(my: Any) -> Any:
    """A new list is returned."""
    tokens = list("abab")
    my.merge(tokens, ("a", "b"))
    return tokens


@UNIT.law("learn_merges")
def the_most_frequent_pair_is_merged_again_and_again(my: Any) -> Any:
    """Frequencies, ties and spaces."""
    return [tuple(pair) for pair in my.learn_merges(TEXT, 20)[0]]


@UNIT.law("learn_merges")
def the_vocabulary_has_the_characters_and_then_the_merged_tokens(my: Any) -> Any:
    """In the order of their ids."""
    return sorted(my.learn_merges(TEXT, 5)[1].items(), key=lambda each: (each[1], each[0]))


@UNIT.law("learn_merges")
def learning_ends_when_no_pair_is_left(my: Any) -> Any:
    """Fewer merges than asked for."""
    return [tuple(pair) for pair in my.learn_merges("ab ab", 9)[0]]


@UNIT.law("encode_word")
def merges_are_applied_in_the_order_in_which_they_were_learned(my: Any) -> Any:
    """Words in which another order gives other tokens."""
    return [
        my.encode_word(word, MERGES) for word in ("abcd", "abab", "cdabcabcd", "abd", "xyz", "")
    ]
