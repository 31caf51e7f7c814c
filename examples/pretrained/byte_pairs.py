r"""Byte pairs: cut text as GPT-2 was trained to read it.

Byte-pair encoding joins the pieces that stand side by side most often (``translation/tokenizer.py``
tells more). GPT-2's begins with the 256 bytes instead of characters, so that no text is unknown
(section 2.2 of its paper). Two details make it exact:

- pieces never cross certain borders: between letters, digits, spaces and other signs, after an
  English ``'s`` or ``'ll``; a single space belongs to what follows it;
- ``vocab.json`` shows each byte as a character that can be printed, a space as ``Ġ``.

The borders are a regular expression about Unicode's letters and digits, which :mod:`re` has no
names for. So each character is first replaced by one that stands for its kind, and the borders are
looked for in that shadow of the text.
"""

import re
import unicodedata
from itertools import pairwise
from pathlib import Path

from common.errors import UserError
from common.text_files import read_lines
from pretrained.loading import check_vocabulary, read_json, shown

END = "<|endoftext|>"
SPELT = "'strevmld "  # characters that the borders depend on by themselves
BORDERS = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)"  # of: it's, can't, we're, I've, I'm, we'll, he'd
    r"| ?[Lstrevmld]+| ?N+| ?[P']+"  # letters, digits, other signs
    r"|[S ]+(?![^S ])|[S ]+"  # spaces, of which the last is left to a word that follows
)


def _printable_bytes() -> list[str]:
    """Give each byte its own character, or one above 255 if that cannot be seen."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + unseen.index(byte)) for byte in range(256)]


BYTES = _printable_bytes()
NUMBERS = {character: byte for byte, character in enumerate(BYTES)}


class BytePairs:
    """GPT-2's tokenizer: text to ids and back.

    An ``<|endoftext|>`` that somebody writes into a text is text as any other, never the mark.

    Args:
        vocabulary: The id of each piece; all bytes are among them, and the mark between texts.
        merges: The pairs of pieces to join, the most frequent first.

    Raises:
        UserError: If a piece is missing, or two have one id.

    Example:
        >>> pieces = [*BYTES, "Ġc", "at", "Ġcat", END]
        >>> vocabulary = {piece: number for number, piece in enumerate(pieces)}
        >>> tokenizer = BytePairs(vocabulary, [("Ġ", "c"), ("a", "t"), ("Ġc", "at")])
        >>> ids = tokenizer.encode("a cat's 猫")
        >>> [pieces[number] for number in ids]
        ['a', 'Ġcat', "'", 's', 'Ġ', 'ç', 'Į', '«']
        >>> tokenizer.decode(ids)
        "a cat's 猫"
    """

    def __init__(self, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
        for piece in (*BYTES, *(left + right for left, right in merges), END):
            if piece not in vocabulary:
                raise UserError(f"the vocabulary of a GPT-2 tokenizer must hold {piece!r}")
        self.vocabulary = vocabulary
        self.pieces = {number: piece for piece, number in vocabulary.items()}
        if len(self.pieces) < len(vocabulary):
            raise UserError("the vocabulary of a GPT-2 tokenizer must not repeat a number")
        for piece in vocabulary:
            if piece != END and not NUMBERS.keys() >= set(piece):
                raise UserError(
                    "the vocabulary of a GPT-2 tokenizer must spell its pieces by the characters "
                    f"that stand for bytes, got {shown(piece)}"
                )
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}

    @classmethod
    def load(cls, folder: Path) -> "BytePairs":
        """Read ``vocab.json`` and ``merges.txt``.

        Raises:
            UserError: If a file is missing or damaged.
        """
        table, path = folder / "vocab.json", folder / "merges.txt"
        vocabulary = check_vocabulary(read_json(table), table)
        merges = []
        for number, line in enumerate(read_lines(path), start=1):
            match line.split(" "):
                case [left, right] if left and right and not line.startswith("#version"):
                    merges.append((left, right))
                case _ if line and not line.startswith("#version"):
                    raise UserError(f"{path}:{number} must hold two pieces, got {line!r}")
        return cls(vocabulary, merges)

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids.

        Raises:
            UnicodeEncodeError: If it holds half a character (a lone surrogate).
        """
        known: dict[str, list[int]] = {}  # a text repeats its words
        ids = []
        for border in BORDERS.finditer("".join(map(_kind, text))):
            word = text[border.start() : border.end()]
            if word not in known:
                known[word] = [self.vocabulary[piece] for piece in self._join(word)]
            ids += known[word]
        return ids

    def decode(self, ids: list[int]) -> str:
        """Turn ids into text; half a character at an end reads U+FFFD, the mark says nothing.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if strangers := [number for number in ids if number not in self.pieces]:
            raise IndexError(f"an id must be in the vocabulary, got {strangers[0]}")
        spoken = "".join(self.pieces[number] for number in ids if self.pieces[number] != END)
        return bytes(NUMBERS[character] for character in spoken).decode(errors="replace")

    def _join(self, word: str) -> list[str]:
        """Join the pieces of a word, the most frequent pair first, until no pair is known."""
        pieces = [BYTES[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in pairwise(pieces)]
            place = ranks.index(min(ranks))
            if ranks[place] == len(self.ranks):
                break
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return pieces


def _kind(character: str) -> str:
    """Name the kind of a character: a letter, a number, a space, or else."""
    if character in SPELT:
        return character
    if character in "\t\n\v\f\r\x85":
        return "S"
    kind = unicodedata.category(character)[0]
    return {"L": "L", "N": "N", "Z": "S"}.get(kind, "P")
