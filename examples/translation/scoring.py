"""Scores: BLEU and chrF of translations against references.

BLEU counts the word n-grams that a translation shares with its reference, chrF the character
n-grams. Both are computed by sacreBLEU ("A Call for Clarity in Reporting BLEU Scores", Post 2018,
https://aclanthology.org/W18-6319), whose *signature* names every option that changes the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sacrebleu


@dataclass(frozen=True)
class Scores:
    """Two scores between 0 and 100, each with the signature that makes it comparable."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def score(translations: Sequence[str], references: Sequence[str], *, tokenize: str) -> Scores:
    """Compare translations with one reference each, over the whole corpus.

    Args:
        translations: The translations of the model.
        references: The reference of each translation.
        tokenize: sacreBLEU's tokenizer: "none" where the text is tokenised already, "13a" for
            English, "char" for Japanese.

    Returns:
        BLEU and chrF.

    Example:
        >>> scores = score(["the cat sat on the mat"], ["the cat sat on the mat"], tokenize="13a")
        >>> round(scores.bleu)
        100
    """
    bleu = sacrebleu.BLEU(tokenize=tokenize, force=True)
    chrf = sacrebleu.CHRF()
    return Scores(
        bleu=float(bleu.corpus_score(translations, [references]).score),
        bleu_signature=str(bleu.get_signature()),
        chrf=float(chrf.corpus_score(translations, [references]).score),
        chrf_signature=str(chrf.get_signature()),
    )
