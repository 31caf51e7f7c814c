"""Engines: faster ways to decode with a trained Transformer on a CPU.

A program is the whole step of greedy decoding or beam search, compiled ahead of time into a file
(:func:`transformer_blocks.inference.save_program`). CTranslate2 is an engine of its own, for which
the model is exported once.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import UserError
from common.run import Run
from common.searches import Beam
from common.tokenizer import EOS
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.generation import Generation, IncrementalDecoder
from transformer_blocks.inference import load_program, prepare, save_program
from translation.decoding import Decoder
from translation.exporting import PACKAGES, check_transformer, export, folder_of, hash_of
from translation.presets import Config
from translation.run import TrainedTranslator

log = logging.getLogger(__name__)


def compile_search(
    run: Run[Config], trained: TrainedTranslator, output: Path, *, beam_size: int, int8: bool
) -> None:
    """Compile the search of a translator on the CPU, and save it as a program.

    Raises:
        UserError: If the model is no Transformer, or cannot be compiled on this machine.
    """
    check_transformer(run, trained, "compiled")
    with torch.no_grad():
        model = prepare(trained.model, int8=int8).begin(torch.tensor([[EOS]]))
    assert isinstance(model, IncrementalDecoder)
    try:
        save_program(model, output, beam_size=beam_size, end_id=EOS)
    except RuntimeError as error:
        raise UserError(str(error)) from error


class ProgramSearch:
    """The search of a program, which is loaded and executed.

    Args:
        file: The file of the program, whose end token is that of the tokenizers.
        beam_size: The beam size that it must have; None for any.
        length_penalty: Exponent of the length penalty; larger values favour longer sequences.
        n_best: Number of sequences to return for each start.

    Raises:
        UserError: If the program cannot be used here, or has another beam size.
    """

    def __init__(
        self, file: Path, beam_size: int | None, length_penalty: float, n_best: int
    ) -> None:
        try:
            self.program = load_program(file)
        except (FileNotFoundError, ValueError) as error:
            raise UserError(f"--program: {error}") from error
        if beam_size not in (None, self.program.beam_size):
            raise UserError(
                f"--beam must be that of the program {file}, {self.program.beam_size}, "
                f"got {beam_size}"
            )
        self.file = file
        self.options: dict[str, Any] = {"length_penalty": length_penalty, "n_best": n_best}

    def __call__(
        self, model: IncrementalDecoder, start: Tensor, *, end_id: int, max_length: list[int]
    ) -> list[list[Generation]]:
        """Return the best hypotheses for each start.

        Raises:
            UserError: If the program was made for other weights.
        """
        try:
            return self.program.search(model, start, max_length=max_length, **self.options)
        except ValueError as error:
            raise UserError(f"--program {self.file}: {error}") from error


def load_exported(
    run: Run[Config], trained: TrainedTranslator, search: Beam, *, int8: bool
) -> Decoder:
    """Load CTranslate2 with the weights of a translator, which are exported if they have changed.

    Raises:
        UserError: If the model is no Transformer, or the run's folder cannot be written to.
        ModuleNotFoundError: If the package is not installed.
    """
    check_packages("--engine ctranslate2", *PACKAGES["ctranslate2"], extra="export")
    folder = folder_of(run, "ctranslate2", int8=int8)
    exported = None
    if (folder / "export.json").exists():
        exported = json.loads((folder / "export.json").read_text(encoding="utf-8"))["weights"]
    if exported != hash_of(trained.model):
        if exported is not None:
            shutil.rmtree(folder)
        export(run, trained, "ctranslate2", folder, int8=int8)
        log.info("exported the model to %s", folder)
    from translation.ctranslate2_export import load_ctranslate2  # only now: it needs the package

    return load_ctranslate2(trained, folder, search)
