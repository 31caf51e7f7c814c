"""Plan: how long a training lasts, and how far it has come."""

from dataclasses import dataclass, field

from common.display import Status
from common.run import Config
from common.terminal import counted


@dataclass
class Progress:
    """How far a training has come; part of every checkpoint.

    Attributes:
        epoch: Number of complete passes over the data.
        batches: Number of batches read in the current pass, by all processes.
        step: Number of updates.
        seconds: Time taken, in seconds.
        loss: Training loss since the last validation, summed over targets, in all processes.
        targets: Number of targets read since the last validation.
        best: The metrics of the best validation; empty before the first one.
        validations_without_gain: Number of validations since the last one that was better, or had
            a lower loss, than all before.
    """

    epoch: int = 0
    batches: int = 0
    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    targets: int = 0
    best: dict[str, float] = field(default_factory=dict)
    validations_without_gain: int = 0

    def epochs(self, batches: int) -> float:
        """Return the number of passes over the data, the current one of ``batches`` in part."""
        return self.epoch + self.batches / batches

    def end_epoch(self) -> None:
        """Begin the next pass over the data."""
        self.epoch, self.batches = self.epoch + 1, 0

    def part_done(self, config: Config, epochs: float, seconds: float) -> float:
        """Compute which part of the plan is done, from 0 to 1.

        Args:
            config: The configuration, with a plan in minutes, epochs or updates.
            epochs: Number of passes over the data, the current one in part.
            seconds: Time taken, in seconds.
        """
        if config.minutes is not None:
            return min(1.0, seconds / (60.0 * config.minutes))
        if config.epochs is not None:
            return min(1.0, epochs / config.epochs)
        return min(1.0, self.step / (config.steps or 1))

    def is_done(self, config: Config) -> bool:
        """Whether the plan is done, or ``patience`` validations in a row brought no gain."""
        if config.patience is not None and self.validations_without_gain >= config.patience:
            return True
        return self.part_done(config, self.epoch, self.seconds) >= 1.0

    def status(self, config: Config, epochs: float, seconds: float) -> Status:
        """Describe for the display how far the training has come; see :meth:`part_done`."""
        if config.minutes is not None:
            place = f"{min(seconds / 60.0, config.minutes):.1f} of {config.minutes:g} min"
        elif config.epochs is not None:
            place = f"epoch {min(self.epoch + 1, config.epochs)} of {config.epochs}"
        else:
            place = f"step {self.step:,} of {config.steps or 1:,}"
        return Status(self.part_done(config, epochs, seconds), place)

    def __str__(self) -> str:
        """Name the last update, with its place in the data."""
        place = counted(self.epoch, "epoch")
        if self.batches:
            place += f" and {counted(self.batches, 'batch')}"
        return f"step {self.step} ({place})"
