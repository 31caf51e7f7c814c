"""Small models with random weights, saved by the library that published models come from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

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
