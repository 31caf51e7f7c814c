"""Writing: continuing prompts by greedy decoding or sampling."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from common.batching import group_by_length
from common.searches import row_generators
from common.tokenizer import EOS, Tokenizer
from text.models import LanguageModel, TextSteps
from text.source import cleaned, decode_lines
from transformer_blocks import greedy_search, sample
from transformer_blocks.generation import left_pad

BATCH_TOKENS = 2**15
"""Maximum number of tokens of a batch, with padding and generated ones."""


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
    prompts: Sequence[str],
    decoding: Decoding,
    *,
    length: int,
    count: int = 1,
    seed: int | None = None,
) -> list[list[str]]:
    """Generate texts that continue prompts.

    A text depends on its prompt, the seed and its number among the texts of the prompt, but not on
    the other prompts.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of the model.
        prompts: The prompts; where one is empty, a new line begins. Those of similar length share a
            batch.
        decoding: The decoding method.
        length: Number of tokens to generate.
        count: Number of texts for each prompt.
        seed: Seed of sampling; None gives other texts at each call.

    Returns:
        The texts of each prompt, each with its prompt.
    """
    device = next(model.parameters()).device
    rows = [ids for prompt in prompts for ids in [_encode(prompt, tokenizer)] * count]
    generators = row_generators(seed, len(prompts), count)
    texts = [""] * len(rows)
    for chosen in group_by_length([len(ids) + length for ids in rows], BATCH_TOKENS):
        tokens, lengths = left_pad([rows[row][:-1] for row in chosen])
        steps = TextSteps(model, tokens.to(device), lengths=lengths)
        start = torch.tensor([rows[row][-1] for row in chosen], device=device)
        if decoding.temperature is None:
            found = greedy_search(steps, start, end_id=None, max_length=length)
        else:
            found = sample(
                *(steps, start),
                end_id=None,
                max_length=length,
                temperature=decoding.temperature,
                top_k=decoding.top_k,
                top_p=decoding.top_p,
                generator=[generators[row] for row in chosen],
            )
        for row, each in zip(chosen, found, strict=True):
            texts[row] = decode_lines([*rows[row][1:], *each.tokens], tokenizer)
    return [texts[first : first + count] for first in range(0, len(texts), count)]


def _encode(prompt: str, tokenizer: Tokenizer) -> list[int]:
    """Encode the lines of a prompt, after the end of a line before it."""
    ids: list[int] = []
    for line in prompt.split("\n"):
        ids += [EOS, *tokenizer.encode(cleaned(line))]
    return ids


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
