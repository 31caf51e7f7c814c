"""Glosses: what the tokens of the toy corpus mean, for readers of the explorer's page.

A token is a piece of text that is frequent, not a word: 犬は is a noun with its particle, 公園で走
is a place, a particle and the beginning of a verb. The file ``toy_corpus/meanings.tsv`` has the
meanings of such parts: words, the stems of verbs and adjectives, and particles.
"""

from collections.abc import Iterable
from functools import cache

from common.text_files import read_lines
from translation.toy import FOLDER

SLOTS = [
    [("毎晩、", "every night"), ("毎朝、", "every morning"), ("毎日、", "every day")],
    [("この犬は", "this dog"), ("あの猫は", "that cat"), ("子供たちは", "the children")],
    [("公園で", "in the park"), ("庭で", "in the garden"), ("部屋で", "in the room")],
    [
        ("走りますか。", "run?"),
        ("走ります。", "run"),
        ("遊びますか。", "play?"),
        ("眠ります。", "sleep"),
    ],
]
"""For each part of a sentence: the texts to choose from, with their meaning."""


@cache
def lexicon() -> dict[str, str]:
    """Read the meanings of the parts of tokens."""
    rows = (line.partition("\t") for line in read_lines(FOLDER / "meanings.tsv"))
    return {part: meaning for part, _, meaning in rows}


def glosses_of(tokens: Iterable[str]) -> dict[str, str]:
    """Return what tokens mean, as far as the dictionary knows their parts.

    Args:
        tokens: Tokens without markers of subwords.

    Example:
        >>> glosses_of(["犬は", "公園で走", "りますか", "xyz"])
        {'犬は': 'dog (topic)', '公園で走': 'park at run', 'りますか': '(question)'}
    """
    return {token: gloss for token in tokens if (gloss := _gloss(token))}


def _gloss(token: str) -> str:
    """Join the meanings of the longest parts; the others, such as the end of a verb, have none."""
    known, parts = lexicon(), []
    while token:
        length = next((n for n in range(len(token), 0, -1) if token[:n] in known), 0)
        if length:
            parts.append(known[token[:length]])
        token = token[length or 1 :]
    return " ".join(parts)
