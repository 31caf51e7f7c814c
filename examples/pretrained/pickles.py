"""Pickles: read the tensors of a pickle without running its code, and save them as safetensors.

Next: ``convert.py``, the program.
"""

import os
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from safetensors.torch import save
from torch import Tensor

from common.errors import UserError
from common.files import write_atomically
from transformer_blocks.pretrained.loading import find_folder, shown
from transformer_blocks.pretrained.weights import PICKLE, WEIGHTS


def convert(folder: Path) -> Path:
    """Save the weights of a folder's ``pytorch_model.bin`` as ``model.safetensors``.

    A tensor with several names is saved under the first: a safetensors file holds no tensor twice.

    Returns:
        The path of the new file.

    Raises:
        UserError: If the pickle is missing or damaged, or holds anything but tensors, or if the new
            file exists already or cannot be written.
    """
    source, target = folder / PICKLE, folder / WEIGHTS
    if os.path.lexists(target):
        raise UserError(f"{target} exists already")
    tensors, first = read_pickle(source), dict[object, str]()
    for name, tensor in tensors.items():
        first.setdefault((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()), name)
    dense = torch.contiguous_format
    distinct = {name: tensors[name].clone(memory_format=dense) for name in first.values()}
    write_atomically(target, save(distinct, metadata={"format": "pt"}))
    return target


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a pickle, without calling any function that does not make tensors.

    Raises:
        UserError: If the file cannot be read, or holds anything but named tensors.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # old files hold deprecated storages
            # weights_only is the default, but an environment variable can change the default.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} holds more than tensors, or is damaged: refused") from error
    except Exception as error:  # damaged instructions fail in dozens of ways
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(f"{path} cannot be read as a file of tensors: {reason}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} must hold named tensors, got a {type(content).__name__}")
    for name, tensor in content.items():
        if not isinstance(name, str) or type(tensor) is not Tensor:
            kind = type(tensor).__name__
            raise UserError(f"{path} must hold named tensors, got {shown(name)}: {kind}")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise UserError(
                f"{path}: tensor {shown(name)} must be dense, neither quantised nor on meta"
            )
    return dict(content)


def convert_folder(options: Any) -> None:
    """Convert the weights of a folder or of a model on the hub, and print the new file's path."""
    print(convert(find_folder(options.model, (PICKLE,), revision=options.revision)))
