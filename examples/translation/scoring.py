"""Scores: BLEU and chrF of translations against references.

BLEU counts the word n-grams that a translation shares with its reference, chrF the character
n-grams. Both are computed by sacreBLEU ("A Call for Clarity in Reporting BLEU Scores", Post 2018,
https://aclanthology.org/W18-6319), whose *signature* names every option that changes the score.

Whether a difference between two models means something is estimated by the *paired bootstrap*
(Koehn 2004, https://aclanthology.org/W04-3250): the same sentences are drawn again and again, with
replacement, and both models are scored on each draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sacrebleu
from sacrebleu.significance import PairedTest

SAMPLES = 1000  # draws of the paired bootstrap


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


def bootstrap(
    translations: Sequence[Sequence[str]], references: Sequence[str], *, tokenize: str
) -> list[float]:
    """Estimate which differences in BLEU are significant, by sacreBLEU's paired bootstrap.

    It draws from the test sentences. So it tells nothing about another seed of the training.

    Args:
        translations: The translations of each model, of the same sentences.
        references: The reference of each sentence.
        tokenize: sacreBLEU's tokenizer, as for :func:`score`.

    Returns:
        For each model except the first, the p-value of its difference from the first: the
        probability of one as large if both are equally good. It is 1 for equal translations.

    Example:
        >>> references = ["a b c d e", "f g h i j"] * 10
        >>> worse = [*references[:-8], *["a b x d e"] * 8]
        >>> equal, different = bootstrap(
        ...     [references, references, worse], references, tokenize="none"
        ... )
        >>> equal, different < 0.01
        (1.0, True)
    """
    metric = sacrebleu.BLEU(tokenize=tokenize, force=True)
    systems = [(str(number), lines) for number, lines in enumerate(translations)]
    test = PairedTest(systems, {"BLEU": metric}, [references], "bs", n_samples=SAMPLES)
    _, scores = test()
    results: list[Any] = [*scores["BLEU"]][1:]
    return [
        1.0 if [*lines] == [*translations[0]] else float(result.p_value)  # sacreBLEU: 1 / 1001
        for lines, result in zip(translations[1:], results, strict=True)
    ]
