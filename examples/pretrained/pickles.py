"""Pickles: read the tensors of a pickle without running its code, and save them as safetensors.

Next: ``convert.py``, the program.
"""

import argparse
import os
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from common.errors import UserError
from pretrained.loading import find_folder, shown
from pretrained.weights import PICKLE, WEIGHTS


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
    tensors = _distinct(read_pickle(source), source)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{WEIGHTS}.") as temporary:
            written = Path(temporary) / WEIGHTS
            save_file(tensors, written, metadata={"format": "pt"})
            written.replace(target)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {target}: {error}") from error
    return target


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a pickle, without calling any function that does not make tensors.

    Raises:
        UserError: If the file cannot be read, or holds anything but named tensors.
    """
    try:
        size = path.stat().st_size
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > size:
                    raise UserError(f"{path} is a compressed archive, which torch never writes")
        with warnings.catch_warnings(action="ignore"):  # old files hold deprecated storages
            # weights_only is the default, but an environment variable can change the default.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} holds more than tensors, or is damaged: refused") from error
    except UserError:
        raise
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


def _distinct(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Drop repeated tensors and copy the others, which together must not exceed the file's size."""
    distinct: dict[str, Tensor] = {}
    seen: set[object] = set()
    size = path.stat().st_size
    for name, tensor in tensors.items():
        storage = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        if storage in seen and tensor.numel():
            continue
        seen.add(storage)
        size -= tensor.nbytes
        if size < 0:
            raise UserError(f"{path}: its tensors must not be larger than the file")
        distinct[name] = tensor.clone(memory_format=torch.contiguous_format)
    return distinct


def convert_folder(options: argparse.Namespace) -> None:
    """Convert the weights of a folder or of a model on the hub, and print the new file's path."""
    print(convert(find_folder(options.model, (PICKLE,), revision=options.revision)))
