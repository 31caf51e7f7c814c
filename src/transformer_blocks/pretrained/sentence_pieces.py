"""Sentence pieces: the tokenizer of Marian's translators.

One sentencepiece model splits the source language into subwords, another the target language, and
one vocabulary holds the ids of both.

The models were trained on text whose quotation marks and dashes had been replaced by their ASCII
forms by a script of the Moses toolkit. Here, texts are not changed.
"""

from collections.abc import Sequence
from pathlib import Path

from transformer_blocks.pretrained.config import LoadError, read_json
from transformer_blocks.pretrained.tokenizer import Tokenizer

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


class SentencePieces(Tokenizer):
    """Marian's tokenizer: source text to ids, target ids to text.

    Decoding joins the tokens of ``vocab.json`` and does not need ``target.spm``.

    Args:
        folder: The folder of the model, with ``source.spm`` and ``vocab.json``.

    Raises:
        LoadError: If a file is missing or damaged, a special token is missing, or two tokens have
            one id.
    """

    def __init__(self, folder: Path) -> None:
        from sentencepiece import SentencePieceProcessor  # only now: no other family needs it

        path, self.vocabulary = folder / "source.spm", read_json(folder / "vocab.json")
        if missing := {END, UNKNOWN, PADDING} - self.vocabulary.keys():
            raise LoadError(f"{folder / 'vocab.json'} must hold {min(missing)}")
        self.tokens = {number: token for token, number in self.vocabulary.items()}
        if len(self.tokens) < len(self.vocabulary):
            raise LoadError(f"{folder / 'vocab.json'} must not repeat an id")
        self.ids = self.tokens.keys()
        try:
            # sentencepiece takes an empty file for a model that is loaded later.
            self.source = SentencePieceProcessor(model_proto=path.read_bytes() or b"?")
        except OSError as error:
            raise LoadError(f"cannot read {path}: {error.strerror}") from error
        except RuntimeError as error:
            raise LoadError(
                f"{path} must be a sentencepiece model, but is another file or damaged"
            ) from error

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
        ordinary = (UNKNOWN if each in (END, PADDING) else each for each in tokens)
        unknown = self.vocabulary[UNKNOWN]
        ids = [self.vocabulary.get(each, unknown) for each in ordinary]
        return [*ids, self.vocabulary[END]]

    def decode(self, ids: Sequence[int], after: Sequence[int] = ()) -> str:
        """Turn token ids into text, without special tokens.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if unknown := [number for number in ids if number not in self.tokens]:
            raise IndexError(f"an id must be in the vocabulary, got {unknown[0]}")
        tokens = (self.tokens[number] for number in ids)
        ordinary = (token for token in tokens if token not in (END, UNKNOWN, PADDING))
        return "".join(ordinary).replace("▁", " ").strip()
