"""Arguments: what the command lines of these programs have in common."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UserError
from common.options import Words
from common.text_files import decode_line, read_lines


@dataclass(frozen=True)
class ModelOptions:
    """Options of every program.

    Attributes:
        model: A folder, or the name of a model on the Hugging Face hub.
        revision: Branch, tag or commit on the hub (default: main).
    """

    model: str
    revision: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class TextOptions(ModelOptions):
    """Options of programs that read texts.

    Attributes:
        texts: Texts (default: those of --file).
        file: File of texts, one per line (default: none).
    """

    texts: Words = ()
    file: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check that the texts are given in one way."""
        if bool(self.texts) == bool(self.file):
            raise UserError("give either texts or --file")

    def read_texts(self) -> list[str]:
        """Read the texts of the command line, or the lines of ``--file``.

        Raises:
            UserError: If one is not UTF-8 text.
        """
        if self.file:
            return read_lines(self.file)
        return [decode_line(os.fsencode(each), where="a text") for each in self.texts]


def check_beam(beam: int, vocabulary_size: int) -> None:
    """Raise if there are more beams than tokens.

    Raises:
        UserError: If there are.
    """
    if beam > vocabulary_size:
        raise UserError(
            f"--beam must not exceed the {vocabulary_size} tokens of the vocabulary, got {beam}"
        )
