"""Sentence pieces: cut text as Marian's translators were trained to read it.

Two sentencepiece models cut the languages that are read and written into pieces, and one table
numbers the pieces of both. (``translation/tokenizer.py`` tells what a sentence piece is.)

The models were trained on text whose quotation marks and dashes had been made plain by a script of
the Moses toolkit; that is left to whoever calls.
"""

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from common.errors import UserError
from pretrained.loading import check_vocabulary, read_json

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


class SentencePieces:
    """Marian's tokenizer: source text to ids, target ids to text.

    Args:
        source: Cuts what is read.
        vocabulary: The id of each piece of both languages.

    Raises:
        UserError: If a special piece is missing, or two pieces have one id.
    """

    def __init__(self, source: SentencePieceProcessor, vocabulary: dict[str, int]) -> None:
        for piece in (END, UNKNOWN, PADDING):
            if piece not in vocabulary:
                raise UserError(f"the vocabulary of a Marian tokenizer must hold {piece}")
        self.source = source
        self.vocabulary = vocabulary
        self.pieces = {number: piece for piece, number in vocabulary.items()}
        if len(self.pieces) < len(vocabulary):
            raise UserError("the vocabulary of a Marian tokenizer must not repeat a number")

    @classmethod
    def load(cls, folder: Path) -> "SentencePieces":
        """Read ``source.spm`` and ``vocab.json``.

        What is written is put together from the pieces of ``vocab.json``, without ``target.spm``.

        Raises:
            UserError: If a file is missing or damaged.
        """
        path, table = folder / "source.spm", folder / "vocab.json"
        vocabulary = check_vocabulary(read_json(table), table)
        try:
            data = path.read_bytes()
            # An empty file is to sentencepiece a model that is still to come.
            source = SentencePieceProcessor(model_proto=data or b"?")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except RuntimeError as error:
            raise UserError(f"{path} is no sentencepiece model, or it is damaged") from error
        return cls(source, vocabulary)

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, closed by the end mark.

        A model with several target languages is told which by a first word such as ``>>jpn<<``. Of
        the special pieces, none can be written into a text: ``</s>`` there is text as any other.
        """
        pieces = []
        if text.startswith(">>") and "<<" in text:
            code, _, text = text.partition("<<")
            pieces.append(f"{code}<<")
        pieces += self.source.encode(text, out_type=str)
        unknown = self.vocabulary[UNKNOWN]
        special = (END, PADDING)
        ids = [
            unknown if each in special else self.vocabulary.get(each, unknown) for each in pieces
        ]
        return [*ids, self.vocabulary[END]]

    def decode(self, ids: list[int]) -> str:
        """Turn ids into text; special pieces say nothing.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if strangers := [number for number in ids if number not in self.pieces]:
            raise IndexError(f"an id must be in the vocabulary, got {strangers[0]}")
        pieces = (self.pieces[number] for number in ids)
        spoken = (piece for piece in pieces if piece not in (END, UNKNOWN, PADDING))
        return "".join(spoken).replace("▁", " ").strip()
