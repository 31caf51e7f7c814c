"""The files of SentencePiece's tokenizers: whether the page can read them."""

from typing import Any

KNOWN_PIECES = {1, 2, 3}  # normal, unknown, control
KNOWN_MODELS = {1, 2}  # unigrams, byte pairs


def count_pieces(content: bytes) -> int:
    """Count the pieces of a tokenizer that the page can read.

    Args:
        content: The file of its model; see sentencepiece_model.proto for the numbers.

    Returns:
        The number of its pieces, which is that of its token ids.

    Raises:
        ValueError: If it is another file, or needs what ``tokenizer.js`` does not compute: pieces
            of bytes or of the user, whitespace as a suffix, or changes of a decoded text.
    """
    try:
        model = _read_fields(content)
        pieces = [_read_fields(each).get(3, [1])[0] for each in model[1]]
        trainer, normalizer = (_read_fields(model[number][0]) for number in (2, 3))
        changes = [_read_fields(each).get(2, [b""])[0] for each in model.get(5, [])]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError("tokenizers must be files of SentencePiece models, got another") from error
    is_known = {*pieces} <= KNOWN_PIECES and pieces.count(2) == 1 and not any(changes)
    is_plain = not trainer.get(24, [0])[0] and normalizer.get(5, [1])[0]
    if not is_known or not is_plain or trainer.get(3, [1])[0] not in KNOWN_MODELS:
        raise ValueError(
            "tokenizers must be of unigrams or byte pairs, with an unknown token and without "
            "tokens of bytes or of the user, got another kind"
        )
    return len(pieces)


def _read_fields(message: bytes) -> dict[int, list[Any]]:
    """Read a message of Protocol Buffers: for each number of a field, its values, int or bytes.

    Raises:
        IndexError: If it ends within a number.
        ValueError: If it ends within a field, or has a field of an unknown type.
    """
    fields: dict[int, list[Any]] = {}
    at = 0

    def read_number() -> int:
        nonlocal at
        number, shift = 0, 0
        while True:
            byte = message[at]
            number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return number

    while at < len(message):
        tag = read_number()
        if tag & 7 == 0:
            value: Any = read_number()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or (
                read_number() if tag & 7 == 2 else len(message) + 1
            )
            value, at = message[at : at + size], at + size
        if at > len(message):
            raise ValueError("the message ends within a field")
        fields.setdefault(tag >> 3, []).append(value)
    return fields
