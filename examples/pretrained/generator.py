"""Generator: continue texts with a published language model, several at once.

Next: ``generate.py``, the program.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch

from common.batching import group_by_length
from common.errors import UserError
from common.searches import Search, sampling_or_greedy
from common.text_files import read_prompts
from pretrained.batches import check_ids
from transformer_blocks import LanguageModel
from transformer_blocks.generation import Generation
from transformer_blocks.inference import load_program, prepare, save_program
from transformer_blocks.pretrained.gemma3 import Gemma3
from transformer_blocks.pretrained.gpt2 import Gpt2
from transformer_blocks.pretrained.language_model import PublishedLanguageModel, suppress_unused
from transformer_blocks.pretrained.llama_model import Llama
from transformer_blocks.pretrained.loading import Config, find_folder
from transformer_blocks.pretrained.qwen3 import Qwen3
from transformer_blocks.pretrained.qwen3_moe import Qwen3Moe
from transformer_blocks.pretrained.tokenizer import FILE, PublishedTokenizer
from transformer_blocks.pretrained.weights import FILES as WEIGHT_FILES

CONFIGS = ("config.json", "generation_config.json")
FILES = (*CONFIGS, *WEIGHT_FILES, FILE)
FAMILIES: dict[str, type[Any]] = {
    "gpt2": Gpt2,
    "llama": Llama,
    "qwen3": Qwen3,
    "qwen3_moe": Qwen3Moe,
    "gemma3_text": Gemma3,
}
"""Classes of the models, by ``model_type`` in ``config.json``."""

BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch, with padding and continuations."""


@dataclass(frozen=True)
class TextGenerator:
    """A language model with its tokenizer.

    Attributes:
        model: The language model, in evaluation mode.
        tokenizer: The tokenizer of the prompt and of the generated text.
    """

    model: PublishedLanguageModel
    tokenizer: PublishedTokenizer

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "TextGenerator":
        """Load a published model of one of the :data:`FAMILIES`.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or the files do not belong together.
        """
        config = Config(folder / "config.json")
        model = config.choice("model_type", FAMILIES).load(folder, dtype=dtype)
        tokenizer = PublishedTokenizer.load(folder)
        embedding = model.embedding.weight
        check_ids(folder, {*tokenizer.tokens, *model.end_ids}, embedding)
        suppress_unused(model, embedding, tokenizer.tokens)
        return cls(model, tokenizer)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[str],
        decoding: Any = None,
        *,
        length: int,
        search: Search,
        batch_tokens: int = BATCH_TOKENS,
    ) -> list[list[str]]:
        """Continue texts until the model ends them.

        Args:
            decoding: What decodes: the prepared model or a program; the model if not given.
            prompts: The texts to continue; those of similar length share a batch. If the tokenizer
                puts no token before a text, an empty prompt is replaced by the end token, after
                which the model begins a new text.
            length: Maximum number of tokens to generate for each.
            search: The decoding strategy.
            batch_tokens: Maximum number of tokens of a batch, with padding and continuations.

        Returns:
            For each prompt, the continuations that the search returns, best first, without the
            prompt.

        Raises:
            UserError: If a prompt and its continuation exceed the model's maximum length, or a
                prompt is empty and the model has no token with which a text begins.
        """
        model = self.model
        encoded = [self.tokenizer.encode(prompt) or list(model.end_ids[:1]) for prompt in prompts]
        for prompt, ids in zip(prompts, encoded, strict=True):
            if not ids:
                raise UserError("the prompt must not be empty, as this model has no end token")
            if len(ids) + length > model.max_length:
                raise UserError(
                    f"prompt and continuation must not exceed the model's {model.max_length} "
                    f"tokens, got a prompt of {len(ids)} and --length {length} for "
                    f"{shorten(prompt, 40)!r}"
                )
        continuations: list[list[str]] = [[] for _ in prompts]
        for chosen in group_by_length([len(ids) + length for ids in encoded], batch_tokens):
            options = {"end_id": model.end_ids, "max_length": [length] * len(chosen)}
            found = (decoding or model).generate([encoded[i] for i in chosen], search, **options)
            for i, generations in zip(chosen, found, strict=True):
                continuations[i] = [
                    self.tokenizer.decode(each.tokens, encoded[i]) for each in generations
                ]
        return continuations


class CompiledModel:
    """What decodes with a program instead of its model; the file is written if there is none.

    Args:
        model: The trained model.
        file: The file of the program. It is executed.
        end_id: Ids of the end tokens; None if there are none.

    Raises:
        UserError: If the model cannot be compiled, or the file is no program of it.
    """

    def __init__(self, model: LanguageModel, file: Path, *, end_id: Collection[int] | None) -> None:
        try:
            if not file.exists():
                print(f"Compiling {file} takes some minutes.", flush=True)
                save_program(model, file, end_id=end_id)
            self.program = load_program(file, model=model)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(f"--program: {error}") from error

    def generate(
        self, prompts: Sequence[Sequence[int]], _: object, *, max_length: list[int], **__: Any
    ) -> list[list[Generation]]:
        """Continue prompts greedily; the other arguments are those of the model's ``generate``."""
        return self.program.generate(prompts, max_length=max_length)


def print_continuations(options: Any) -> None:
    """Print prompts and their continuations."""
    prompts = read_prompts(options.prompts)
    generator = TextGenerator.load(find_folder(options.model, FILES, revision=options.revision))
    model: Any = generator.model
    decoding = prepare(model)
    if options.program:
        decoding = CompiledModel(model, options.program, end_id=model.end_ids)
    search = sampling_or_greedy(options, greedy=not options.sample)
    found = generator.generate(prompts, decoding, length=options.length, search=search)
    print("\n\n".join(prompt + text for prompt, (text,) in zip(prompts, found, strict=True)))
