"""Learning: one update of the weights, whatever the batch is made of.

An update reads some batches: one, or several in turn where memory is small (``accumulate``), or
several at once where there are several processes. Each adds the gradient of its summed loss,
divided by the number of tokens of *all* of them. So every token counts alike, and it makes no
difference how they came: in one batch, in four, or on two machines, the gradient is the same.

What is kept and used is a moving average of the weights over the last updates: each step with a
high learning rate overshoots, the average of many does not.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from common.distributed import Processes
from common.optimiser import average_weights, make_adam
from common.sharding import shard, shard_moments, whole
from transformer_blocks import linear_cross_entropy, noam_rate
from translation.batches import Batch, Example, collate
from translation.presets import Settings
from translation.translator import Translator


class BatchLoss(nn.Module):
    """The summed loss of a batch.

    Only real tokens are scored: the output projection is a large part of the work, and what it
    would say about padding is thrown away.

    Args:
        model: What translates.
        label_smoothing: Share of the target spread over all words.
        compiled: Whether ``torch.compile`` makes the model's code, once for all lengths.
    """

    def __init__(
        self, model: Translator, label_smoothing: float, *, compiled: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.hidden = torch.compile(model.hidden, dynamic=True) if compiled else model.hidden

    def forward(self, source: Tensor, target: Tensor, next_token: Tensor, real: Tensor) -> Tensor:
        """Sum the loss of all real tokens; the arguments are the parts of a ``Batch``."""
        hidden = self.hidden(source, target).flatten(0, 1)  # (B * L, d_model)
        if len(real) < len(hidden):
            hidden = hidden.index_select(0, real)
        right = next_token.flatten()[real]
        weight = self.model.output.weight
        return linear_cross_entropy(
            hidden, weight, right, label_smoothing=self.label_smoothing, reduction="sum"
        )


def learning_rate(settings: Settings, step: int, progress: float) -> float:
    """Compute the rate of an update.

    Args:
        settings: With a peak rate, the rate rises to it linearly and falls linearly to zero;
            without one it is the paper's (section 5.3).
        step: The update, counted from 1.
        progress: Part of the planned training that is over, 0 to 1.
    """
    if settings.peak_rate is None:
        return noam_rate(step, d_model=settings.d_model, warmup_steps=settings.warmup_steps)
    return settings.peak_rate * min(step / settings.warmup_steps, 1.0 - progress)


class Learner:
    """A model with all that changes at an update: its average, and the moments of Adam.

    Args:
        model: On the device where it learns.
        settings: Of the training.
        processes: That learn together.
        compiled: Whether ``torch.compile`` is used.
        sharded: Whether each process keeps its part only, see :mod:`translation.sharding`.
    """

    def __init__(
        self,
        model: Translator,
        settings: Settings,
        *,
        processes: Processes | None = None,
        compiled: bool = False,
        sharded: bool = False,
    ) -> None:
        self.model = model
        self.processes = Processes() if processes is None else processes
        self.device = next(model.parameters()).device
        self.sharded = sharded
        self.moving = average_weights(model, settings.average)
        self.optimizer = make_adam(model)
        self.loss: nn.Module = BatchLoss(model, settings.label_smoothing, compiled=compiled)

    @property
    def average(self) -> Translator:
        """The model with the averaged weights, the one to use."""
        module = self.moving.module
        if not isinstance(module, Translator):
            raise TypeError(f"the average must be of a Translator, got {type(module).__name__}")
        return module

    def whole_average(self) -> Translator:
        """Return the average, put together if it is sharded; all processes must ask for it."""
        if not self.sharded:
            return self.average
        self._room.load_state_dict(whole(self.average.state_dict()))
        return self._room

    def join(self) -> None:
        """Begin to learn together; weights and moments are what they should be by now."""
        if not self.sharded:
            self.loss = self.processes.share(self.loss, self.device)
            return
        self._room = deepcopy(self.average)
        for module in (self.loss, self.average):
            shard(module, self.processes.count, self.device)
        moments = self.optimizer.state_dict()
        self.optimizer = make_adam(self.model)
        self.optimizer.load_state_dict(shard_moments(moments, list(self.model.parameters())))

    def update(self, batches: Sequence[Sequence[Example]], rate: float) -> Tensor:
        """Learn from batches as if they were one.

        Args:
            batches: Those of all processes; this one reads its share.
            rate: The learning rate.

        Returns:
            The summed loss of this process's share.
        """
        loss = self.compute_gradient(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.moving.update_parameters(self.model)
        return loss

    def compute_gradient(self, batches: Sequence[Sequence[Example]]) -> Tensor:
        """Put the gradient of the mean loss per token into the parameters; return the summed loss.

        A process for which no batch is left reads the first for nothing: all must take part.
        """
        tokens = sum(len(example.target) + 1 for batch in batches for example in batch)
        mine = batches[self.processes.number :: self.processes.count]
        weight = self.processes.count / max(tokens, 1)  # the processes' gradients are averaged
        if not mine:
            mine, weight = batches[:1], 0.0
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for number, examples in enumerate(mine, start=1):
            batch = self._move(collate(examples))
            with self._summing_up(number == len(mine)):
                with torch.autocast(
                    self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
                ):
                    loss: Tensor = self.loss(*batch)
                (loss * weight).backward()
            if weight:
                total += loss.detach()
        return total

    def _summing_up(self, is_last: bool) -> AbstractContextManager[Any]:
        """Let the processes add their gradients after the last batch, and only then."""
        if isinstance(self.loss, FSDPModule):
            self.loss.set_requires_gradient_sync(is_last)
        elif isinstance(self.loss, DistributedDataParallel) and not is_last:
            return self.loss.no_sync()
        return nullcontext()

    def _move(self, batch: Batch) -> Batch:
        if self.device.type == "cuda":  # from pinned memory, the copy does not hold up the program
            batch = Batch(*(tensor.pin_memory() for tensor in batch))
        return batch.to(self.device)
