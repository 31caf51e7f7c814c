r"""Marian: the paper's Transformer, trained to translate by the University of Helsinki.

    python examples/pretrained/marian.py Helsinki-NLP/opus-mt-ja-en "猫が好きです。"
    python examples/pretrained/marian.py FOLDER --file sentences.txt

"OPUS-MT: Building open translation services for the World" (Tiedemann and Thottingal 2020,
https://aclanthology.org/2020.eamt-1.61) gives a thousand pairs of languages the model of figure 1,
trained with the program Marian (Junczys-Dowmunt et al. 2018, https://aclanthology.org/P18-4020).
The model is in ``marian_model.py``.

Next: ``gpt2.py``, a decoder alone.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from common.batching import group_by_length as by_length
from common.errors import UserError
from common.options import Parser, number
from common.program import run_program
from common.text_files import decode_line, read_lines
from pretrained.loading import WEIGHTS, Config, find_folder
from pretrained.marian_model import Marian, MarianSteps
from pretrained.sentence_pieces import END, PADDING, SentencePieces
from transformer_blocks import beam_search
from transformer_blocks.generation import Generation
from transformer_blocks.inference import prepare

FILES = ("config.json", "generation_config.json", WEIGHTS, "source.spm", "vocab.json")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedTranslator:
    """A Marian with its tokenizer.

    Attributes:
        model: In eval mode.
        tokenizer: Cuts what is read, and puts together what is written.
        beams: The beam size that the published settings ask for.
        length_penalty: The exponent of the length that they ask for; see :func:`write`.
        lookahead: Their stopping rule, as :func:`~transformer_blocks.beam_search` takes it.
        max_length: The most tokens of a translation that they ask for, if they ask for any.
    """

    model: Marian
    tokenizer: SentencePieces
    beams: int = 4
    length_penalty: float = 1.0
    lookahead: int | None = 0
    max_length: int | None = None

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "PublishedTranslator":
        """Read a published translator.

        Raises:
            UserError: If a file is missing or damaged, or they do not belong together.
        """
        tokenizer = SentencePieces.load(folder)
        model = Marian.load(folder, dtype=dtype)
        vocabulary = tokenizer.vocabulary
        for piece, wanted in ((PADDING, model.padding_id), (END, model.end_id)):
            if vocabulary[piece] != wanted:
                raise UserError(
                    f"{folder}: {piece} is {vocabulary[piece]} in vocab.json but {wanted} in "
                    "config.json"
                )
        if max(vocabulary.values()) >= len(model.embedding.weight):
            raise UserError(
                f"{folder / 'vocab.json'} has numbers beyond the {len(model.embedding.weight)} "
                "pieces of config.json"
            )
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
        """Translate sentences; those of like length share a batch.

        Args:
            sentences: What to translate. A blank one gives an empty translation; what is longer
                than the model's ``max_length`` is cut there.
            beams: The beam size; the published one if not given.
            length_penalty: See :func:`write`; the published one if not given.
            max_length: Most tokens of a translation, end mark included. If not given, the published
                one, or else about twice the tokens of the longest source in its batch.
            batch_tokens: Most source tokens of a batch, padding included.
        """
        model, most = self.model, self.model.max_length
        device = model.embedding.weight.device
        encoded = [self.tokenizer.encode(text) if text.strip() else [] for text in sentences]
        if too_long := sum(len(ids) > most for ids in encoded):
            log.warning(f"{too_long:,} sentences were cut: the model reads {most} tokens at most")
            encoded = [
                [*ids[: most - 1], model.end_id] if len(ids) > most else ids for ids in encoded
            ]
        rows_of_words = range(len(model.embedding.weight))
        suppressed = [number for number in rows_of_words if number not in self.tokenizer.pieces]
        translations = ["" for _ in encoded]
        for chosen in by_length([len(ids) for ids in encoded], batch_tokens):
            rows = [torch.tensor(encoded[place]) for place in chosen]
            source = pad_sequence(rows, batch_first=True, padding_value=model.padding_id)
            length = min(max_length or self.max_length or 2 * source.shape[1] + 10, most)
            found = write(
                model,
                source.to(device),
                beams=self.beams if beams is None else beams,
                length_penalty=self.length_penalty if length_penalty is None else length_penalty,
                lookahead=self.lookahead,
                max_length=length,
                suppressed=suppressed,
            )
            for place, sentence in zip(chosen, found, strict=True):
                translations[place] = self.tokenizer.decode(sentence.tokens)
        return translations


def read_search(folder: Path, model: Marian) -> dict[str, Any]:
    """Read the published settings of the search.

    They stand in ``generation_config.json``, or in ``config.json`` of older folders.

    Returns:
        Arguments of :class:`PublishedTranslator`.

    Raises:
        UserError: If they ask for a search that is not implemented here.
    """
    path = folder / "generation_config.json"
    config = Config(path if path.exists() else folder / "config.json", "marian")
    config.values = {name: each for name, each in config.values.items() if each is not None}
    config.expect(
        do_sample=False,
        num_beam_groups=1,
        min_length=0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        encoder_no_repeat_ngram_size=0,
        forced_eos_token_id=model.end_id,
        eos_token_id=model.end_id,
        decoder_start_token_id=model.padding_id,
        bad_words_ids=[[model.padding_id]],
        forced_bos_token_id=None,
        min_new_tokens=None,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        exponential_decay_length_penalty=None,
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
    elif "max_length" in config.values:  # which counts the first token, too
        found["max_length"] = config.size("max_length", least=2) - 1
    return found


@torch.inference_mode()
def write(
    model: Marian,
    source: Tensor,
    *,
    beams: int,
    length_penalty: float,
    max_length: int,
    lookahead: int | None = 0,
    suppressed: Sequence[int] = (),
) -> list[Generation]:
    """Write the best translation of each sentence, as ``generate`` of transformers does.

    Args:
        model: In eval mode.
        source: Padded ids, each sentence closed by the end mark. Shape (N, S).
        beams: The beam size.
        length_penalty: The log-probability is divided by the length, end mark included, raised to
            this power: 0 takes the likeliest translation, more favours longer ones.
        max_length: Most tokens of a translation, end mark included.
        lookahead: When the search is over; see :func:`~transformer_blocks.beam_search`.
        suppressed: Ids that are never written besides padding.
    """
    start = torch.full((len(source),), model.padding_id, device=source.device)
    found = beam_search(
        MarianSteps(model, source, max_length=max_length, suppressed=suppressed),
        start,
        beam_size=beams,
        end_id=model.end_id,
        max_length=max_length,
        length_penalty=lambda length: float(length**length_penalty),
        lookahead=lookahead,
    )
    return [best for (best,) in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: translate_lines(arguments))


def translate_lines(arguments: Sequence[str] | None) -> None:
    """Translate sentences from arguments or a file, line in, line out."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("sentences", nargs="*", help="what to translate")
    parser.add_argument("--file", type=Path, help="sentences, one a line")
    parser.add_argument("--beams", type=number(int, "above 0"), help="default: the model's")
    parser.add_argument(
        "--length-penalty", type=number(float, "in [0, 10]"), help="default: the model's"
    )
    parser.add_argument("--revision", help="on the hub (default: its main branch)")
    options = parser.parse_args(arguments)
    if bool(options.sentences) == bool(options.file):
        raise UserError("give either sentences or --file")
    lines = (
        read_lines(options.file)
        if options.file
        else [decode_line(os.fsencode(each), where="a sentence") for each in options.sentences]
    )
    translator = PublishedTranslator.load(
        find_folder(options.model, FILES, revision=options.revision)
    )
    vocabulary_size = len(translator.model.embedding.weight)
    beams = options.beams or translator.beams
    if beams > vocabulary_size:
        raise UserError(f"--beams must not exceed the {vocabulary_size} tokens, got {beams}")
    prepared = replace(translator, model=prepare(translator.model))
    for line in prepared.translate(lines, beams=beams, length_penalty=options.length_penalty):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
