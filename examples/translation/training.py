"""Training: read a batch, guess each next word, learn from the error, and keep the best.

The loss is the cross-entropy of the next token with label smoothing (section 5.4): the target gives
a little of the probability to every word, so that the model never grows surer than it should. It is
summed over the real tokens and divided by their number; padding takes no part.

A training is planned in epochs or in minutes; the learning rate rises, then falls to zero at the
planned end. A checkpoint is saved after every epoch, and within an epoch after every so many
updates. A training planned in epochs that is stopped and resumed ends with the same bits as one
that never stopped; one planned in minutes depends on the clock.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from tqdm import tqdm

from common.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    latest_checkpoint,
    load_weights,
    save_checkpoint,
)
from common.configuration import check_fields, is_row
from common.distributed import Processes
from common.errors import UserError
from common.files import write_atomically
from common.optimiser import load_moments
from common.searches import Greedy
from common.sharding import whole
from common.tokenizer import Tokenizer
from translation.batches import Example, batches_of, encode_pairs, make_batches
from translation.corpus import Corpus, Pair
from translation.decoding import translate
from translation.learning import BatchLoss, Learner, learning_rate
from translation.pictures import plot_loss
from translation.presets import Settings
from translation.run import WRITTEN_DOWN, Run
from translation.scoring import score
from translation.translator import Translator

log = logging.getLogger(__name__)

SAMPLE = 200  # validation sentences that are translated after each epoch


@dataclass
class Progress:
    """How far a training has come; part of every checkpoint.

    Attributes:
        epoch: Passes over the data that are complete.
        step: Updates so far.
        seconds: Time so far.
        best_loss: Lowest validation loss.
        epochs_without_gain: Since then.
        batches: Read of the pass that has begun, by all processes.
        loss: Summed over the tokens of that pass, in all processes.
        tokens: Of that pass.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    epochs_without_gain: int = 0
    batches: int = 0
    loss: float = 0.0
    tokens: int = 0

    RANGES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("epoch", "step", "seconds", "batches", "tokens"), "at least 0"),
        **dict.fromkeys(("epochs_without_gain", "loss"), "at least 0"),
        "best_loss": "not NaN",
    }

    def __str__(self) -> str:
        """Say where it is."""
        return f"epoch {self.epoch}" + (f" and {self.batches} batches" if self.batches else "")


@dataclass(frozen=True)
class Keeping:
    """When checkpoints are saved, and how many stay.

    Attributes:
        steps: Updates after which one is saved within an epoch.
        last: How many stay.
    """

    steps: int = 1000
    last: int = 2


class Training:
    """One training of one run, from its beginning or from its last checkpoint.

    Args:
        run: Where everything is kept.
        settings: Sizes and plan.
        corpus: Cleaned pairs.
        tokenizers: Of the source and of the target.
        seed: Of weights, dropout and data order.
        device: Where to compute.
        minutes: Plan for this long instead of for ``settings.epochs``.
        processes: Those that train together.
        keeping: When to save, and how much.
        compiled: Whether ``torch.compile`` makes the model's code.
        sharded: Whether each process keeps a part of the model only.
    """

    def __init__(
        self,
        run: Run,
        settings: Settings,
        corpus: Corpus,
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        seed: int,
        device: torch.device,
        minutes: float | None = None,
        processes: Processes | None = None,
        keeping: Keeping | None = None,
        compiled: bool = False,
        sharded: bool = False,
    ) -> None:
        self.run, self.settings, self.corpus, self.tokenizers = run, settings, corpus, tokenizers
        self.seed, self.device, self.minutes = seed, device, minutes
        self.processes = Processes() if processes is None else processes
        self.keeping = Keeping() if keeping is None else keeping
        self.train_set = self._encode(corpus.train)
        self.validation_set = self._encode(corpus.validation)
        torch.manual_seed(seed)
        source, target = tokenizers
        model = settings.build(source.vocab_size, target.vocab_size).to(device)
        self.learner = Learner(
            model, settings, processes=self.processes, compiled=compiled, sharded=sharded
        )
        self.progress = Progress()
        self.metrics: list[dict[str, Any]] = []
        self.config = run.read_config()
        if not self.processes.is_first:  # the same weights, but other dice for dropout
            torch.manual_seed(seed + 1_000_003 * self.processes.number)

    @property
    def model(self) -> Translator:
        """What learns."""
        return self.learner.model

    def _encode(self, pairs: Sequence[Pair]) -> list[Example]:
        return encode_pairs(pairs, *self.tokenizers, max_length=self.settings.max_length)

    def resume(self) -> bool:
        """Go back to the last checkpoint, if there is one; tell whether there was.

        Raises:
            UserError: If it is damaged or of another run, or if more has been trained than is
                planned now. Nothing has been written then.
        """
        best = latest_checkpoint(self.run.best)
        if best is not None:
            self.run.check_definition(self.config, best)
        checkpoint = latest_checkpoint(self.run.checkpoints)
        if checkpoint is not None:
            self._restore(checkpoint)
            self._check_plan()
        if self.processes.is_first:
            self._mend_best(best)
            if (
                self.run.metrics.exists()
            ):  # the checkpoint holds the rows that the training resumes from
                self._write_metrics()
        return checkpoint is not None

    def _check_plan(self) -> None:
        """Raise if the plan was changed to one that ends before the checkpoint."""
        begun, epochs = self.config, self.progress.epoch + bool(self.progress.batches)
        minutes = self.progress.seconds / 60.0
        if self.minutes is None:
            is_new = (self.settings.epochs, None) != (begun.settings.epochs, begun.minutes)
            if is_new and self.settings.epochs < epochs:
                raise UserError(
                    f"{self.run.folder} has trained for {epochs} epochs already, "
                    f"got --epochs {self.settings.epochs}"
                )
        elif self.minutes != begun.minutes and self.minutes < minutes:
            raise UserError(
                f"{self.run.folder} has trained for {minutes:.1f} minutes already, "
                f"got --minutes {self.minutes:g}"
            )

    def _mend_best(self, best: Checkpoint | None) -> None:
        """Keep the best weights, if they were lost or the process died before they were kept."""
        progress = self.progress
        behind = best is not None and best.step < progress.step
        if progress.epoch and not progress.batches:
            if best is None or (behind and not progress.epochs_without_gain):
                self._keep_as_best()
        elif best is None:
            progress.best_loss = math.inf  # whatever comes next is better than none

    def fit(self, *, begun: Callable[[], object] = lambda: None) -> None:
        """Train until the plan is done or nothing is gained any more.

        Args:
            begun: Called as soon as there is a checkpoint to go back to.
        """
        self.learner.join()
        if not self.processes.agree(self.run.checkpoints.exists):
            self._save()  # whatever happens, there is something to go back to
        begun()
        started = time.monotonic() - self.progress.seconds  # once: saving takes time as well
        while not self.processes.agree(lambda: self.finished):
            rate = self._train_epoch(started)
            self._end_epoch(rate, started)

    @property
    def finished(self) -> bool:
        """Whether the plan is done, or too many epochs have gained nothing."""
        stuck = self.progress.epochs_without_gain >= self.settings.patience
        return stuck or self.part_done(self.progress.seconds, self.progress.epoch) >= 1.0

    def part_done(self, seconds: float, epochs: float) -> float:
        """Say which part of the plan is over, 0 to 1, after so many seconds and epochs."""
        if self.minutes is not None:
            return min(1.0, seconds / (60.0 * self.minutes))
        return min(1.0, epochs / self.settings.epochs)

    def _train_epoch(self, started: float) -> float:
        """Go on to the end of the data, or until the minutes are over; return tokens/s."""
        settings, progress = self.settings, self.progress
        batches = make_batches(
            self.train_set,
            batch_tokens=settings.batch_tokens,
            seed=self.seed,
            epoch=progress.epoch,
        )
        together = settings.accumulate * self.processes.count
        loss = torch.full((), progress.loss if self.processes.is_first else 0.0).to(self.device)
        begun, already = time.monotonic(), progress.tokens
        self.model.train()
        bar = tqdm(
            initial=progress.batches,
            total=len(batches),
            desc=f"epoch {progress.epoch + 1}",
            unit="batch",
            leave=False,
            mininterval=0.5,
            disable=not (sys.stderr.isatty() and self.processes.is_first),
        )
        while progress.batches < len(batches):
            done = self._part_done_now(started, progress.epoch + progress.batches / len(batches))
            if done >= 1.0:
                break
            group = batches[progress.batches : progress.batches + together]
            progress.step += 1
            progress.batches += len(group)
            loss += self.learner.update(group, learning_rate(settings, progress.step, done))
            progress.tokens += sum(len(example.target) + 1 for batch in group for example in batch)
            bar.update(len(group))
            if progress.step % 100 == 0:
                self._note_loss(loss)
                bar.set_postfix_str(f"loss {progress.loss / progress.tokens:.3f}")
            if progress.step % self.keeping.steps == 0 and progress.batches < len(batches):
                self._note_loss(loss)
                progress.seconds = time.monotonic() - started
                self._save()
        bar.close()
        self._note_loss(loss)
        return (progress.tokens - already) / (time.monotonic() - begun)

    def _part_done_now(self, started: float, epochs: float) -> float:
        """Say which part of the plan is over; where a clock decides, it is the first process's."""
        if self.minutes is None:
            return self.part_done(0.0, epochs)
        return self.processes.agree(lambda: self.part_done(time.monotonic() - started, epochs))

    def _note_loss(self, loss: torch.Tensor) -> None:
        """Write down the loss of the epoch so far; it stays with the first process."""
        total = self.processes.add_up(loss.clone())
        self.progress.loss = self._finite(float(total))
        loss.copy_(total if self.processes.is_first else torch.zeros_like(total))

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {self.progress.step}; "
                "lower the learning rate and start again, or resume from the last checkpoint"
            )
        return loss

    @torch.no_grad()
    def validation_loss(self, model: Translator) -> float:
        """Compute the loss on sentences that are not trained on."""
        loss_of = BatchLoss(model.eval(), self.settings.label_smoothing)
        total, tokens = 0.0, 0
        for batch in batches_of(self.validation_set, batch_tokens=4096):
            total += float(loss_of(*batch.to(self.device)))
            tokens += len(batch.real)
        return total / max(tokens, 1)

    def _end_epoch(self, rate: float, started: float) -> None:
        """Validate, keep what is best, write down how it went."""
        progress = self.progress
        progress.epoch += 1
        train_loss = progress.loss / max(progress.tokens, 1)
        progress.batches, progress.loss, progress.tokens = 0, 0.0, 0
        average = self.learner.whole_average()
        validation_loss, bleu = self.processes.agree(lambda: self._validate(average))
        best = self._finite(validation_loss) < progress.best_loss
        if best:
            progress.best_loss, progress.epochs_without_gain = validation_loss, 0
        else:
            progress.epochs_without_gain += 1
        progress.seconds = time.monotonic() - started
        row = {
            "epoch": progress.epoch,
            "step": progress.step,
            "train_loss": train_loss,
            "validation_loss": validation_loss,
            "validation_bleu": bleu,
            "tokens_per_second": rate,
            "minutes": progress.seconds / 60.0,
        }
        self.metrics.append(row)
        if self.processes.is_first:
            self._write_metrics()
            plot_loss(self.run.metrics, self.run.folder / "loss.png")
        self._save()  # after the row, which would be lost for good otherwise
        if best:
            self._keep_as_best()
        if self.processes.is_first:
            print(
                f"epoch {progress.epoch:3d}  step {progress.step:6d}  train {train_loss:.3f}  "
                f"validation {validation_loss:.3f}  BLEU {bleu:4.1f}  {rate:6.0f} tokens/s  "
                f"{progress.seconds / 60.0:5.1f} min{'  *' if best else ''}",
                flush=True,
            )

    def _validate(self, model: Translator) -> tuple[float, float]:
        """Compute the validation loss, and BLEU of a sample."""
        loss = self.validation_loss(model)
        if not math.isfinite(loss):
            return loss, 0.0
        sample = self.corpus.validation[:SAMPLE]
        translations = translate(
            model,
            *self.tokenizers,
            [pair.source for pair in sample],
            search=Greedy(),
        )
        references = [pair.reference for pair in sample]
        return loss, score(translations, references, tokenize=self.corpus.bleu_tokenizer).bleu

    def _keep_as_best(self) -> None:
        weights = whole(self.learner.average.state_dict())
        if self.processes.is_first:
            save_checkpoint(
                self.run.best,
                step=self.progress.step,
                tensors={"model": weights},
                state={
                    "config": self.config.definition,
                    "epoch": self.progress.epoch,
                    "validation_loss": self.progress.best_loss,
                },
                keep=1,
            )

    def _save(self) -> None:
        random_states: dict[str, object] = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random_states["cuda"] = torch.cuda.get_rng_state(self.device)
        everyones = self.processes.gather(random_states)
        learner = self.learner
        tensors = {"model": learner.model.state_dict(), "average": learner.average.state_dict()}
        tensors, optimizer = whole(tensors), whole(learner.optimizer.state_dict())
        if self.processes.is_first:
            save_checkpoint(
                self.run.checkpoints,
                step=self.progress.step,
                tensors=tensors,
                state={
                    "config": self.config.definition,
                    "metrics": self.metrics,
                    "optimizer": optimizer,
                    "averaged": int(learner.moving.n_averaged),
                    "random": everyones,
                    "progress": asdict(self.progress),
                },
                keep=self.keeping.last,
            )

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.run.check_definition(self.config, checkpoint)
        load_weights(self.learner.model, checkpoint.tensors["model"], path=checkpoint.path)
        load_weights(self.learner.average, checkpoint.tensors["average"], path=checkpoint.path)
        try:
            self._restore_state(checkpoint.state)
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{checkpoint.path} holds no state of a training: {error!r}"
            ) from error

    def _restore_state(self, state: dict[str, Any]) -> None:
        check_fields(Progress, state["progress"], Progress.RANGES)
        if not all(is_row(row, WRITTEN_DOWN) for row in state["metrics"]):
            raise ValueError("a figure of the metrics is missing")
        self.progress, self.metrics = Progress(**state["progress"]), state["metrics"]
        self.learner.moving.n_averaged.fill_(state["averaged"])
        load_moments(self.learner.optimizer, state["optimizer"])
        everyones = state["random"]
        if not everyones:
            raise ValueError("it holds no state of random numbers")
        if len(everyones) != self.processes.count:
            log.warning(
                "%s was saved by %d processes, and there are %d now: dropout and the order of "
                "updates will differ",
                *(self.run.checkpoints, len(everyones), self.processes.count),
            )
        if self.processes.number < len(everyones):
            self._set_random_state(everyones[self.processes.number])

    def _set_random_state(self, states: dict[str, Any]) -> None:
        torch.set_rng_state(states["cpu"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.metrics)
        write_atomically(self.run.metrics, lines.encode())
