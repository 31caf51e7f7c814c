"""Text to text: the outputs of T5 for several texts at once.

Next: ``t5.py``, the program.
"""

import argparse
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from torch.nn.utils.rnn import pad_sequence

from common.batching import group_by_length
from common.errors import UserError
from common.searches import Beam, Greedy, Search
from common.text_files import decode_line, read_lines
from pretrained.loading import find_family, find_folder
from pretrained.t5_model import T5, T5Steps
from pretrained.unigram import Unigram
from pretrained.weights import FILES as WEIGHT_FILES
from transformer_blocks.inference import prepare

FILES = ("config.json", *WEIGHT_FILES, "tokenizer.json")
BATCH_TOKENS = 4096
"""Maximum number of source tokens of a batch, padding included."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextToText:
    """A T5 with its tokenizer.

    Attributes:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of both texts.
    """

    model: T5
    tokenizer: Unigram

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "TextToText":
        """Load a published T5.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or the files do not belong together.
        """
        model_class = find_family(folder / "config.json", {"t5": T5})
        tokenizer, model = Unigram.load(folder), model_class.load(folder, dtype=dtype)
        for name in ("end", "padding"):
            found, wanted = (getattr(part, f"{name}_id") for part in (tokenizer, model))
            if found != wanted:
                raise UserError(
                    f"{folder}: the {name} token is {found} in tokenizer.json but {wanted} in "
                    "config.json"
                )
        largest, vocabulary_size = max(tokenizer.tokens), len(model.embedding.weight)
        if largest >= vocabulary_size:
            raise UserError(
                f"{folder}: the ids of the vocabulary must be below the vocab_size of config.json, "
                f"got {largest} and {vocabulary_size}"
            )
        return cls(model, tokenizer)

    @torch.inference_mode()
    def generate(
        self, texts: Sequence[str], *, length: int, search: Search, batch_tokens: int = BATCH_TOKENS
    ) -> list[str]:
        """Generate an output for each text; those of similar length share a batch.

        Args:
            texts: Source texts, each with the prefix of its task, such as "summarize: ". A blank
                one gives an empty output.
            length: Maximum number of tokens of an output, end token included.
            search: The decoding strategy.
            batch_tokens: Maximum number of source tokens of a batch, padding included.

        Returns:
            The best output that the search finds for each text, in the same order.
        """
        model = self.model
        device = model.embedding.weight.device
        encoded = [self.tokenizer.encode(text) if text.strip() else [] for text in texts]
        ids_of_embedding = range(len(model.embedding.weight))
        unused = [number for number in ids_of_embedding if number not in self.tokenizer.tokens]
        outputs = ["" for _ in encoded]
        for chosen in group_by_length([len(ids) for ids in encoded], batch_tokens):
            sequences = [torch.tensor(encoded[index]) for index in chosen]
            source = pad_sequence(sequences, batch_first=True, padding_value=model.padding_id)
            steps = T5Steps(model, source.to(device), suppressed=unused)
            start = torch.full((len(chosen),), model.start_id, device=device)
            limits = [length] * len(chosen)
            found = search(steps, start, end_id=model.end_id, max_length=limits)
            for index, generations in zip(chosen, found, strict=True):
                outputs[index] = self.tokenizer.decode(generations[0].tokens)
        return outputs


def print_outputs(options: argparse.Namespace) -> None:
    """Print the outputs for texts from the arguments or a file, one per line."""
    lines = (
        read_lines(options.file)
        if options.file
        else [decode_line(os.fsencode(each), where="a text") for each in options.texts]
    )
    model = TextToText.load(find_folder(options.model, FILES, revision=options.revision))
    vocabulary_size = len(model.model.embedding.weight)
    if options.beam > vocabulary_size:
        raise UserError(
            f"--beam must not exceed the {vocabulary_size} tokens of the vocabulary, "
            f"got {options.beam}"
        )
    search = Greedy() if options.beam == 1 else Beam(options.beam, length_penalty=0.6)
    prepared = replace(model, model=prepare(model.model))
    texts = [options.prefix + line if line.strip() else "" for line in lines]
    for output in prepared.generate(texts, length=options.length, search=search):
        print(output.replace("\r", " ").replace("\n", " "))
