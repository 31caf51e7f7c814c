r"""GPT-2: a decoder alone, which goes on with a text.

    python examples/pretrained/gpt2.py openai-community/gpt2 "The Transformer is" --length 40
    python examples/pretrained/gpt2.py FOLDER "Once upon a time" --sample --top-p 0.9 --seed 1

The likeliest words are taken, or words are drawn by their chances with ``--sample``. What was
begun is read at once, and from there each step reads the newest word alone: keys and values of all
earlier ones wait in a cache. The model is in ``gpt2_model.py``.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from common.errors import UserError
from common.options import Parser, number
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
class Writer:
    """A GPT-2 with its tokenizer.

    Attributes:
        model: In eval mode.
        tokenizer: Cuts what is begun, and puts together what is written.
    """

    model: Gpt2
    tokenizer: BytePairs

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Writer":
        """Read a published GPT-2.

        Raises:
            UserError: If a file is missing or damaged, or they do not belong together.
        """
        tokenizer, model = BytePairs.load(folder), Gpt2.load(folder, dtype=dtype)
        vocabulary, vocabulary_size = tokenizer.vocabulary, len(model.words.weight)
        if vocabulary[END] != model.end_id:
            raise UserError(
                f"{folder}: {END} is {vocabulary[END]} in vocab.json but {model.end_id} in "
                "config.json"
            )
        if max(vocabulary.values()) >= vocabulary_size:
            raise UserError(
                f"{folder / 'vocab.json'} has numbers beyond the {vocabulary_size} pieces of "
                "config.json"
            )
        return cls(model, tokenizer)

    @torch.inference_mode()
    def go_on(self, text: str, *, length: int, search: Search) -> list[str]:
        """Go on with a text until the model ends it.

        Args:
            text: What is begun. An empty one is begun by the mark between texts.
            length: Most tokens to write.
            search: How to choose words.

        Returns:
            What is found to follow, likeliest first; the text itself is not repeated.

        Raises:
            UserError: If the model has too few positions for both.
        """
        ids = self.tokenizer.encode(text) or [self.model.end_id]
        if len(ids) + length > self.model.max_length:
            raise UserError(
                f"the model reads {self.model.max_length} tokens at most, got {len(ids)} tokens "
                f"to go on from and {length} to write"
            )
        begun = torch.tensor([ids], device=self.model.words.weight.device)  # (1, L)
        rows = range(len(self.model.words.weight))
        suppressed = [number for number in rows if number not in self.tokenizer.tokens]
        steps = Gpt2Steps(self.model, begun[:, :-1], suppressed=suppressed)
        (found,) = search(steps, begun[:, -1], end_id=self.model.end_id, max_length=[length])
        return [self.tokenizer.decode(each.tokens) for each in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: write(arguments))


def write(arguments: Sequence[str] | None) -> None:
    """Print a text and what follows."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("text", nargs="?", default="", help="what to go on with")
    parser.add_argument(
        "--length", type=number(int, "above 0"), default=40, help="most tokens (default: 40)"
    )
    parser.add_argument("--sample", action="store_true", help="draw words at random")
    parser.add_argument("--temperature", type=number(float, "above 0"), help="default: 1")
    parser.add_argument(
        "--top-k", type=number(int, "above 0"), help="draw from so many words only, the likeliest"
    )
    parser.add_argument(
        "--top-p",
        type=number(float, "in (0, 1]"),
        help="draw from the fewest words that have this probability together; with --top-k, among "
        "those words",
    )
    parser.add_argument("--seed", type=number(int, "at least 0"), help="of the draws")
    parser.add_argument("--revision", help="on the hub (default: its main branch)")
    options = parser.parse_args(arguments)
    search = choose_search(options)
    text = decode_line(os.fsencode(options.text), where="the text")
    writer = Writer.load(find_folder(options.model, FILES, revision=options.revision))
    (found,) = replace(writer, model=prepare(writer.model)).go_on(
        text, length=options.length, search=search
    )
    print(text + found)


def choose_search(options: argparse.Namespace) -> Search:
    """Make the search that the command line asks for."""
    knobs = ("temperature", "top_k", "top_p", "seed")
    given = [name for name in knobs if getattr(options, name) is not None]
    if not options.sample:
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} goes with --sample")
        return Greedy()
    dice = torch.Generator()
    dice.seed() if options.seed is None else dice.manual_seed(options.seed)
    return Sample(options.temperature or 1.0, options.top_k, options.top_p, dice)


if __name__ == "__main__":
    sys.exit(main())
