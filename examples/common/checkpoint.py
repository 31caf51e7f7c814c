"""Checkpoints: saved states of a training that survive crashes, full disks and flipped bits.

A checkpoint is one file of `safetensors <https://huggingface.co/docs/safetensors>`__, which any
program can read::

    checkpoints/step-00001200-5f0c9e1d22b3a847.safetensors

It holds tensors (weights, their average, the moments of Adam) and, as metadata, all else as JSON.
Three ideas make it safe:

* **One rename commits.** The content is written into a file beside it, synchronised to the disk,
  and only then renamed, so a file called ``step-...`` is complete. The new checkpoint is on the
  disk before an old one is removed, so that there is at least one at every moment.
* **The name holds the SHA-256 of the content**, its first 16 digits. Every flipped, lost or added
  byte is found before anything is read.
* **No pickle anywhere.** Unpickling executes code from the file, and an environment variable can
  undo the ``weights_only`` default of ``torch.load``. Safetensors and JSON hold only data.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from common.errors import UserError
from common.files import file_hash, load_json
from transformer_blocks.files import write_atomically

FORMAT_VERSION = 4

_NAME = re.compile(r"step-([0-9]{8,})-([0-9a-f]{16})\.safetensors")

_log = logging.getLogger(__name__)


class DamagedCheckpointError(UserError):
    """A checkpoint differs from what was saved; the message names the file."""


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
        tensors: Weights by group, such as ``{"model": model.state_dict()}``.
        state: All else that the run needs to resume, as JSON: finite numbers, text and None, nested
            in lists and in dicts with text as keys.
        keep: The number of checkpoints that are kept, the new one included.

    Returns:
        The file of the new checkpoint.

    Raises:
        UserError: If the disk fails or a weight is NaN or infinite. Earlier checkpoints are
            unchanged.
        TypeError: If ``state`` holds something that JSON does not know.
        ValueError: If a number in ``state`` is not finite.

    Example:
        >>> import tempfile
        >>> import torch
        >>> folder = Path(tempfile.mkdtemp())
        >>> for step in (1, 2):
        ...     weights = {"weight": torch.full((3,), float(step))}
        ...     newest = save_checkpoint(folder, step=step, tensors={"model": weights}, state={})
        >>> latest_checkpoint(folder).tensors["model"]["weight"]
        tensor([2., 2., 2.])
        >>> _ = newest.write_bytes(newest.read_bytes()[:-1])  # one byte is lost ...
        >>> latest_checkpoint(folder).step  # ... so the older one is taken
        1
    """
    copies = {  # several names may share a tensor, as tied embeddings do
        f"{group}.{name}": tensor.detach().to("cpu", copy=True).contiguous()
        for group, members in tensors.items()
        for name, tensor in members.items()
    }
    for name, tensor in copies.items():
        if not tensor.isfinite().all():
            raise UserError(f"step {step} is not saved: tensor {name!r} holds NaN or infinity")
    content = {"format_version": FORMAT_VERSION, "step": step, "state": state}
    data = save(copies, {"checkpoint": json.dumps(content, allow_nan=False)})
    digest = hashlib.sha256(data).hexdigest()[:16]
    path = folder / f"step-{step:08d}-{digest}.safetensors"
    try:
        folder.mkdir(exist_ok=True)
        write_atomically(path, data)
        _sync_folders(folder, folder.parent)
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()  # only if it is empty: the first save has failed
        raise UserError(
            f"cannot save step {step} in {folder} (earlier checkpoints are unchanged): "
            f"{error.strerror}"
        ) from error
    found = checkpoint_paths(folder)
    older = [old for old in found if step_of(old) < step]
    stay = {path, *older[max(0, len(older) - (keep - 1)) :]}
    for old in (*folder.glob(".*.part"), *(old for old in found if old not in stay)):
        with suppress(OSError):  # a later save removes it
            old.unlink()
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint, after checking every byte of it.

    Args:
        path: The file of one checkpoint.

    Returns:
        What was saved. Pass the weights to :func:`load_weights`.

    Raises:
        DamagedCheckpointError: If anything is not as it was saved.
        OSError: If it cannot be read.
        UserError: If it was written by a newer version of this program.
    """
    name = _NAME.fullmatch(path.name)
    if name is None or file_hash(path)[:16] != name[2]:
        raise DamagedCheckpointError(
            f"{path} is not as it was saved: its name must hold the checksum of its content"
        )
    try:
        with safe_open(path, "pt") as file:
            content = load_json(file.metadata()["checkpoint"])
            if (version := content["format_version"]) != FORMAT_VERSION:
                raise UserError(
                    f"{path} has format version {version}, and this program reads {FORMAT_VERSION}"
                )
            groups: dict[str, dict[str, Tensor]] = {}
            for whole in file.keys():  # noqa: SIM118
                group, _, name = whole.partition(".")
                groups.setdefault(group, {})[name] = file.get_tensor(whole)
        return Checkpoint(int(content["step"]), groups, dict(content["state"]), path)
    except (OSError, MemoryError, UserError):
        raise
    except Exception as error:  # whatever a file that someone else made can provoke
        raise DamagedCheckpointError(
            f"{path} is not a checkpoint of this program: {error!r}"
        ) from error


def checkpoint_paths(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, which may be missing, by the number of their updates."""
    found = folder.iterdir() if folder.exists() else ()
    return sorted((path for path in found if _NAME.fullmatch(path.name)), key=step_of)


def step_of(path: Path) -> int:
    """Return the number of updates of a checkpoint, which the name of its file holds."""
    return int(path.name.split("-")[1])


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Load the newest intact checkpoint, with a warning in the log for each damaged newer one.

    Args:
        folder: The folder of :func:`save_checkpoint`. It may be missing.

    Returns:
        The newest intact checkpoint, or None if there are no checkpoints.

    Raises:
        DamagedCheckpointError: If there are checkpoints and all are damaged.
        OSError: If one cannot be read: resuming from an older one would discard what is probably
            intact.
        UserError: If one was written by a newer version of this program, likewise.
    """
    damages: list[Exception] = []
    for path in reversed(checkpoint_paths(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except (OSError, UserError) as error:
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
    from transformer_blocks import interop  # only now: a training loads none

    try:
        interop.load_weights(model, tensors)
    except ValueError as error:
        raise UserError(
            f"{path}: {error}; build the model with the sizes it was trained with"
        ) from error


def _sync_folders(*folders: Path) -> None:
    """Wait until the new names in some folders are on the disk."""
    for folder in folders if os.name != "nt" else ():  # Windows cannot open a folder
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
