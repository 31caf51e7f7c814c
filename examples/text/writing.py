"""Writing: continuing a prompt by greedy decoding or sampling."""

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
    """A decoding method; ``temperature`` None is greedy decoding."""

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
    """Generate texts that continue a prompt.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of the model.
        prompt: The prompt; if it is empty, a new line begins.
        decoding: The decoding method.
        length: Number of tokens to generate.
        count: Number of texts.
        seed: Seed of sampling; None gives other texts at each call.

    Returns:
        The texts, each with its prompt.
    """
    device = next(model.parameters()).device
    prompt_ids = [EOS]
    for number, line in enumerate(prompt.split("\n")):
        prompt_ids += [EOS] * bool(number) + tokenizer.encode(cleaned(line))
    prefix = torch.tensor([prompt_ids[:-1]] * count, dtype=torch.int64, device=device)
    steps = TextSteps(model, prefix)
    start = torch.full((count,), prompt_ids[-1], device=device)
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
    return [decode_lines([*prompt_ids[1:], *each.tokens], tokenizer) for each in found]


def side_by_side(titles: Sequence[str], texts: Sequence[str], *, width: int | None = None) -> str:
    """Format texts in columns side by side.

    Args:
        titles: The titles of the columns.
        texts: The texts; lines are broken between words.
        width: Number of characters of a line; that of the terminal by default.

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
