r"""GPT-2: generate text with a decoder-only model.

    python examples/pretrained/gpt2.py openai-community/gpt2 "The Transformer is" --length 40
    python examples/pretrained/gpt2.py FOLDER "Once upon a time" --sample --top-p 0.9 --seed 1

Decoding is greedy, or with ``--sample`` random: tokens are drawn by their probabilities. The model
reads the prompt in one pass. Each decoding step then reads the newest token alone and attends to
the cached keys and values of all earlier ones. The model is in ``gpt2_model.py``.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.errors import UserError
from common.options import Parser, add_sampling_options, number
from common.program import run_program
from common.searches import Greedy, Sample, Search
from common.text_files import decode_line
from pretrained.byte_pairs import END, BytePairs
from pretrained.byte_pairs import FILES as TOKENIZER_FILES
from pretrained.gpt2_model import Gpt2, Gpt2Steps
from pretrained.loading import WEIGHTS, find_folder
from transformer_blocks.inference import prepare

FILES = ("config.json", WEIGHTS, *TOKENIZER_FILES)


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
    def generate(self, prompt: str, *, length: int, search: Search) -> list[str]:
        """Continue a text until the model ends it.

        Args:
            prompt: The text to continue. An empty one is replaced by the end token, after which a
                text begins.
            length: Maximum number of tokens to generate.
            search: The decoding strategy.

        Returns:
            The continuations that the search returns, best first, without the prompt.

        Raises:
            UserError: If prompt and continuation exceed the model's maximum length.
        """
        ids = self.tokenizer.encode(prompt) or [self.model.end_id]
        if len(ids) + length > self.model.max_length:
            raise UserError(
                f"prompt and continuation must not exceed the model's {self.model.max_length} "
                f"tokens, got a prompt of {len(ids)} and --length {length}"
            )
        table = self.model.token_embedding.weight
        tokens = torch.tensor([ids], device=table.device)  # (1, L)
        unused = [number for number in range(len(table)) if number not in self.tokenizer.tokens]
        steps = Gpt2Steps(self.model, tokens[:, :-1], suppressed=unused)
        (found,) = search(steps, tokens[:, -1], end_id=self.model.end_id, max_length=[length])
        return [self.tokenizer.decode(each.tokens) for each in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: print_continuation(arguments))


def print_continuation(arguments: Sequence[str] | None) -> None:
    """Print a prompt and its continuation."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or the name of a model on the Hugging Face hub")
    parser.add_argument("text", nargs="?", default="", help="the prompt, which is continued")
    parser.add_argument(
        "--length",
        type=number(int, "above 0"),
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
    prompt = decode_line(os.fsencode(options.text), where="the text")
    generator = TextGenerator.load(find_folder(options.model, FILES, revision=options.revision))
    prepared = replace(generator, model=prepare(generator.model))
    (continuation,) = prepared.generate(prompt, length=options.length, search=search)
    print(prompt + continuation)


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
    generator = torch.Generator()
    generator.seed() if options.seed is None else generator.manual_seed(options.seed)
    return Sample(options.temperature or 1.0, options.top_k, options.top_p, generator)


if __name__ == "__main__":
    sys.exit(main())
