"""Checkpoints: saved states of a training that survive crashes, full disks and flipped bits.

A checkpoint is one directory::

    checkpoints/step-00001200/
        model.safetensors    weights: one such file for each group of tensors
        optimizer.safetensors    another group: the moments of Adam
        state.json           all else that the run needs to resume
        manifest.json        format version, and the length and SHA-256 of every file above

Four ideas make it safe:

* **One rename commits.** Files are written into a hidden directory and synchronised to the disk;
  only then is the directory renamed. A directory called ``step-...`` is therefore complete; a save
  that was killed leaves a hidden directory, which is never read and which the next save removes.
* **New before old.** Nothing is ever overwritten. The new checkpoint is on the disk before an old
  one is removed, so that there is at least one at every moment. The newest few in ``checkpoints/``
  and the single best in ``best/`` are the same mechanism with another ``keep``.
* **A checkpoint is complete if its manifest equals the one computed from its files**, byte for
  byte. That one comparison finds every flipped, lost or added byte and every missing or foreign
  file. Names in a manifest are compared, never opened, so they cannot lead to other files.
* **No pickle anywhere.** Unpickling executes code from the file, and an environment variable can
  undo the ``weights_only`` default of ``torch.load``. Safetensors and JSON hold only data.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from common.configuration import load_json
from common.errors import UserError
from common.files import disk_errors, file_hash
from common.terminal import counted
from transformer_blocks import interop

FORMAT_VERSION = 1

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-([0-9]{8,})(?:\.([0-9]+))?")  # the step, and which save of that step
_PARTIAL = ".partial-"  # incompletely written or removed: no checkpoint

Entry = dict[str, Any]
"""The entry of a file in a manifest: its length and its SHA-256."""

_log = logging.getLogger(__name__)


class DamagedCheckpointError(UserError):
    """A checkpoint differs from what was saved; the message names the file and the damage."""


@dataclass(frozen=True)
class Checkpoint:
    """The arguments of :func:`save_checkpoint`, bit for bit; all tensors are on the CPU."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]
    path: Path


def save_checkpoint(
    folder: Path,
    *,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, object],
    keep: int = 2,
) -> Path:
    """Write one checkpoint into ``folder`` atomically.

    The last save counts. It replaces an earlier save of the same step, and later steps are removed:
    they were abandoned when the run returned to an older checkpoint.

    Args:
        folder: The folder of checkpoints, such as ``runs/first/checkpoints``. Created if missing;
            its parent must exist. One process at a time may save into it, any number may read.
        step: The number of updates so far.
        tensors: Weights by group, such as ``{"model": model.state_dict()}``. Each group becomes one
            file. Names that share one tensor, as tied embeddings do, share it again after loading.
        state: All else that the run needs to resume, as JSON: finite numbers, text and None, nested
            in lists and in dicts with text as keys.
        keep: The number of checkpoints that are kept, the new one included.

    Returns:
        The directory of the new checkpoint.

    Raises:
        UserError: If the disk fails or a weight is NaN or infinite. Earlier checkpoints are
            unchanged.
        TypeError: If ``state`` holds something that JSON does not know.
        ValueError: If a number in ``state`` is not finite.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for step in (1, 2):
        ...     weights = {"weight": torch.full((3,), float(step))}
        ...     newest = save_checkpoint(folder, step=step, tensors={"model": weights}, state={})
        >>> latest_checkpoint(folder).tensors["model"]["weight"]
        tensor([2., 2., 2.])
        >>> file = newest / "model.safetensors"
        >>> _ = file.write_bytes(file.read_bytes()[:-1])  # one byte is lost ...
        >>> latest_checkpoint(folder).step  # ... so the older one is taken
        1
    """
    json.dumps(state, allow_nan=False)  # raises before anything is written
    entries: dict[str, Entry] = {}
    try:
        with disk_errors(
            f"cannot save step {step} in {folder} (earlier checkpoints are unchanged)"
        ):
            unfinished = _make_partial_folder(folder, step)
            tied = {group: _tied(members) for group, members in tensors.items()}
            for group, members in tensors.items():
                whole = {
                    name: _on_cpu(tensor)
                    for name, tensor in members.items()
                    if name not in tied[group]
                }
                for name, tensor in whole.items():
                    if not tensor.isfinite().all():
                        raise UserError(
                            f"step {step} is not saved: {group}: tensor {name!r} holds NaN or "
                            "infinity"
                        )
                file = unfinished / f"{group}.safetensors"
                entries[file.name] = _write(file, save(whole))
            meta = {"step": step, "tied": tied, "state": state}
            data = json.dumps(meta, indent=1).encode()
            entries["state.json"] = _write(unfinished / "state.json", data)
            path = _commit(unfinished, entries)
            found = _list_checkpoints(folder)
        older = [old for of, _, old in found if of < step]
        stay = [path, *older[max(0, len(older) - (keep - 1)) :]]
        for _, _, old in found:
            if old not in stay:
                _remove(old)
        return path
    finally:
        _remove_partial_folders(folder)
        with suppress(OSError):
            folder.rmdir()  # only if it is empty: the first save has failed


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint, after checking every byte of it.

    Args:
        path: The directory of one checkpoint.

    Returns:
        What was saved. Pass the weights to :func:`load_weights`.

    Raises:
        DamagedCheckpointError: If anything is not as it was saved.
        UserError: If it cannot be read, or was written by a newer version of this program.
    """
    names = _check_files(path)
    with disk_errors(f"cannot read the checkpoint {path}"):
        try:
            meta = load_json((path / "state.json").read_text("utf-8"))
            groups = {}
            for file in (path / name for name in names if name.endswith(".safetensors")):
                tensors = load_file(file)  # memory-mapped
                tied = meta["tied"][file.stem]
                groups[file.stem] = tensors | {name: tensors[twin] for name, twin in tied.items()}
            return Checkpoint(int(meta["step"]), groups, dict(meta["state"]), path)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{path} is not a checkpoint of this program: {error!r}"
            ) from error


def checkpoint_paths(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, which may be missing, by the number of their updates."""
    with disk_errors(f"cannot list the checkpoints in {folder}"):
        return [path for _, _, path in _list_checkpoints(folder)]


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Load the newest intact checkpoint, with a warning in the log for each damaged newer one.

    Args:
        folder: The folder of :func:`save_checkpoint`. It may be missing.

    Returns:
        The newest intact checkpoint, or None if there are no checkpoints.

    Raises:
        DamagedCheckpointError: If there are checkpoints and all are damaged.
        UserError: If one cannot be read, or was written by a newer version of this program:
            resuming from an older one would discard what is probably intact.
    """
    damages: list[UserError] = []
    for path in reversed(checkpoint_paths(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except UserError as error:
            if not path.exists():  # removed meanwhile by a save, which made a newer one
                return latest_checkpoint(folder)
            if not isinstance(error, DamagedCheckpointError):
                raise
            damages.append(error)
        else:
            for damage in damages:
                _log.warning("%s; taking the older %s", damage, path)
            return checkpoint
    if damages:
        raise DamagedCheckpointError(f"{damages[0]}; no older checkpoint in {folder} is intact")
    return None


def average_last(
    folder: Path,
    count: int,
    *,
    group: str,
    check: Callable[[Checkpoint], object] = lambda checkpoint: None,
) -> dict[str, Tensor]:
    """Average the weights of the newest checkpoints, as the paper does (section 6.1).

    Args:
        folder: The folder of :func:`save_checkpoint`.
        count: The number of checkpoints.
        group: The group of tensors, such as "model".
        check: Called with each checkpoint; raises if it does not belong to the run.

    Returns:
        The mean of each tensor, in its dtype.

    Raises:
        UserError: If there are fewer, or one of them cannot be read.
    """
    paths = checkpoint_paths(folder)[-count:]
    if len(paths) < count:
        raise UserError(
            f"{folder} holds {counted(len(paths), 'checkpoint')}, but --average-last {count} "
            f"needs {count}; train with --keep {count}"
        )
    sums: dict[str, Tensor] = {}
    for path in paths:
        checkpoint = load_checkpoint(path)
        check(checkpoint)
        tensors = checkpoint.tensors[group]
        for name, tensor in tensors.items():
            sums[name] = tensor.double() + sums.get(name, 0.0)
    return {name: (sums[name] / count).to(tensor.dtype) for name, tensor in tensors.items()}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, path: Path) -> None:
    """Copy weights into ``model``, all of them or none.

    Args:
        model: Receives the weights. Must have been built with the sizes of the run.
        tensors: One group of a checkpoint, such as ``checkpoint.tensors["model"]``.
        path: The path of the weights, for the error message.

    Raises:
        UserError: If a tensor is missing, unknown, of another shape or dtype, or NaN or infinite,
            or if two that are one in the model differ. The model is then untouched.
    """
    try:
        interop.load_weights(model, tensors)
    except ValueError as error:
        raise UserError(
            f"{path}: {error}; build the model with the sizes it was trained with"
        ) from error


# The content of the files


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _tied(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the first name of each tensor that has several names."""
    first: dict[object, str] = {}
    tied = {}
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        twin = first.setdefault(place, name)
        if twin != name:
            tied[name] = twin
    return tied


# The manifest


def _manifest(entries: Mapping[str, Entry]) -> bytes:
    listed = dict(sorted(entries.items()))
    return json.dumps({"format_version": FORMAT_VERSION, "files": listed}, indent=1).encode()


def _check_files(path: Path) -> list[str]:
    """Check every byte: the manifest equals the one computed from the files. Return their names."""
    entries = {}
    with disk_errors(f"cannot read the checkpoint {path}"):
        for file in sorted(path.iterdir()):
            if file.is_symlink() or not file.is_file():
                raise DamagedCheckpointError(f"{path}: {file.name!r} is not a plain file")
            entries[file.name] = {"bytes": file.stat().st_size, "sha256": file_hash(file)}
        if entries.pop(_MANIFEST, None) is None:
            raise DamagedCheckpointError(f"{path}: {_MANIFEST!r} is missing")
        manifest = (path / _MANIFEST).read_bytes()
    if manifest != _manifest(entries):
        raise _explain_mismatch(path, manifest, entries)
    return [*entries]


def _explain_mismatch(path: Path, manifest: bytes, found: Mapping[str, Entry]) -> UserError:
    """Explain a manifest that does not describe the files: name the first that differs."""
    try:
        listed = load_json(manifest.decode())["files"]
        for name in sorted(listed.keys() | found.keys()):
            if found.get(name) != listed.get(name):
                what = "is not as it was saved" if name in found else "is missing"
                return DamagedCheckpointError(f"{path}: {name!r} {what}")
    except Exception:  # so malformed that it is the manifest itself
        pass
    return DamagedCheckpointError(f"{path}: {_MANIFEST!r} is truncated or altered")


# The disk


def _list_checkpoints(folder: Path) -> list[tuple[int, int, Path]]:
    """List (step, which save of that step, path) of every checkpoint, oldest first."""
    if not folder.exists():
        return []
    with os.scandir(folder) as entries:  # returns names and kinds together, without a race
        return sorted(
            (int(match[1]), int(match[2] or 1), folder / entry.name)
            for entry in entries
            if (match := _NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        )


def _make_partial_folder(folder: Path, step: int) -> Path:
    """Make the hidden directory into which a checkpoint is written."""
    folder.mkdir(exist_ok=True)
    _remove_partial_folders(folder)
    repeats = max((repeat for of, repeat, _ in _list_checkpoints(folder) if of == step), default=0)
    name = f"step-{step:08d}" + (f".{repeats + 1}" if repeats else "")
    unfinished = folder / f"{_PARTIAL}{name}"
    unfinished.mkdir()
    return unfinished


def _write(path: Path, data: bytes) -> Entry:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _commit(unfinished: Path, entries: Mapping[str, Entry]) -> Path:
    """Write the manifest, and give the directory its name."""
    _write(unfinished / _MANIFEST, _manifest(entries))
    _sync_directory(unfinished)
    path = unfinished.rename(unfinished.with_name(unfinished.name.removeprefix(_PARTIAL)))
    _sync_directory(path.parent)
    _sync_directory(path.parent.parent)
    return path


def _remove_partial_folders(folder: Path) -> None:
    """Remove what killed saves have left."""
    for leftover in folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _remove(path: Path) -> None:
    """Rename a checkpoint before removing it, so that no reader finds half of it.

    If the removal fails, it stays a checkpoint or is removed by a later save.
    """
    with suppress(OSError):
        shutil.rmtree(path.rename(path.with_name(f"{_PARTIAL}{path.name}")))


def _sync_directory(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open a directory
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
