"""Writing: continuing prompts by greedy decoding or sampling."""

from collections.abc import Sequence

from common.batching import group_by_length
from common.searches import Search
from common.text_files import clean_text
from common.tokenizer import EOS, Tokenizer
from text.models import TextModel
from text.source import decode_lines

BATCH_TOKENS = 2**15
"""Maximum number of tokens of a batch, with padding and generated ones."""


def generate(
    model: TextModel,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    search: Search,
    *,
    length: int,
) -> list[str]:
    """Generate texts that continue prompts.

    A text depends on its prompt and the seed of the search, but not on the other prompts.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of the model.
        prompts: The prompts; where one is empty, a new line begins. Those of similar length share a
            batch.
        search: The decoding method.
        length: Number of tokens to generate.

    Returns:
        The text of each prompt, the prompt included.
    """
    rows = [encode_prompt(prompt, tokenizer) for prompt in prompts]
    texts = [""] * len(rows)
    for chosen in group_by_length([len(ids) + length for ids in rows], BATCH_TOKENS):
        limits = [length] * len(chosen)
        found = model.generate([rows[i] for i in chosen], search, end_id=None, max_length=limits)
        for row, generation in zip(chosen, found, strict=True):
            texts[row] = decode_lines([*rows[row][1:], *generation.tokens], tokenizer)
    return texts


def encode_prompt(prompt: str, tokenizer: Tokenizer) -> list[int]:
    """Encode the lines of a prompt, after the end of a line before it."""
    ids: list[int] = []
    for line in prompt.split("\n"):
        text = clean_text(line, "en")
        tokenizer.warn_of_unknown([text])
        ids += [EOS, *tokenizer.encode(text)]
    return ids
