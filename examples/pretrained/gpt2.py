r"""GPT-2: generate text with a decoder-only model.

    python examples/pretrained/gpt2.py openai-community/gpt2 "The Transformer is" --length 40
    python examples/pretrained/gpt2.py FOLDER "Once upon a time" --sample --top-p 0.9 --seed 1
    python examples/pretrained/gpt2.py FOLDER "The cat" "In 2024, the" "Once upon a time"
    python examples/pretrained/gpt2.py FOLDER --file prompts.txt

Decoding is greedy, or with ``--sample`` random: tokens are drawn by their probabilities. The model
reads the prompts in one pass. Each decoding step then reads the newest tokens alone and attends to
the cached keys and values of all earlier ones. Prompts of different lengths share a batch, which
takes a fraction of the time, and each is continued as if it were alone. The model is in
``gpt2_model.py``.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten

import torch

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.batching import group_by_length
from common.commands import add_prompts, continue_prompts, read_prompts
from common.errors import UserError
from common.options import Number, Parser, add_sampling_options
from common.program import run_program
from common.searches import Greedy, Sample, Search
from pretrained.byte_pairs import END, BytePairs
from pretrained.byte_pairs import FILES as TOKENIZER_FILES
from pretrained.gpt2_model import Gpt2, Gpt2Steps
from pretrained.loading import WEIGHTS, find_folder
from transformer_blocks.generation import left_pad
from transformer_blocks.inference import prepare

FILES = ("config.json", WEIGHTS, *TOKENIZER_FILES)
BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch, with padding and continuations."""


@dataclass(frozen=True)
class TextGenerator:
    """A GPT-2 with its tokenizer.

    Attributes:
        model: The language model, in evaluation mode.
        tokenizer: The tokenizer of the prompt and of the generated text.
    """

    model: Gpt2
    tokenizer: BytePairs

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "TextGenerator":
        """Load a published GPT-2.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or the files do not belong together.
        """
        tokenizer, model = BytePairs.load(folder), Gpt2.load(folder, dtype=dtype)
        vocabulary, vocabulary_size = tokenizer.vocabulary, len(model.token_embedding.weight)
        if vocabulary[END] != model.end_id:
            raise UserError(
                f"{folder}: {END} is {vocabulary[END]} in the vocabulary but {model.end_id} in "
                "config.json"
            )
        if max(vocabulary.values()) >= vocabulary_size:
            raise UserError(
                f"{folder}: the ids of the vocabulary must be below the vocab_size of config.json, "
                f"got {max(vocabulary.values())} and {vocabulary_size}"
            )
        return cls(model, tokenizer)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[str], *, length: int, search: Search) -> list[list[str]]:
        """Continue texts until the model ends them.

        Args:
            prompts: The texts to continue. An empty one is replaced by the end token, after which a
                text begins. Those of similar length share a batch.
            length: Maximum number of tokens to generate for each.
            search: The decoding strategy.

        Returns:
            For each prompt, the continuations that the search returns, best first, without it.

        Raises:
            UserError: If a prompt and its continuation exceed the model's maximum length.
        """
        model = self.model
        encoded = [self.tokenizer.encode(prompt) or [model.end_id] for prompt in prompts]
        for prompt, ids in zip(prompts, encoded, strict=True):
            if len(ids) + length > model.max_length:
                raise UserError(
                    f"prompt and continuation must not exceed the model's {model.max_length} "
                    f"tokens, got a prompt of {len(ids)} and --length {length} for "
                    f"{shorten(prompt, 40)!r}"
                )
        table = model.token_embedding.weight
        unused = [number for number in range(len(table)) if number not in self.tokenizer.tokens]
        continuations: list[list[str]] = [[] for _ in prompts]
        for chosen in group_by_length([len(ids) + length for ids in encoded], BATCH_TOKENS):
            tokens, lengths = left_pad([encoded[i][:-1] for i in chosen])
            steps = Gpt2Steps(model, tokens.to(table.device), lengths=lengths, suppressed=unused)
            start = torch.tensor([encoded[i][-1] for i in chosen], device=table.device)
            limits = [length] * len(chosen)
            found = search(steps, start, end_id=model.end_id, max_length=limits)
            for i, generations in zip(chosen, found, strict=True):
                continuations[i] = [self.tokenizer.decode(each.tokens) for each in generations]
        return continuations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: print_continuations(arguments))


def print_continuations(arguments: Sequence[str] | None) -> None:
    """Print prompts and their continuations."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or the name of a model on the Hugging Face hub")
    add_prompts(parser, "a new text begins")
    parser.add_argument(
        "--length",
        type=Number(int, "above 0"),
        default=40,
        help="maximum number of tokens to generate (default: 40)",
    )
    parser.add_argument(
        "--sample", action="store_true", help="sample tokens by their probabilities"
    )
    add_sampling_options(parser)
    parser.add_argument("--revision", help="branch, tag or commit on the hub (default: main)")
    options = parser.parse_args(arguments)
    search = choose_search(options)
    prompts = read_prompts(options)
    generator = TextGenerator.load(find_folder(options.model, FILES, revision=options.revision))
    prepared = replace(generator, model=prepare(generator.model))

    def generate(prompts: Sequence[str]) -> list[list[str]]:
        found = prepared.generate(prompts, length=options.length, search=search)
        return [
            [prompt + each for each in several]
            for prompt, several in zip(prompts, found, strict=True)
        ]

    continue_prompts(options, prompts, generate)


def choose_search(options: argparse.Namespace) -> Search:
    """Make the decoding strategy from the options of the command line.

    Raises:
        UserError: If an option of sampling is given without --sample.
    """
    names = ("temperature", "top_k", "top_p", "seed")
    given = [name for name in names if getattr(options, name) is not None]
    if not options.sample:
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} requires --sample")
        return Greedy()
    return Sample(options.temperature or 1.0, options.top_k, options.top_p, options.seed)


if __name__ == "__main__":
    sys.exit(main())
