"""Unit 12: BLEU."""

from typing import Any

import torch

from coursework.grader import Unit

PAIRS = (
    "the cat sat on the mat today / the cat sat on the mat",
    "the the the dog runs in the big garden / the dog runs in the big old garden of the king",
    "a bird sings / a small bird sings a song in the tree",
)
HYPOTHESES, REFERENCES = ([pair.split("/")[i].split() for pair in PAIRS] for i in (0, 1))
"""A corpus in which the hypotheses are shorter than the references."""
UNIT = Unit(__name__, "the BLEU score of a corpus")


@UNIT.law("ngrams")
def every_sequence_of_n_tokens_is_counted(my: Any) -> Any:
    """The counts of a b a b a for n = 1, 2, 3 and 6."""
    found = [my.ngrams(list("ababa"), n) for n in (1, 2, 3, 6)]
    return [sorted((gram, count) for gram, count in each.items() if count) for each in found]


@UNIT.law("modified_precision", "n")
def an_ngram_matches_as_often_as_its_reference_has_it(my: Any) -> Any:
    """The matches for n = 1 to 4."""
    return torch.tensor([my.modified_precision(HYPOTHESES, REFERENCES, n)[0] for n in range(1, 5)])


@UNIT.law("modified_precision", "n")
def the_reference_of_another_sentence_does_not_count(my: Any) -> Any:
    """The matches of 'a a' and 'b c' with the references 'a b' and 'a c', for n = 1 and 2."""
    corpora = [["a", "a"], ["b", "c"]], [["a", "b"], ["a", "c"]]
    return torch.tensor([my.modified_precision(*corpora, n)[0] for n in (1, 2)])


@UNIT.law("modified_precision", "n")
def all_ngrams_of_the_hypotheses_are_counted(my: Any) -> Any:
    """The totals for n = 1 to 4."""
    return torch.tensor([my.modified_precision(HYPOTHESES, REFERENCES, n)[1] for n in range(1, 5)])


@UNIT.law("brevity_penalty", "pair")
def only_short_hypotheses_are_penalised(my: Any) -> Any:
    """The penalties of (8, 10), (10, 10), (12, 10) and (0, 10)."""
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


UNIT.calls(
    "bleu",
    "",
    long_hypotheses_get_no_penalty=(REFERENCES, HYPOTHESES),
    a_perfect_translation_has_the_score_100=(REFERENCES, REFERENCES),
    without_a_common_4_gram_the_score_is_zero=([list("abcd")], [list("abce")]),
)
