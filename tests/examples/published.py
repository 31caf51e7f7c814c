"""Small models with random weights, saved by the library that published models come from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}

transformers.utils.logging.disable_progress_bar()


def save(model: nn.Module, folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """Give a model random weights, all different, and save it."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                is_scale = parameter.dim() == 1 and name.endswith(
                    "weight"
                )  # of a layer normalisation
                nn.init.normal_(parameter, std=1.0 if is_scale else 0.3)
    published: Any = model.to(dtype).eval()
    published.save_pretrained(folder)
    return published


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the weights of a folder."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.rstrip("\n").split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


class InFloat64(TorchFunctionMode):
    """Makes each conversion to float32 one to float64.

    Normalisation, softmax and rotary angles of transformers are float32 in models of any dtype.
    """

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if function is Tensor.float:
            return arguments[0].double()
        arguments = [torch.float64 if each is torch.float32 else each for each in arguments]
        options = {
            name: torch.float64 if each is torch.float32 else each
            for name, each in (options or {}).items()
        }
        return function(*arguments, **options)


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Let transformers compute all of a model in float64, whose models are partly float32."""
    if dtype == torch.float64:
        torch.set_default_dtype(dtype)
        try:
            with InFloat64():
                yield
        finally:
            torch.set_default_dtype(torch.float32)
    else:
        yield
