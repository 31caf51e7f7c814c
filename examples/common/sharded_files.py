"""Sharded files: the parts of tensors that several processes hold, in one file of each process.

A group of tensors, such as the weights of a model, is either whole in ``model.safetensors``, or in
parts: of two processes, the first writes ``model-00001-of-00002.safetensors``, the second
``model-00002-of-00002.safetensors``. A part is a range of rows, and its file says at which row it
begins. Any number of processes can read either form: each reads only the rows that it will hold.

``torch.distributed.checkpoint`` plans which rows each process writes and reads. Its own default
files hold pickles, which execute code when they are loaded. Its Hugging Face storage keeps
everything in safetensors and JSON; here it writes one file for each group and process.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from common.sharding import Empty, is_part, part_file


def save_part(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the rows of tensors that this process holds. All processes must call it.

    A tensor that is not sharded is written by one of the processes.

    Args:
        file: The file of this process, in a folder of all processes.
        tensors: The tensors, with the same names in all processes.

    Raises:
        OSError: In all processes, if the disk fails in one of them.
    """
    with _failure_named():
        save(dict(tensors), storage_writer=_Writer(file))


def load_parts(folder: Path, group: str, empty: Empty | None = None) -> dict[str, Tensor]:
    """Read a group of tensors, which may be whole or in parts.

    Args:
        folder: The folder of the files.
        group: The name of the group.
        empty: Allocates the tensors; of a sharded one, only the part of this process is read. By
            default they are read whole.

    Raises:
        ValueError: If a part or a row is missing.
        OSError: If the disk fails.
    """
    reader = HuggingFaceStorageReader(str(folder))
    reader.fs = _Listing(_files(folder, group))
    tensors = {}
    for name, stored in reader.read_metadata().state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata) or not _is_complete(stored):
            raise ValueError(f"the parts of {name!r} do not join")
        shape, dtype = stored.size, stored.properties.dtype
        tensors[name] = torch.empty(shape, dtype=dtype) if empty is None else empty(shape, dtype)
    with _failure_named(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
        load(tensors, storage_reader=reader, no_dist=True)  # each process reads for itself
    return tensors


class _Writer(HuggingFaceStorageWriter):
    """Writes to one file, tensor by tensor instead of by way of a copy of all."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file.parent), save_distributed=True)
        self.file = file

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        tensors, offsets = {}, {}
        for item in plan.items:
            name, tensor, place = item.index.fqn, planner.resolve_data(item), item.tensor_data
            assert isinstance(tensor, Tensor)
            assert place is not None
            tensors[name] = tensor.detach().cpu().contiguous()
            offsets[name] = {"saved_offsets": list(place.chunk.offsets)}
        try:
            save_file(tensors, self.file, metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        self.file.chmod(self.file.parent.stat().st_mode & 0o666)  # as any other new file
        with self.file.open("rb+") as file:
            os.fsync(file.fileno())
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done


class _Listing(FileSystem):
    """A file system in which a folder holds certain files only."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = [str(file) for file in files]

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return self.files


def _files(folder: Path, group: str) -> list[Path]:
    """List the files of a group: only those that the folder lists, whatever the group is called."""
    names = {file.name for file in folder.iterdir()}
    if f"{group}.safetensors" in names:
        return [folder / f"{group}.safetensors"]
    parts = {name for name in names if is_part(name) and name.rsplit("-", 3)[0] == group}
    expected = [part_file(group, rank, len(parts)) for rank in range(len(parts))]
    if not parts or parts != {*expected}:
        raise ValueError(f"files of {group!r} are missing")
    return [folder / name for name in expected]


def _is_complete(stored: TensorStorageMetadata) -> bool:
    """Return whether each part of a tensor begins where the one before it ends."""
    row = 0
    for chunk in sorted(stored.chunks, key=lambda chunk: chunk.offsets):
        begins, *rest = chunk.offsets or (0,)
        if begins != row or any(rest) or chunk.sizes[1:] != stored.size[1:]:
            return False
        row += chunk.sizes[0] if chunk.sizes else 0
    return True


@contextmanager
def _failure_named() -> Iterator[None]:
    """Raise the cause of a failure instead of torch's list of all processes and tracebacks."""
    try:
        yield
    except CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        raise cause from None
