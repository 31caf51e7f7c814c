"""Familiarity: find the sentences that a translator cannot read, as those of another language.

A translator translates any text: what its tokenizer does not know is unknown to the model, and
characters of another script, which are rare in the training text, are almost so.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence

from common.tokenizer import Tokenizer

log = logging.getLogger(__name__)

RARE = 0.05  # share of a vocabulary's letters below which their script is not that of the language
EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}  # written together in Japanese


def script_of(letter: str) -> str:
    """Return the first word of a letter's Unicode name, which is its script in most cases."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return "CJK" if name in EAST_ASIAN else name


def find_unfamiliar(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[int]:
    """Find the sentences of which most letters are unknown, or of a script that is rare.

    Args:
        tokenizer: The tokenizer of the source language.
        sentences: Cleaned sentences.

    Returns:
        The indices of the sentences. One without letters is none of them.
    """
    letters = [c for word in tokenizer.subwords(range(4, tokenizer.vocab_size)) for c in word]
    letters = [c for c in letters if c.isalpha()]
    scripts = Counter(map(script_of, letters))
    usual = {script for script, count in scripts.items() if count >= RARE * len(letters)}
    familiar = {letter for letter in letters if script_of(letter) in usual}
    found = []
    for index, sentence in enumerate(sentences):
        known = [letter in familiar for letter in sentence if letter.isalpha()]
        if known and sum(known) < len(known) / 2:
            found.append(index)
    return found


def warn_of_unfamiliar(
    tokenizer: Tokenizer, sentences: Sequence[str], *, languages: str, first: int = 1
) -> None:
    """Log a warning if sentences are not of the language that a translator was trained with.

    Args:
        tokenizer: The tokenizer of the source language.
        sentences: Cleaned sentences.
        languages: The direction, for the warning, such as "from ja to en".
        first: The number of the first sentence.
    """
    if found := find_unfamiliar(tokenizer, sentences):
        which = f"sentence {first + found[0]}"
        if others := len(found) - 1:
            which += f" and {others} more"
        log.warning(
            "warning: most letters of %s are unknown to this translator %s, or of another script; "
            "the translation means little",
            *(which, languages),
        )
