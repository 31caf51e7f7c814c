"""Glosses: what the tokens of the toy corpus mean, for readers of the explorer's page.

A token is a piece of text that is frequent, not a word: 犬は is a noun with its particle, 公園で走
is a place, a particle and the beginning of a verb. The dictionary of the toy grammar has the
meanings of its parts.
"""

from collections.abc import Iterable
from functools import cache

from translation.toy import TIMES
from translation.toy_words import ADJECTIVES, NOUNS, NUMBERS, PEOPLE, PLACES, VERBS, fields_of

PARTICLES = """
は (topic) | を (object) | が (subject) | の of | と and | へ to | に at | で at | まで until
から from | この this | あの that | 何 what | 誰 who | どこ where | いつ when | も also
か (question) | ますか (question) | ましたか (past+question) | ました (past) | です is
ですか is?+(question) | でした was | ません not | ませんか not?+(question) | ない not | たい want+to
ませんでした did+not | ください please | ましょう let's | ことができ can | なければなりません must
"""
KANA = {"", *map(chr, range(0x3041, 0x3097))}  # as the stem of a verb, one letter says nothing
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
    """Return the meanings of words, of the stems of verbs and adjectives, and of particles."""
    rows: list[tuple[str, str]] = [
        *((verb.japanese[:-1], verb.base) for verb in VERBS),
        *((each.japanese[:-1], each.english) for each in ADJECTIVES),
        *(
            (place, english.split(" the ")[-1].removeprefix("in "))
            for place, english in PLACES.items()
        ),
        *((noun.japanese, noun.english) for noun in NOUNS),
        *((who.japanese, who.english) for who in PEOPLE),
        *((time, english) for time, english, *_ in TIMES),
        *NUMBERS.items(),
    ]
    return {word: meaning for word, meaning in rows if word not in KANA} | dict(
        fields_of(PARTICLES)
    )


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
