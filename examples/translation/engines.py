"""Programs: a trained Transformer and its search, compiled ahead of time into a file.

See :func:`transformer_blocks.inference.save_program`. A program decodes faster on a CPU.
"""

from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.run import Run
from common.searches import Beam
from common.tokenizer import EOS
from transformer_blocks.generation import Generation
from transformer_blocks.inference import load_program, save_program
from translation.decoding import Decoder, length_limit
from translation.presets import Config
from translation.run import TrainedTranslator, check_transformer


def compile_search(
    run: Run[Config], trained: TrainedTranslator, output: Path, *, beam_size: int, int8: bool
) -> None:
    """Compile a translator and its search on the CPU, and save them as a program.

    Raises:
        UserError: If the model is no Transformer, or cannot be compiled on this machine.
    """
    model = check_transformer(run, trained, "compiled")
    try:
        save_program(model, output, beam_size=beam_size, end_id=EOS, int8=int8)
    except RuntimeError as error:
        raise UserError(str(error)) from error


def load_compiled(
    run: Run[Config], trained: TrainedTranslator, file: Path, search: Beam, beam_size: int | None
) -> Decoder:
    """Load a program, and return its decoder.

    Args:
        run: The run.
        trained: The translator that the program must have been made of.
        file: The file of the program, whose end token is that of the tokenizers.
        search: Length penalty and number of sequences for each source.
        beam_size: The beam size that it must have; None for any.

    Raises:
        UserError: If the program cannot be used here, or has another beam size.
    """
    model = check_transformer(run, trained, "decoded by a program")
    try:
        program = load_program(file, model=model)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"--program: {error}") from error
    if beam_size not in (None, program.beam_size):
        raise UserError(
            f"--beam must be that of the program {file}, {program.beam_size}, got {beam_size}"
        )
    if search.n_best > program.beam_size:
        raise UserError(
            f"--n-best must not exceed the beam size of the program {file}, {program.beam_size}, "
            f"got {search.n_best}"
        )

    def decode(sources: Sequence[Sequence[int]]) -> list[list[Generation]]:
        return program.generate(
            [[*ids, EOS] for ids in sources],
            max_length=[length_limit(model.max_length, len(ids)) for ids in sources],
            length_penalty=search.length_penalty,
            n_best=search.n_best,
        )

    return decode
