"""Events: the metrics of a training for TensorBoard, where that is installed.

    pip install tensorboard
    tensorboard --logdir runs

The folder ``tensorboard`` of a run then holds the numbers of ``metrics.jsonl``, under the same
names. Nothing here is needed to train, to resume or to use a model.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class EventWriter:
    """Writes the metrics of a training as TensorBoard's events; does nothing without TensorBoard.

    Args:
        folder: The folder of the events; those that it holds remain. None writes nothing.
        step: The update after which the training begins or resumes. TensorBoard hides the events
            of later updates, which an interrupted training wrote and which are computed again.
        rows: The lines of ``metrics.jsonl`` so far, which are written if the folder is new.
    """

    def __init__(
        self, folder: Path | None, step: int, rows: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._writer: Any = None
        self._folder = folder
        if folder is None:
            return
        try:
            if not _is_installed():
                return
            if folder.is_symlink():
                raise OSError("it is a symbolic link")
            from torch.utils.tensorboard import SummaryWriter  # seconds: not without need

            is_new = not folder.exists()
            self._writer = SummaryWriter(str(folder), purge_step=step + 1)
        except Exception as error:  # whatever another package raises, the training continues
            self._give_up(error)
            return
        for row in rows if is_new else ():
            self.write(row)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one line of ``metrics.jsonl``."""
        if self._writer is None:
            return
        try:
            for name, value in row.items():
                if name != "step":
                    self._writer.add_scalar(name, value, row["step"])
            self._writer.flush()
        except Exception as error:  # as above
            self._give_up(error)

    def close(self) -> None:
        """Close the file of the events."""
        events, self._writer = self._writer, None
        if events is None:
            return
        try:
            events.close()
        except Exception as error:  # as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        events, self._writer = self._writer, None
        with suppress(Exception):  # it has failed already
            events.close()
        log.warning("no events for TensorBoard are written to %s: %s", self._folder, error)


def _is_installed() -> bool:
    """Return whether there is a package called tensorboard, not only a folder of that name."""
    spec = find_spec("tensorboard")
    return spec is not None and spec.origin is not None
