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
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from pretrained.loading import WEIGHTS, Config, find_folder
from pretrained.marian_model import Marian, MarianSteps
from pretrained.sentence_pieces import END, PADDING, SentencePieces
from transformer_blocks import Generation, beam_search, pack
from translation.arguments import Parser, number
from translation.corpus import decode_line, read_lines
from translation.decoding import by_length
from translation.errors import UserError
from translation.program import run_program

FILES = ("config.json", "generation_config.json", WEIGHTS, "source.spm", "vocab.json")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedTranslator:
    """A Marian with its tokenizer.

    Attributes:
        model: In eval mode.
        tokenizer: Cuts what is read, and puts together what is written.
        beams: How many beginnings its makers advise to follow.
    """

    model: Marian
    tokenizer: SentencePieces
    beams: int = 4

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
        advice = folder / "generation_config.json"
        advice = advice if advice.exists() else folder / "config.json"
        beams = Config(advice, "marian").size("num_beams", cls.beams)
        return cls(model, tokenizer, beams)

    def translate(
        self,
        sentences: Sequence[str],
        *,
        beams: int | None = None,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        batch_tokens: int = 1024,
    ) -> list[str]:
        """Translate sentences; those of like length share a batch.

        Args:
            sentences: What to translate. A blank one gives an empty translation; what is longer
                than the model's ``max_length`` is cut there.
            beams: How many beginnings to follow; what the model's makers advise if not given.
            length_penalty: See :func:`best`.
            max_length: Most tokens of a translation, end mark included; about twice those of the
                longest source in its batch if not given.
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
        translations = ["" for _ in encoded]
        for chosen in by_length([len(ids) for ids in encoded], batch_tokens):
            rows = [torch.tensor(encoded[place]) for place in chosen]
            source = pad_sequence(rows, batch_first=True, padding_value=model.padding_id)
            length = min(max_length or 2 * source.shape[1] + 10, most)
            found = write(
                model,
                source.to(device),
                beams=self.beams if beams is None else beams,
                length_penalty=length_penalty,
                max_length=length,
            )
            for place, sentence in zip(chosen, found, strict=True):
                translations[place] = self.tokenizer.decode(sentence.tokens)
        return translations


@torch.inference_mode()
def write(
    model: Marian, source: Tensor, *, beams: int, length_penalty: float, max_length: int
) -> list[Generation]:
    """Write the best translation of each sentence.

    The search is over once as many translations have ended as there are beams, as ``generate`` of
    Hugging Face's transformers does with ``early_stopping=True``.

    Args:
        model: In eval mode.
        source: Padded ids, each sentence closed by the end mark. Shape (N, S).
        beams: How many beginnings to follow.
        length_penalty: See :func:`best`.
        max_length: Most tokens of a translation, end mark included.
    """
    start = torch.full((len(source),), model.padding_id, device=source.device)
    found = beam_search(
        MarianSteps(model, source, max_length=max_length),
        start,
        beam_size=beams,
        end_id=model.end_id,
        max_length=max_length,
        length_penalty=length_penalty,
        n_best=beams,  # all, for their ranks here are others
    )
    return [best(sentences, length_penalty) for sentences in found]


def best(sentences: Sequence[Generation], length_penalty: float) -> Generation:
    """Choose a translation as Marian does: by log-probability over length, end mark included.

    Args:
        sentences: What was found for one source.
        length_penalty: The power that the length is raised to; 0 takes the likeliest, 1 the one
            with the likeliest words, more favours longer ones.
    """
    return max(sentences, key=lambda each: each.score / (len(each.tokens) + 1) ** length_penalty)


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
    parser.add_argument("--length-penalty", type=number(float, "in [0, 10]"), default=1.0)
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
    packed = replace(translator, model=pack(translator.model))
    for line in packed.translate(lines, beams=beams, length_penalty=options.length_penalty):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
