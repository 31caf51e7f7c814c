"""Translator: translate with Marian, as it is published.

Next: ``marian.py``, the program.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from torch import Tensor

from common.batching import group_by_length
from common.errors import UserError
from common.terminal import counted
from pretrained.arguments import check_beam
from pretrained.batches import check_ids
from transformer_blocks import beam_search
from transformer_blocks.generation import Generation
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.language_model import suppress_unused
from transformer_blocks.pretrained.loading import Config, find_folder
from transformer_blocks.pretrained.marian import Marian
from transformer_blocks.pretrained.sentence_pieces import SentencePieces
from transformer_blocks.pretrained.weights import FILES as WEIGHT_FILES

FILES = ("config.json", "generation_config.json", *WEIGHT_FILES, "source.spm", "vocab.json")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedTranslator:
    """A Marian with its tokenizer.

    Attributes:
        model: The translation model, in evaluation mode.
        tokenizer: The tokenizer of source and target.
        beams: Published beam size.
        length_penalty: Published exponent of the length; see :func:`generate`.
        lookahead: Published stopping rule, as the argument of
            :func:`~transformer_blocks.beam_search`.
        max_length: Published maximum number of tokens of a translation, if there is one.
    """

    model: Marian
    tokenizer: SentencePieces
    beams: int = 4
    length_penalty: float = 1.0
    lookahead: int | None = 0
    max_length: int | None = None

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "PublishedTranslator":
        """Load a published translation model.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or the files do not belong together.
        """
        model_class = Config(folder / "config.json").choice("model_type", {"marian": Marian})
        tokenizer, model = SentencePieces.load(folder), model_class.load(folder, dtype=dtype)
        embedding = model.target_embedding.weight
        check_ids(folder, tokenizer.tokens, embedding)
        suppress_unused(model, embedding, tokenizer.tokens)
        return cls(model, tokenizer, **read_search(folder, model))

    def translate(
        self,
        sentences: Sequence[str],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        batch_tokens: int = 1024,
    ) -> list[str]:
        """Translate sentences; those of similar length share a batch.

        Args:
            sentences: Source sentences. A blank one gives an empty translation. One that is longer
                than the model's ``max_length`` is truncated.
            beams: Beam size; the published one if ``None``.
            length_penalty: Exponent of the length; the published one if ``None``. See
                :func:`generate`.
            max_length: Maximum number of tokens of a translation, end token included; if ``None``,
                the published one, or else about twice that of the longest source in the batch.
            batch_tokens: Maximum number of source tokens of a batch, padding included.

        Returns:
            A translation for each sentence, in the same order.
        """
        model, longest = self.model, self.model.max_length
        encoded = [self.tokenizer.encode(text) if text.strip() else [] for text in sentences]
        if too_long := sum(len(ids) > longest for ids in encoded):
            log.warning(
                f"{counted(too_long, 'sentence')} truncated to the model's {longest} tokens"
            )
            encoded = [
                [*ids[: longest - 1], model.end_id] if len(ids) > longest else ids
                for ids in encoded
            ]
        translations = ["" for _ in encoded]
        for chosen in group_by_length([len(ids) for ids in encoded], batch_tokens):
            sources = [encoded[index] for index in chosen]
            length = max_length or self.max_length or 2 * max(map(len, sources)) + 10
            found = generate(
                model,
                sources,
                beams=self.beams if beams is None else beams,
                length_penalty=self.length_penalty if length_penalty is None else length_penalty,
                lookahead=self.lookahead,
                max_length=min(length, longest),
            )
            for index, hypothesis in zip(chosen, found, strict=True):
                translations[index] = self.tokenizer.decode(hypothesis.tokens)
        return translations


def read_search(folder: Path, model: Marian) -> dict[str, Any]:
    """Read the published settings of beam search.

    Older folders have them in ``config.json`` instead of ``generation_config.json``.

    Returns:
        Arguments of :class:`PublishedTranslator`.

    Raises:
        UserError: If a setting is not implemented here.
    """
    path = folder / "generation_config.json"
    config = Config(path if path.exists() else folder / "config.json", "marian")
    config.values = {name: each for name, each in config.values.items() if each is not None}
    config.expect(
        do_sample=False,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        forced_eos_token_id=model.end_id,
        eos_token_id=model.end_id,
        decoder_start_token_id=model.padding_id,
        bad_words_ids=[[model.padding_id]],
    )
    found: dict[str, Any] = {
        "beams": config.size("num_beams", PublishedTranslator.beams),
        "length_penalty": config.number("length_penalty", 1.0, zero=True),
    }
    if found["length_penalty"] > 10.0:
        raise UserError(f"{config.path}: length_penalty must be in [0, 10]")
    rules = {"true": None, "false": 0, '"never"': model.max_length}
    early_stopping = json.dumps(config.values.get("early_stopping", False))
    if early_stopping not in rules:
        raise UserError(
            f"{config.path}: early_stopping must be one of {', '.join(rules)}, got {early_stopping}"
        )
    found["lookahead"] = rules[early_stopping]
    if "max_new_tokens" in config.values:
        found["max_length"] = config.size("max_new_tokens")
    elif "max_length" in config.values:  # counts the start token, too
        found["max_length"] = config.size("max_length", least=2) - 1
    return found


@torch.inference_mode()
def generate(
    model: Marian,
    sources: Sequence[Sequence[int]],
    *,
    beams: int,
    length_penalty: float,
    max_length: int,
    lookahead: int | None = 0,
) -> list[Generation]:
    """Generate the best translation of each sentence, as ``generate`` of transformers does.

    Args:
        model: The translation model, in evaluation mode.
        sources: Token ids of each sentence, the end token last.
        beams: Beam size.
        length_penalty: Exponent of the length by which a log-probability is divided; the length
            includes the end token. 0 ranks hypotheses by probability alone; a larger value favours
            longer ones.
        max_length: Maximum number of tokens of a translation, end token included.
        lookahead: Stopping rule; see :func:`~transformer_blocks.beam_search`.

    Returns:
        The best hypothesis of each sentence.
    """
    steps, start = model.start(sources)

    def output(hidden: Tensor) -> Tensor:
        logits = model.output(hidden)
        # The cache counts a token once its step has ended. The last is the end token for certain.
        if steps.cache.length == max_length - 1:
            logits.fill_(-math.inf)[:, model.end_id] = 0.0
        return logits

    steps.output = output
    found = beam_search(
        steps,
        start,
        beam_size=beams,
        end_id=model.end_id,
        max_length=max_length,
        length_penalty=lambda length: float(length**length_penalty),
        lookahead=lookahead,
    )
    return [best for (best,) in found]


def translate_lines(options: Any) -> None:
    """Print the translations of sentences from the arguments or a file, one per line."""
    lines = options.read_texts()
    translator = PublishedTranslator.load(
        find_folder(options.model, FILES, revision=options.revision)
    )
    beams = options.beam or translator.beams
    check_beam(beams, len(translator.model.target_embedding.weight))
    prepared = replace(translator, model=prepare(translator.model))
    for line in prepared.translate(lines, beams=beams, length_penalty=options.length_penalty):
        print(line)
