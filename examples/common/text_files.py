"""Text files: read lines of UTF-8 text, and normalise their spelling.

The same text has many spellings: １０ and 10, ｶﾅ and カナ, curly and straight
apostrophes, spaces inside Japanese. :func:`clean_text` chooses one, for training and for use alike.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from common.errors import UserError

UNSPACED = {"ja", "zh"}  # languages written without spaces
_CJK = "[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # ideographs, kana, punctuation
_CJK_SPACE = re.compile(rf"(?<={_CJK}) | (?={_CJK}|[!?])")
_QUOTES = str.maketrans("‘’´“”", "'''\"\"")


def read_lines(path: Path) -> list[str]:
    r"""Read the lines of a UTF-8 file, however it was saved.

    A byte order mark, ``\r\n`` and a missing end of the last line make no difference. Only ``\n``
    ends a line: ``str.splitlines`` would also cut at U+2028 and others, and shift one file of a
    pair against the other.

    Raises:
        OSError: If the file cannot be read.
        UserError: If it holds something else than UTF-8 text.
    """
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [decode_line(line, where=f"{path}:{number}") for number, line in enumerate(lines, 1)]


def decode_line(line: bytes, *, where: str) -> str:
    r"""Decode one line of UTF-8, less its ``\r\n`` or ``\n`` and a byte order mark at its start.

    Raises:
        UserError: If it is something else than UTF-8 text; it names ``where`` and the byte.
    """
    line = line.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where} is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start}; "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise UserError(f"{where} holds a NUL byte (0x00); save the file as UTF-8 text")
    return text


def clean_text(text: str, language: str) -> str:
    """Normalise a line to the one spelling that models are trained on.

    Any text may come in. Cleaning clean text changes nothing.

    Args:
        text: A line as it was read or typed.
        language: Its language code, such as "ja" or "en". English quotation marks become straight;
            spaces inside Japanese and Chinese are removed.

    Returns:
        One line, without spaces at its ends; empty if it holds no visible character.

    Example:
        >>> clean_text(" １０ 時 に、 New  York で。", "ja")
        '10時に、New Yorkで。'
    """
    if language == "en":
        text = text.translate(_QUOTES)
    text = normalize(text)
    if language in UNSPACED:
        # Repeated until nothing changes: composing a character may expose another space.
        while (joined := unicodedata.normalize("NFKC", _CJK_SPACE.sub("", text))) != text:
            text = joined
    return text


def normalize(text: str) -> str:
    """Drop control, format and surrogate characters; NFKC; single spaces, none at the ends."""
    if not text.isprintable():
        unseen = {"Cc", "Cf", "Cs"}
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in unseen)
    return " ".join(unicodedata.normalize("NFKC", text).split())


def input_lines(sentences: Sequence[str], file: Path | None) -> Iterator[list[str]]:
    """Yield the input lines of a program: in large chunks, or one by one from a terminal.

    Args:
        sentences: The lines of the command line; the standard input is read if there are none.
        file: The file to read instead.

    Raises:
        UserError: If a line is not UTF-8 text.
    """
    if sentences:
        numbered = enumerate(sentences, start=1)
        yield [line for n, text in numbered for line in _read_argument(text, f"sentence {n}")]
    elif file:
        yield read_lines(file)
    else:
        size = 1 if sys.stdin.isatty() else 1000
        lines = (
            decode_line(line, where=f"standard input:{n}")
            for n, line in enumerate(sys.stdin.buffer, start=1)
        )
        yield from iter(lambda: list(islice(lines, size)), [])


def read_prompts(prompts: Sequence[str]) -> list[str]:
    """Read the prompts of the command line; one empty prompt if there are none.

    Raises:
        UserError: If a prompt is not UTF-8 text.
    """
    return ["\n".join(_read_argument(prompt, "the prompt")) for prompt in prompts or [""]]


def _read_argument(text: str, where: str) -> list[str]:
    """Read the lines of an argument: from bytes, since the locale may not be UTF-8."""
    return [decode_line(line, where=where) for line in os.fsencode(text).split(b"\n")]
