"""Writing: a text goes on as the model thinks it might, drawn in one way or another."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from common.tokenizer import EOS, Tokenizer
from text.models import LanguageModel, TextSteps
from text.source import cleaned, decode_lines
from transformer_blocks import greedy_search, sample


@dataclass(frozen=True)
class Decoding:
    """A way to choose words; ``temperature`` None takes the likeliest each time."""

    title: str
    temperature: float | None = 1.0
    top_k: int | None = None
    top_p: float | None = None


def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    decoding: Decoding,
    *,
    length: int,
    count: int = 1,
    seed: int | None = None,
) -> list[str]:
    """Write texts that begin with a prompt.

    Args:
        model: In eval mode.
        tokenizer: Of the model.
        prompt: The beginning; may be empty, then a new line begins.
        decoding: How to choose tokens.
        length: Tokens to write.
        count: How many texts.
        seed: Of the dice; without, every call differs.

    Returns:
        The texts, each with its prompt.
    """
    device = next(model.parameters()).device
    begin = [EOS]
    for number, line in enumerate(prompt.split("\n")):
        begin += [EOS] * bool(number) + tokenizer.encode(cleaned(line))
    before = torch.tensor([begin[:-1]] * count, dtype=torch.int64, device=device)
    steps = TextSteps(model, before)
    start = torch.full((count,), begin[-1], device=device)
    if decoding.temperature is None:
        found = greedy_search(steps, start, end_id=None, max_length=length)
    else:
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
        found = sample(
            *(steps, start),
            end_id=None,
            max_length=length,
            temperature=decoding.temperature,
            top_k=decoding.top_k,
            top_p=decoding.top_p,
            generator=generator,
        )
    return [decode_lines([*begin[1:], *each.tokens], tokenizer) for each in found]


def side_by_side(titles: Sequence[str], texts: Sequence[str], *, width: int | None = None) -> str:
    """Set texts in columns beside each other.

    Args:
        titles: Above the columns.
        texts: Of any length; lines are broken between words.
        width: Letters of a line in all; that of the terminal if not given.

    Example:
        >>> print(side_by_side(["one", "two"], ["a cat sat", "a dog"], width=14))
        one     two
        ------  ------
        a cat   a dog
        sat
    """
    width = shutil.get_terminal_size((150, 24)).columns if width is None else width
    column = max(6, (width + 2) // len(texts) - 2)
    columns = []
    for title, text in zip(titles, texts, strict=True):
        lines = [part for line in text.split("\n") for part in textwrap.wrap(line, column) or [""]]
        columns.append([*textwrap.wrap(title, column), "-" * column, *lines])
    height = max(map(len, columns))
    rows = zip(*([*lines, *[""] * (height - len(lines))] for lines in columns), strict=True)
    return "\n".join("  ".join(cell.ljust(column) for cell in row).rstrip() for row in rows)
