"""Checkpoints: saved states of a training that survive crashes, full disks and flipped bits.

A checkpoint is one directory::

    checkpoints/step-00001200/
        model.safetensors    weights: one such file for each group of ``tensors``
        state.safetensors    the tensors inside ``state``: optimiser moments, random number states
        state.json           the rest of ``state``, with the places where those tensors belong
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
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from common.configuration import difference
from common.errors import UserError
from transformer_blocks import interop

FORMAT_VERSION = 1

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-([0-9]{8,})(?:\.([0-9]+))?")  # the step, and which save of that step
_PARTIAL = ".partial-"  # incompletely written or removed: no checkpoint
_LOOKS_LIKE = {
    b"version https://git-lfs": "a git-lfs pointer; fetch the file itself with `git lfs pull`",
    b"<!doctype html": "an HTML page, not the file that was asked for; download it again",
    b"<html": "an HTML page, not the file that was asked for; download it again",
    b"pk\x03\x04": "a zip or .pt archive, which may carry code and is never opened here",
}

_log = logging.getLogger(__name__)


class DamagedCheckpointError(UserError):
    """A checkpoint differs from what was saved; the message names the file and the damage."""


@dataclass(frozen=True)
class Checkpoint:
    """The arguments of :func:`save_checkpoint`, bit for bit, with every tensor on the CPU."""

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
        state: All else that the run needs to resume: tensors, numbers, text and None, nested in
            dicts, lists and tuples. Optimiser and random number states are of that kind.
        keep: The number of checkpoints that are kept, the new one included.

    Returns:
        The directory of the new checkpoint.

    Raises:
        UserError: If the disk fails, or a weight is NaN or infinite. Earlier checkpoints are
            unchanged.
        TypeError: If ``state`` holds something that is neither tensor nor plain data.
        ValueError: If ``step``, ``keep`` or the name of a group is out of range.

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
    if step < 0 or keep < 1:
        raise ValueError(f"step must be at least 0 and keep at least 1, got {step=} and {keep=}")
    for group, weights in tensors.items():
        if not re.fullmatch("[a-z_]+", group) or group == "state":
            raise ValueError(f"a group is named by a-z and _ and not 'state', got {group!r}")
        _check_finite(weights, f"step {step} is not saved: {group}")
    files = _encode(step, tensors, state)
    files[_MANIFEST] = _manifest(files)  # written last
    with _disk(f"cannot save step {step} in {folder} (earlier checkpoints are unchanged)"):
        folder.mkdir(exist_ok=True)
        for leftover in folder.glob(f"{_PARTIAL}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        found = _saved(folder)
        repeats = max((repeat for of, repeat, _ in found if of == step), default=0)
        path = folder / (f"step-{step:08d}" + (f".{repeats + 1}" if repeats else ""))
        partial = folder / f"{_PARTIAL}{path.name}"
        partial.mkdir()
        try:
            for name, data in files.items():
                with (partial / name).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            _sync_directory(partial)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            with suppress(OSError):
                folder.rmdir()  # only if it is empty: the first save has failed
        _sync_directory(folder)
        _sync_directory(folder.parent)
    older = [old for of, _, old in found if of < step]
    stay = older[max(0, len(older) - (keep - 1)) :]
    for _, _, old in found:
        if old not in stay:
            _remove(old)
    return path


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
    with _disk(f"cannot read the checkpoint {path}"):
        files = _read_whole(path)
    try:
        meta = json.loads(files["state.json"], parse_constant=_refuse_constant)
        groups = {
            name: _unpack(files[f"{name}.safetensors"], tied) for name, tied in meta["tied"].items()
        }
        state = _from_json(meta["state"], groups.pop("state"))
        return Checkpoint(int(meta["step"]), groups, dict(state), path)
    except Exception as error:  # whatever a file that someone else made can provoke
        raise DamagedCheckpointError(
            f"{path} is not a checkpoint of this program: {error!r}"
        ) from error


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
    with _disk(f"cannot list the checkpoints in {folder}"):
        found = _saved(folder)
    for _, _, path in reversed(found):
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


def check_definition(
    checkpoint: Checkpoint,
    definition: Mapping[str, Any],
    saved: object,
    *,
    file: Path,
    is_old: bool = False,
) -> None:
    """Check that a checkpoint was trained with a configuration.

    Args:
        checkpoint: The checkpoint, for the error message.
        definition: The part of the run's configuration that may not change.
        saved: The same part of the configuration that the checkpoint was trained with.
        file: The file that the configuration was read from, for the error message.
        is_old: Whether the run is of an earlier version, whose checkpoints hold no configuration.

    Raises:
        UserError: If they differ; the message names the first field that does.
    """
    if saved is None and is_old:
        return
    if not isinstance(saved, dict):
        raise UserError(
            f"{checkpoint.path} holds no configuration: it was saved by an earlier version of "
            f"this program, and does not belong to the run of {file}"
        )
    if found := difference(definition, saved):
        raise UserError(
            f"{file} has changed since {checkpoint.path} was saved, or one of them belongs to "
            f"another run: {found}; restore the original value"
        )


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
    with _disk(f"cannot list the checkpoints in {folder}"):
        paths = [path for _, _, path in _saved(folder)][-count:]
    if len(paths) < count:
        raise UserError(
            f"{folder} holds {len(paths)} checkpoints, but --average-last {count} needs {count}; "
            f"train with --keep {count}"
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


def _encode(
    step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, object]
) -> dict[str, bytes]:
    loose: dict[str, Tensor] = {}
    tree = _to_json(dict(state), "state", loose)
    files: dict[str, bytes] = {}
    tied: dict[str, dict[str, str]] = {}
    for group, members in {**tensors, "state": loose}.items():
        tied[group] = _tied(members)
        files[f"{group}.safetensors"] = save(
            {
                name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
                for name, tensor in members.items()
                if name not in tied[group]
            }
        )
    meta = {"step": step, "tied": tied, "state": tree}
    files["state.json"] = json.dumps(meta, indent=1, allow_nan=False).encode()
    return files


def _unpack(data: bytes, tied: Mapping[str, str]) -> dict[str, Tensor]:
    tensors = load(data)
    return tensors | {name: tensors[twin] for name, twin in tied.items()}


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


def _check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{where}: tensor {name!r} holds NaN or infinity")


def _to_json(value: object, place: str, tensors: dict[str, Tensor]) -> object:
    """Convert nested data to JSON; what JSON lacks becomes an object with one key, as $tensor."""
    match value:
        case Tensor():
            tensors[place] = value
            return {"$tensor": place}
        case dict():
            items = {
                key: _to_json(item, f"{place}[{key!r}]", tensors) for key, item in value.items()
            }
            if all(isinstance(key, str) and not key.startswith("$") for key in items):
                return items
            if all(isinstance(key, str | int) for key in items):
                return {"$dict": list(items.items())}
        case list() | tuple():
            parts = [_to_json(part, f"{place}[{i}]", tensors) for i, part in enumerate(value)]
            return {"$tuple": parts} if isinstance(value, tuple) else parts
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(
        "state may hold tensors, numbers, text and None in lists, tuples and dicts whose keys are "
        f"text or whole numbers, got a {type(value).__name__} at {place}"
    )


def _from_json(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    match value:
        case {"$tensor": place}:
            return tensors[place]
        case {"$dict": pairs}:
            return {key: _from_json(item, tensors) for key, item in pairs}
        case {"$tuple": parts}:
            return tuple(_from_json(part, tensors) for part in parts)
        case {"$float": text}:
            return float(text)
        case dict():
            return {key: _from_json(item, tensors) for key, item in value.items()}
        case list():
            return [_from_json(part, tensors) for part in value]
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# The manifest


def _manifest(files: Mapping[str, bytes]) -> bytes:
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(files.items())
    }
    return json.dumps({"format_version": FORMAT_VERSION, "files": listed}, indent=1).encode()


def _read_whole(path: Path) -> dict[str, bytes]:
    files = {}
    for file in path.iterdir():
        if file.is_symlink() or not file.is_file():
            raise DamagedCheckpointError(f"{path}: {file.name!r} is not a plain file")
        files[file.name] = file.read_bytes()
    if _MANIFEST not in files:
        raise DamagedCheckpointError(f"{path}: {_MANIFEST!r} is missing")
    manifest = files.pop(_MANIFEST)
    if manifest != _manifest(files):
        raise _what_is_wrong(path, manifest, files)
    return files


def _what_is_wrong(path: Path, manifest: bytes, files: Mapping[str, bytes]) -> UserError:
    """Explain a manifest that does not describe ``files``: name the first that differs."""
    try:
        claims = json.loads(manifest, parse_constant=_refuse_constant)
        version, listed = int(claims["format_version"]), claims["files"]
        if version > FORMAT_VERSION:
            return UserError(
                f"{path} has format version {version}, newer than the {FORMAT_VERSION} that this "
                "program knows; update the program"
            )
        for name in sorted(listed.keys() | files.keys()):
            if difference := _difference(files.get(name), listed.get(name)):
                return DamagedCheckpointError(f"{path}: {name!r} {difference}")
    except Exception:  # so malformed that it is the manifest itself
        pass
    problem = _looks_like(manifest) or "is truncated or altered"
    return DamagedCheckpointError(f"{path}: {_MANIFEST!r} {problem}")


def _difference(data: bytes | None, claim: Any) -> str | None:
    if data is None:
        return "is missing"
    if claim is None:
        return "is not in the manifest"
    if hashlib.sha256(data).hexdigest() == claim["sha256"]:
        return None
    if len(data) < claim["bytes"]:
        problem = f"is truncated: {len(data)} bytes of {claim['bytes']}"
    elif len(data) > claim["bytes"]:
        problem = f"is too long: {len(data)} bytes instead of {claim['bytes']}"
    else:
        problem = "fails its SHA-256 checksum"
    return _looks_like(data) or problem


def _looks_like(data: bytes) -> str | None:
    start = data[:99].lstrip().lower()
    for mark, what in _LOOKS_LIKE.items():
        if start.startswith(mark):
            return f"looks like {what}"
    return None


# The disk


def _saved(folder: Path) -> list[tuple[int, int, Path]]:
    """List (step, which save of that step, path) of every checkpoint, oldest first."""
    if not folder.exists():
        return []
    with os.scandir(folder) as entries:  # returns names and kinds together, without a race
        return sorted(
            (int(match[1]), int(match[2] or 1), folder / entry.name)
            for entry in entries
            if (match := _NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        )


def _remove(path: Path) -> None:
    """Rename a checkpoint before removing it, so that no reader finds half of it.

    If the removal fails, it stays a checkpoint or is removed by a later save.
    """
    with suppress(OSError):
        partial = path.rename(path.with_name(f"{_PARTIAL}{path.name}"))
        shutil.rmtree(partial)


def _sync_directory(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open a directory
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _disk(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{action}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"{action}: it does not fit into the memory") from error
