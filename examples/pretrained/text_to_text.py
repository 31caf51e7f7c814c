"""Text to text: the outputs of T5 for several texts at once.

Next: ``t5.py``, the program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch

from common.batching import group_by_length
from common.searches import Beam, Greedy, Search
from pretrained.arguments import check_beam
from pretrained.batches import check_ids
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.language_model import suppress_unused
from transformer_blocks.pretrained.loading import Config, find_folder
from transformer_blocks.pretrained.t5 import T5
from transformer_blocks.pretrained.tokenizer import FILE, PublishedTokenizer
from transformer_blocks.pretrained.weights import FILES as WEIGHT_FILES

FILES = ("config.json", *WEIGHT_FILES, FILE)
BATCH_TOKENS = 4096
"""Maximum number of source tokens of a batch, padding included."""


@dataclass(frozen=True)
class TextToText:
    """A T5 with its tokenizer.

    Attributes:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of both texts.
    """

    model: T5
    tokenizer: PublishedTokenizer

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "TextToText":
        """Load a published T5.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or the files do not belong together.
        """
        model_class = Config(folder / "config.json").choice("model_type", {"t5": T5})
        tokenizer, model = PublishedTokenizer.load(folder), model_class.load(folder, dtype=dtype)
        embedding = model.target_embedding.weight
        check_ids(folder, tokenizer.tokens, embedding)
        suppress_unused(model, embedding, tokenizer.tokens)
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
        encoded = [self.tokenizer.encode(text) if text.strip() else [] for text in texts]
        outputs = ["" for _ in encoded]
        for chosen in group_by_length([len(ids) for ids in encoded], batch_tokens):
            options = {"end_id": self.model.end_id, "max_length": [length] * len(chosen)}
            found = self.model.generate([encoded[i] for i in chosen], search, **options)
            for index, generations in zip(chosen, found, strict=True):
                outputs[index] = self.tokenizer.decode(generations[0].tokens)
        return outputs


def print_outputs(options: Any) -> None:
    """Print the outputs for texts from the arguments or a file, one per line."""
    lines = options.read_texts()
    model = TextToText.load(find_folder(options.model, FILES, revision=options.revision))
    check_beam(options.beam, len(model.model.target_embedding.weight))
    search = Greedy() if options.beam == 1 else Beam(options.beam, length_penalty=0.6)
    prepared = replace(model, model=prepare(model.model))
    texts = [options.prefix + line if line.strip() else "" for line in lines]
    for output in prepared.generate(texts, length=options.length, search=search):
        print(output.replace("\r", " ").replace("\n", " "))
