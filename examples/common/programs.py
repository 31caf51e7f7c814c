"""Programs: language models that are compiled into a file, for greedy decoding on a CPU."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from transformer_blocks import LanguageModel
from transformer_blocks.generation import Generation
from transformer_blocks.inference import load_program, save_program


class CompiledModel:
    """What decodes with a program instead of its model; the file is written if there is none.

    Args:
        model: The trained model.
        file: The file of the program. It is executed.
        end_id: Ids of the end tokens; None if there are none.

    Raises:
        UserError: If the model cannot be compiled, or the file is no program of it.
    """

    def __init__(self, model: LanguageModel, file: Path, *, end_id: Collection[int] | None) -> None:
        try:
            if not file.exists():
                print(f"Compiling {file} takes some minutes.", flush=True)
                save_program(model, file, end_id=end_id)
            self.program = load_program(file, model=model)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(f"--program: {error}") from error

    def generate(
        self, prompts: Sequence[Sequence[int]], _: object, *, max_length: list[int], **__: Any
    ) -> list[list[Generation]]:
        """Continue prompts greedily; the other arguments are those of the model's ``generate``."""
        return self.program.generate(prompts, max_length=max_length)
