"""Sentence pieces: the tokenizer of Marian's translators.

One sentencepiece model splits the source language into subwords, another the target language, and
one vocabulary holds the ids of both. (``common/tokenizer.py`` explains byte-pair encoding.)

The models were trained on text whose quotation marks and dashes had been replaced by their ASCII
forms by a script of the Moses toolkit. Here, texts are not changed.
"""

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from transformer_blocks.pretrained.loading import LoadError, read_json

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


class SentencePieces:
    """Marian's tokenizer: source text to ids, target ids to text.

    Args:
        source: The sentencepiece model of the source language.
        vocabulary: The id of each token of both languages.

    Raises:
        LoadError: If a special token is missing, or two tokens have one id.
    """

    def __init__(self, source: SentencePieceProcessor, vocabulary: dict[str, int]) -> None:
        for token in (END, UNKNOWN, PADDING):
            if token not in vocabulary:
                raise LoadError(f"the vocabulary of a Marian tokenizer must hold {token}")
        self.source = source
        self.vocabulary = vocabulary
        self.tokens = {number: token for token, number in vocabulary.items()}
        if len(self.tokens) < len(vocabulary):
            raise LoadError("the vocabulary of a Marian tokenizer must not repeat an id")

    @classmethod
    def load(cls, folder: Path) -> "SentencePieces":
        """Read ``source.spm`` and ``vocab.json``.

        Decoding joins the tokens of ``vocab.json`` and does not need ``target.spm``.

        Raises:
            LoadError: If a file is missing or damaged.
        """
        path, vocabulary = folder / "source.spm", read_json(folder / "vocab.json")
        try:
            data = path.read_bytes()
            # sentencepiece takes an empty file for a model that is loaded later.
            source = SentencePieceProcessor(model_proto=data or b"?")
        except OSError as error:
            raise LoadError(f"cannot read {path}: {error.strerror}") from error
        except RuntimeError as error:
            raise LoadError(
                f"{path} must be a sentencepiece model, but is another file or damaged"
            ) from error
        return cls(source, vocabulary)

    def encode(self, text: str) -> list[int]:
        """Turn a text into token ids, followed by the end token.

        For a model with several target languages, a text begins with a language code such as
        ``>>jpn<<``. A ``</s>`` within a text is text, never the special token.
        """
        tokens = []
        if text.startswith(">>") and "<<" in text:
            code, _, text = text.partition("<<")
            tokens.append(f"{code}<<")
        tokens += self.source.encode(text, out_type=str)
        unknown = self.vocabulary[UNKNOWN]
        special = (END, PADDING)
        ids = [
            unknown if each in special else self.vocabulary.get(each, unknown) for each in tokens
        ]
        return [*ids, self.vocabulary[END]]

    def decode(self, ids: list[int]) -> str:
        """Turn token ids into text, without special tokens.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if unknown := [number for number in ids if number not in self.tokens]:
            raise IndexError(f"an id must be in the vocabulary, got {unknown[0]}")
        tokens = (self.tokens[number] for number in ids)
        ordinary = (token for token in tokens if token not in (END, UNKNOWN, PADDING))
        return "".join(ordinary).replace("▁", " ").strip()
