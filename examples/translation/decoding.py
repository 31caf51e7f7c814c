"""Decoding: loading a trained translator, and translating many sentences in a batch."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from common.batching import group_by_length, pad
from common.run import Run
from common.searches import Search
from common.terminal import counted
from common.tokenizer import BOS, EOS, Tokenizer
from transformer_blocks.generation import Generation, StepModel
from translation.presets import TranslatorConfig
from translation.translator import Translator

log = logging.getLogger(__name__)


class TrainedTranslator(NamedTuple):
    """A translator that was trained, with all that is needed to use it.

    Attributes:
        config: The configuration of its run.
        model: The model, in evaluation mode.
        source: The tokenizer of the source language.
        target: The tokenizer of the target language.
    """

    config: TranslatorConfig
    model: Translator
    source: Tokenizer
    target: Tokenizer


def load_translator(run: Run[TranslatorConfig], device: torch.device) -> TrainedTranslator:
    """Load the best weights of a run, with both tokenizers.

    Args:
        run: The run.
        device: The device to compute on.

    Raises:
        UserError: If the run is missing, unfinished or damaged.
    """
    config, model, (source, target) = run.load(device)
    return TrainedTranslator(config, model, source, target)


class Decodable(Protocol):
    """What sentences are decoded with: a translator, or an exported one.

    Attributes:
        max_length: Maximum number of tokens of a sentence, on either side.
    """

    max_length: int

    def begin(self, source: Tensor) -> StepModel:
        """Encode sentences; see :meth:`~translation.translator.Translator.begin`."""


Decoder = Callable[[Sequence[Sequence[int]]], list[Generation]]
"""Function from the token ids of sentences to the sequence found for each."""


def decoder_of(model: Decodable, search: Search, device: torch.device | str = "cpu") -> Decoder:
    """Make the decoder of a model in evaluation mode on a device, with one of our searches."""

    def decode(sources: Sequence[Sequence[int]]) -> list[Generation]:
        return search(
            model.begin(pad([[*ids, EOS] for ids in sources]).to(device)),
            torch.full((len(sources),), BOS, device=device),
            end_id=EOS,
            max_length=[length_limit(model.max_length, len(ids)) for ids in sources],
        )

    return decode


@torch.inference_mode()
def decode_sentences(
    decode: Decoder,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    max_length: int,
    batch_tokens: int = 1024,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Generation]:
    """Translate sentences into token ids, in batches of similar length.

    Results come in the caller's order. A sentence without any token, such as an empty line, has one
    empty translation. A sentence longer than ``max_length`` is truncated.

    Args:
        decode: The decoder.
        tokenizer: Tokenizer of the source language.
        sentences: Cleaned source sentences.
        max_length: Maximum number of source tokens, the end token included.
        batch_tokens: Maximum number of source tokens of a batch, padding included; a longer
            sentence is a batch of its own.
        progress: Called with the number of sentences of each finished batch.

    Returns:
        The translation of each sentence.
    """
    most = max_length - 1  # leaves room for the end token
    encoded = tokenizer.encode_many(sentences)
    if too_long := sum(len(ids) > most for ids in encoded):
        log.warning(f"{counted(too_long, 'sentence')} truncated to the model's {most} tokens")
        encoded = [ids[:most] for ids in encoded]
    translations = [Generation([], 0.0, finished=True) for _ in encoded]
    for chosen in group_by_length([len(ids) + 1 if ids else 0 for ids in encoded], batch_tokens):
        for i, found in zip(chosen, decode([encoded[i] for i in chosen]), strict=True):
            translations[i] = found
        progress(len(chosen))
    return translations


def translate(
    trained: TrainedTranslator, sentences: Sequence[str], *, search: Search, **options: Any
) -> list[str]:
    """Translate sentences.

    Args:
        trained: The translator; its model is in evaluation mode meanwhile.
        sentences: Cleaned source sentences.
        search: The search, such as :func:`common.searches.beam`.
        options: Other arguments of :func:`decode_sentences`.
    """
    _, model, source, target = trained
    decode = decoder_of(model, search, next(model.parameters()).device)
    was_training = model.training
    model.eval()
    try:
        found = decode_sentences(decode, source, sentences, max_length=model.max_length, **options)
    finally:
        model.train(was_training)
    return [target.decode(each.tokens) for each in found]


def length_limit(max_length: int, source_length: int) -> int:
    """Return the maximum number of target tokens: twice the source's plus ten, or the model's.

    Padding does not count, so that a translation does not depend on the rest of its batch.
    """
    return min(2 * (source_length + 1) + 10, max_length)
