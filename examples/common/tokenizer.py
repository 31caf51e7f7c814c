"""Tokenizer: byte-pair encoding of sentences into subwords, and back.

A vocabulary of words has no token for a new word, and characters make long sequences. *Byte-pair
encoding* (Sennrich et al., 2016; section 5.1 of the paper) finds subwords between the two. It
starts with the characters and, until the vocabulary is full, merges the pair of adjacent subwords
that occurs most often::

    new subword = ab    for the pair    (a, b) = argmax count(a b)

Frequent words become one subword, rare ones several. A new sentence is encoded by the same merges
in the same order. A space is a character like others, the first one of a word, and shown as ``▁``;
so Japanese, which has none, needs no word segmenter, and decoding restores the text exactly.
"""

import io
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from common.errors import UserError
from common.files import write_atomically

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the padding, unknown, begin and end tokens."""

_log = logging.getLogger(__name__)


class Tokenizer:
    """A trained byte-pair vocabulary, which encodes text as token ids and decodes them.

    ``decode(encode(text)) == text`` for clean text (see :func:`common.text_files.clean_text`) whose
    characters all occurred in training. Any other character is ``UNK``, which is decoded as ``⁇``.

    Args:
        model: A serialised sentencepiece model with the four special ids above.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "source.model"
        >>> tokenizer = Tokenizer.train(["猫がいる。", "犬がいる。"], vocab_size=20, path=path)
        >>> ids = tokenizer.encode("猫がいる。")
        >>> tokenizer.decode([BOS, *ids, EOS, PAD])
        '猫がいる。'
    """

    def __init__(self, model: bytes) -> None:
        self._processor = SentencePieceProcessor(model_proto=model)
        self._named = set[str]()  # parts of texts that were named as unknown

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        *,
        vocab_size: int,
        path: Path,
        write: Callable[[Path, bytes], None] = write_atomically,
    ) -> "Tokenizer":
        """Train a vocabulary on clean sentences of the training split, and save it.

        The same sentences give the same file, byte for byte.

        Args:
            sentences: The text of the training split only, so that the other splits remain unseen.
            vocab_size: Maximum number of tokens, special ones included. A small text has fewer.
            path: The file to write. Its folder must exist.
            write: The function that writes the file.

        Raises:
            UserError: If there is no text, ``vocab_size`` is too small for its characters, or the
                file cannot be written.
        """
        text = [*sentences]
        characters = set().union(*text)
        if not characters - {" "}:
            raise UserError("cannot train a tokenizer: the training split holds no text")
        smallest = len(characters) + 4
        if not smallest <= vocab_size <= 1_000_000:
            raise UserError(
                f"the vocabulary size must be from {smallest:,} ({len(characters):,} different "
                f"characters and 4 special tokens) to 1,000,000, got {vocab_size:,}"
            )
        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(text),
                model_writer=model,
                # The default, "unigram", finds only strings that different characters follow: not
                # ます where 。 always follows, nor the words of tokenised text, where a space does.
                model_type="bpe",
                vocab_size=vocab_size,
                hard_vocab_limit=False,  # a small text may have fewer
                # Every character of the text becomes a token, so that every kanji of a reference
                # can be generated. Unseen ones are unknown: as three bytes each (byte_fallback)
                # they would add 256 rows to the embedding that training never updates.
                character_coverage=1.0,
                normalization_rule_name="identity",  # the text is clean already
                # The first word gets a space as well, where words are written with spaces.
                add_dummy_prefix=2 * sum(" " in sentence for sentence in text) > len(text),
                unk_surface="⁇",
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                max_sentence_length=1 << 20,  # the default leaves longer ones out
                num_threads=1,  # sums of floats depend on the number of threads
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(f"cannot train a tokenizer with {vocab_size=}: {error}") from error
        content = model.getvalue()
        write(path, content)
        tokenizer = cls(content)
        _log.info(f"{path}: {tokenizer.vocab_size:,} tokens, at most {vocab_size:,}")
        return tokenizer

    @property
    def model(self) -> bytes:
        """The serialised sentencepiece model."""
        return bytes(self._processor.serialized_model_proto())

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return int(self._processor.vocab_size())

    @property
    def vocabulary(self) -> list[str]:
        """The subword of every id."""
        return self.subwords(range(self.vocab_size))

    def encode(self, text: str) -> list[int]:
        """Encode text as token ids, without begin and end tokens."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode each text as token ids."""
        ids: list[list[int]] = self._processor.encode([*texts], out_type=int)
        return ids

    def warn_of_unknown(self, texts: Iterable[str]) -> None:
        """Log a warning that names the parts of clean texts without a token, each part once."""
        parts: dict[str, None] = {}
        for text in texts:
            if UNK in (ids := self.encode(text)):
                pieces = self._processor.encode(text, out_type=str)  # an unknown one is its text
                parts |= {repr(pieces[i]): None for i, token in enumerate(ids) if token == UNK}
        if new := [part for part in parts if part not in self._named]:
            self._named.update(new)
            _log.warning(f"no token stands for {', '.join(new)}: the model reads <unk> instead")

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids; padding, begin and end tokens are skipped.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        return str(self._processor.decode([i for i in ids if i not in (PAD, BOS, EOS)]))

    def subwords(self, ids: Iterable[int]) -> list[str]:
        """Return the subword of each id, special tokens included; a space is shown as ``▁``.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        return [self._processor.id_to_piece(i) for i in ids]
