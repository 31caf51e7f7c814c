"""Decoding: loading a trained translator, and translating many sentences in a batch."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from common.batching import group_by_length, pad
from common.errors import UserError
from common.run import Run
from common.searches import Candidates, Search, most_probable
from common.terminal import counted
from common.tokenizer import BOS, EOS, Tokenizer
from transformer_blocks import record_attention
from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import logit_lens
from translation.presets import TranslatorConfig
from translation.transformer import Transformer
from translation.translator import Translator

log = logging.getLogger(__name__)

FIGURES = frozenset({"validation_bleu", "tokens_per_second"})
"""The metrics of a translator, besides those of every training."""


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


def load_translator(
    run: Run[TranslatorConfig], device: torch.device, *, last: int | None = None
) -> TrainedTranslator:
    """Load the best weights of a run, with both tokenizers.

    Args:
        run: The run.
        device: The device to compute on.
        last: Load the mean of the weights of this many checkpoints instead, the last ones.

    Raises:
        UserError: If the run is missing, unfinished or damaged.
    """
    config = run.read_config()
    source, target = run.load_tokenizers(config)
    model = config.build(source.vocab_size, target.vocab_size)
    model = run.load_best(model, config, last=last)
    return TrainedTranslator(config, model.to(device), source, target)


def check_transformer(
    run: Run[TranslatorConfig], trained: TrainedTranslator, done: str
) -> Transformer:
    """Return the model of a run, which is to be exported or compiled.

    Raises:
        UserError: If it is no Transformer.
    """
    if not isinstance(trained.model, Transformer):
        raise UserError(
            f"only a Transformer can be {done}, and {run.folder} holds a recurrent model "
            f"({trained.config.model})"
        )
    return trained.model


class Decodable(Protocol):
    """What sentences are decoded with: a translator, or an exported one.

    Attributes:
        max_length: Maximum number of tokens of a sentence, on either side.
    """

    max_length: int

    def begin(self, source: Tensor) -> StepModel:
        """Encode sentences; see :meth:`~translation.translator.Translator.begin`."""


Decoder = Callable[[Sequence[Sequence[int]]], list[list[Generation]]]
"""Function from the token ids of sentences to the sequences found for each, best first."""


def decoder_of(model: Decodable, search: Search, device: torch.device | str = "cpu") -> Decoder:
    """Make the decoder of a model in evaluation mode on a device, with one of our searches."""

    def decode(sources: Sequence[Sequence[int]]) -> list[list[Generation]]:
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
) -> list[list[Generation]]:
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
        The translations of each sentence, best first.
    """
    most = max_length - 1  # leaves room for the end token
    encoded = tokenizer.encode_many(sentences)
    if too_long := sum(len(ids) > most for ids in encoded):
        log.warning(f"{counted(too_long, 'sentence')} truncated to the model's {most} tokens")
        encoded = [ids[:most] for ids in encoded]
    translations = [[Generation([], 0.0, finished=True)] for _ in encoded]
    for chosen in group_by_length([len(ids) + 1 if ids else 0 for ids in encoded], batch_tokens):
        for i, found in zip(chosen, decode([encoded[i] for i in chosen]), strict=True):
            translations[i] = found
        progress(len(chosen))
    return translations


def translate(
    trained: TrainedTranslator, sentences: Sequence[str], *, search: Search, **options: Any
) -> list[str]:
    """Return the best translation of each sentence.

    Args:
        trained: The translator; its model is in evaluation mode meanwhile.
        sentences: Cleaned source sentences.
        search: The search, such as :class:`common.searches.Beam`.
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
    return [target.decode(best.tokens) for best, *_ in found]


class AttentionRecord(NamedTuple):
    """The attention weights and the most probable tokens of the decoding of one sentence.

    Attributes:
        translation: The translation.
        ids: The ids of the L target tokens.
        source: The S source tokens, the end token included.
        target: The L target tokens, the end token included if it was generated.
        decoder_input: The L tokens that the decoder reads: the begin token, and all but the last
            target token.
        inputs: The token ids of the source, of shape (1, S), and of the decoder's input, (1, L).
        weights: The attention weights of each layer, by its name, of shape (H, queries, keys).
            Empty for a model without attention.
        candidates: For each target token, the most probable tokens at its position, with their
            probabilities.
        layers: For each layer of the decoder, such candidates as its output would give (the logit
            lens, :func:`~transformer_blocks.inspection.logit_lens`). None for a model without
            decoder layers.
    """

    translation: str
    ids: Sequence[int]
    source: list[str]
    target: list[str]
    decoder_input: list[str]
    inputs: list[Tensor]
    weights: dict[str, Tensor]
    candidates: Candidates
    layers: list[Candidates] | None


@torch.inference_mode()
def translate_with_attention(
    trained: TrainedTranslator, sentence: str, *, search: Search
) -> AttentionRecord:
    """Translate one sentence and record the attention weights of every layer.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        search: The decoding algorithm and its options.
    """
    decode = decoder_of(trained.model, search, next(trained.model.parameters()).device)
    ((best, *_),) = decode([_source_ids(trained, sentence)[:-1]])
    target = [*best.tokens, EOS] if best.finished else best.tokens
    return attention_with_teacher_forcing(trained, sentence, target)


@torch.inference_mode()
def attention_with_teacher_forcing(
    trained: TrainedTranslator, sentence: str, target: Sequence[int]
) -> AttentionRecord:
    """Record the attention weights of one forward pass over a known translation.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        target: The token ids of the translation, usually with the end token.
    """
    _, model, source_tokenizer, target_tokenizer = trained
    device = next(model.parameters()).device
    source = _source_ids(trained, sentence)
    given = [BOS, *target[:-1]]
    inputs = [torch.tensor([ids], device=device) for ids in (source, given)]
    maps: dict[str, list[Tensor]] = {}
    lens: list[list[Tensor]] = []
    with ExitStack() as stack:
        if model.cross_attentions:  # not if the context is one fixed vector
            maps = stack.enter_context(record_attention(model, device="cpu"))
        if model.decoder_layers:
            lens = stack.enter_context(logit_lens(model.decoder_layers, model.read_layer))
        logits = model(*inputs)
    return AttentionRecord(
        translation=target_tokenizer.decode(target),
        ids=target,
        source=source_tokenizer.subwords(source),
        target=target_tokenizer.subwords(target),
        decoder_input=target_tokenizer.subwords(given),
        inputs=inputs,
        weights={name: calls[0][0] for name, calls in maps.items()},
        candidates=most_probable(logits[0].float().softmax(-1), target_tokenizer.subwords),
        layers=[most_probable(calls[0][0], target_tokenizer.subwords) for calls in lens] or None,
    )


def _source_ids(trained: TrainedTranslator, sentence: str) -> list[int]:
    """Return the token ids of a sentence, truncated to the model's length, with the end token."""
    ids, most = trained.source.encode(sentence), trained.model.max_length - 1
    if len(ids) > most:
        log.warning(f"the sentence was truncated to the model's {most} tokens")
    return [*ids[:most], EOS]


def length_limit(max_length: int, source_length: int) -> int:
    """Return the maximum number of target tokens: twice the source's plus ten, or the model's.

    Padding does not count, so that a translation does not depend on the rest of its batch.
    """
    return min(2 * (source_length + 1) + 10, max_length)
