"""Unit 1: byte-pair training and encoding."""

from itertools import pairwise
from typing import Any

from coursework.answers.tokens import merge
from coursework.grader import Unit

TEXT = "low lower lowest newest newest newest widest widest aaaa slow"
MERGES = [("b", "c"), ("a", "b"), ("a", "bc"), ("c", "d"), ("ab", "cd")]
UNIT = Unit(__name__, "byte-pair encoding")


@UNIT.law("merge")
def every_occurrence_is_merged_from_left_to_right(my: Any) -> Any:
    """The pair a, a in a a a b a a c a a, and in a aa a a."""
    return [my.merge(tokens, ("a", "a")) for tokens in (list("aaabaacaa"), ["a", "aa", "a", "a"])]


@UNIT.law("merge", expected=lambda: list("abab"))
def the_list_passed_in_does_not_change(my: Any) -> Any:
    """The list a b a b after merge(tokens, ('a', 'b'))."""
    tokens = list("abab")
    my.merge(tokens, ("a", "b"))
    return tokens


@UNIT.law("learn_merges")
def the_most_frequent_pair_is_merged_again_and_again(my: Any) -> Any:
    """Merges of low lower lowest newest newest newest widest widest aaaa slow, with frequencies."""
    words, found = [list(word) for word in TEXT.split()], []
    for pair in my.learn_merges(TEXT, 12)[0]:
        count = sum(list(pairwise(word)).count(tuple(pair)) for word in words)
        found.append(f"{' '.join(pair)} ({count} times)")
        words = [merge(word, tuple(pair)) for word in words]
    return found


@UNIT.law("learn_merges")
def the_vocabulary_has_the_characters_and_then_the_merged_tokens(my: Any) -> Any:
    """The vocabulary of five merges, in the order of its ids."""
    return sorted(my.learn_merges(TEXT, 5)[1].items(), key=lambda each: (each[1], each[0]))


@UNIT.law("learn_merges")
def both_ids_decide_between_equally_frequent_pairs(my: Any) -> Any:
    """One merge of 'az ab', of 'ab zb', of 'za az', and of 'zb ab'."""
    texts = ("az ab", "ab zb", "za az", "zb ab")
    return [[tuple(pair) for pair in my.learn_merges(text, 1)[0]] for text in texts]


@UNIT.law("learn_merges")
def learning_ends_when_no_pair_is_left(my: Any) -> Any:
    """learn_merges('ab ab', 9)."""
    return [tuple(pair) for pair in my.learn_merges("ab ab", 9)[0]]


@UNIT.law("encode_word")
def merges_are_applied_in_the_order_in_which_they_were_learned(my: Any) -> Any:
    """Words such as abcd, abab and cdabcabcd with the merges b c, a b, a bc, c d, ab cd."""
    words = ("abcd", "abab", "cdabcabcd", "abd", "xyz", "cbcd", "")
    return [my.encode_word(word, MERGES) for word in words]
