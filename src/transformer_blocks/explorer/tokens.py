"""Tokens as labels: remove the markers of subwords, which are no part of the text.

A tokenizer marks in its subwords where words begin or continue, each kind in its own way:
SentencePiece writes ``▁`` for the space before a word, byte pairs of GPT-2 write ``Ġ`` for it and
``Ċ`` for the end of a line, WordPiece writes ``##`` before a subword that continues a word.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

SPACE, LINE_END = "␣", "↵"  # shown where a token is nothing but spaces or ends of lines
LONE_SURROGATES = re.compile("[\ud800-\udfff]")  # which no encoding of Unicode has
SPECIAL = re.compile(r"<(?!0x)[^<>\s]+>|\[[A-Z]+\d*\]")  # <s>, <|endoftext|>, [CLS]; not <0x0A>


def encodable(text: str) -> str:
    """Replace lone surrogates, which neither a file nor a font can hold, by U+FFFD."""
    return LONE_SURROGATES.sub("\ufffd", text)


class Label(NamedTuple):
    """A token as a picture shows it.

    Attributes:
        text: The token without the markers of its tokenizer.
        begins_word: Whether a word begins with this token, rather than continuing.
    """

    text: str
    begins_word: bool


def token_labels(tokens: Sequence[str]) -> list[Label]:
    """Remove the markers of subwords from tokens.

    The sequence shows which tokenizer made it: ``▁``, ``Ġ``, ``Ċ`` and ``##`` are markers where a
    token begins with them. In a sequence without such tokens, every token is a word of its own and
    is not changed. Special tokens such as ``</s>`` and ``[CLS]`` are never changed.

    Args:
        tokens: The tokens of one sequence, as the tokenizer writes them.

    Returns:
        A label for each token. A token that is nothing but a marker becomes ``␣``, or ``↵`` if it
        marks the end of a line. Lone surrogates become U+FFFD.

    Example:
        >>> from transformer_blocks.explorer.tokens import token_labels
        >>> "".join(" " * begins + text for text, begins in token_labels(["▁un", "able", "▁to"]))
        ' unable to'
        >>> token_labels(["un", "##able"]) == token_labels(["▁un", "able"])
        True
        >>> token_labels(["▁", "猫"])[0]
        Label(text='␣', begins_word=True)
    """
    tokens = list(map(encodable, tokens))
    words = [token for token in tokens if not SPECIAL.fullmatch(token)]
    if any(token.startswith("▁") for token in words):
        label = _of_sentencepiece
    elif any(token.startswith(("Ġ", "Ċ")) for token in words):
        label = _of_byte_pairs
    elif any(token.startswith("##") and len(token) > 2 for token in words):
        label = _of_wordpiece
    else:
        return [Label(token, True) for token in tokens]
    labels: list[Label] = []
    is_first = True  # of the sequence, or after a special token
    for token in tokens:
        is_special = SPECIAL.fullmatch(token) is not None
        text, begins_word = (token, True) if is_special else label(token)
        labels.append(Label(text, begins_word or is_first))
        is_first = is_special
    return labels


def _of_sentencepiece(token: str) -> tuple[str, bool]:
    """Replace each ``▁``, which is a space."""
    return token.lstrip("▁").replace("▁", " ") or (SPACE if token else ""), token.startswith("▁")


def _of_byte_pairs(token: str) -> tuple[str, bool]:
    """Replace each ``Ġ``, which is a space, and each ``Ċ``, which ends a line."""
    text = token.lstrip("Ġ").replace("Ġ", " ").replace("Ċ", LINE_END)
    return text or (SPACE if token else ""), token.startswith(("Ġ", "Ċ"))


def _of_wordpiece(token: str) -> tuple[str, bool]:
    """Remove ``##``, which continues a word."""
    continues = token.startswith("##") and len(token) > 2
    return token.removeprefix("##") if continues else token, not continues
