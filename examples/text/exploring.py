"""Exploring: a page with all attention weights of a text, and with the model to continue others."""

from dataclasses import replace
from pathlib import Path

import torch

from common.searches import most_probable
from common.tokenizer import EOS, Tokenizer
from text.models import TextModel
from text.source import decode_lines
from text.writing import encode_prompt
from transformer_blocks import greedy_search
from transformer_blocks.explorer import DecodingSteps, LiveModel
from transformer_blocks.explorer import explore as explore_model
from transformer_blocks.inspection import logit_lens

SHOWN = 40
"""Maximum number of tokens that the page generates."""


@torch.no_grad()
def explore(model: TextModel, tokenizer: Tokenizer, prompt: str, path: Path, *, length: int) -> str:
    """Continue a prompt greedily and write a page with the attention weights of all tokens.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer of the model.
        prompt: The prompt; a new line begins where it is empty.
        path: The page to write.
        length: Number of tokens to generate. If the text is longer than the model's context, its
            end is shown.

    Returns:
        The title of the page: the text.
    """
    ids = encode_prompt(prompt, tokenizer)
    (found,) = model.generate([ids], greedy_search, end_id=None, max_length=length)
    tokens = [*ids, *found.tokens]
    title = decode_lines(tokens[1:], tokenizer)
    *read, _ = tokens = tokens[-model.context - 1 :]
    decoder, inputs = model.decoder, torch.tensor([read], device=model.embedding.weight.device)

    def predict(x: torch.Tensor) -> torch.Tensor:
        return model.output(x if decoder.norm is None else decoder.norm(x))

    with logit_lens(list(decoder.layers), predict) as lens:
        page = explore_model(model, inputs, tokens=tokenizer.subwords(read), title=title)
    layers = [most_probable(calls[0][0], tokenizer.subwords) for calls in lens]
    decoding = DecodingSteps(tokenizer.subwords(tokens[1:]), layers[-1], layers)
    live = LiveModel(
        model,
        [tokenizer.model],
        end_id=EOS,
        max_length=SHOWN,
        language="en",
        characters="".join(tokenizer.vocabulary),
    )
    maps = [replace(page.maps[0], is_decoding=True)]
    replace(page, maps=maps, decoding=decoding, text=prompt, live=live).save(path)
    return title
