r"""Generate text with a published decoder-only model: GPT-2, Llama, Qwen3, Qwen3-MoE or Gemma 3.

    python examples/pretrained/generate.py openai-community/gpt2 "The cat sat"
    python examples/pretrained/generate.py Qwen/Qwen3-0.6B-Base "The cat sat" \
        --length 80 --sample --top-p 0.9 --seed 1
    python examples/pretrained/generate.py FOLDER "The cat" "Once upon a time"

Decoding is greedy; with ``--sample``, tokens are drawn at random by their probabilities. The model
processes the prompts in one pass (prefill). Each decoding step then processes only the newest token
of each text, which attends to the cached keys and values of all earlier ones. Prompts of different
lengths share a batch, which takes a fraction of the time, and each is continued as if it were
alone. The models are in
``gpt2_model.py``, ``llama_model.py``, ``qwen3_model.py``, ``qwen3_moe_model.py`` and
``gemma3_model.py``.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.errors import UserError
from common.options import Count, Flag, SamplingOptions, Words, parse
from common.program import run_program
from pretrained.arguments import ModelOptions


@dataclass(frozen=True)
class Generate(SamplingOptions, ModelOptions):
    """The options of the command line.

    Attributes:
        prompts: The prompts (default: a new text begins).
        length: Maximum number of tokens to generate.
        sample: Sample tokens by their probabilities.
        program: File of a compiled program, which is executed; it is written first if there is
            none, which takes some minutes (default: none).
    """

    prompts: Words = ()
    length: Count = field(default=40, kw_only=True)
    sample: Flag = field(default=False, kw_only=True)
    program: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check that options of sampling are not combined with greedy decoding."""
        if not self.sample:
            self.check_greedy("requires --sample")
        elif self.program:
            raise UserError("--program decodes greedily, and cannot be combined with --sample")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Generate)))


def run(options: Any) -> None:
    """Run the program with the options of the command line."""
    from pretrained.generator import print_continuations  # only now: it imports torch

    print_continuations(options)


if __name__ == "__main__":
    sys.exit(main())
