"""Training: read a batch, guess each next word, learn from the error, and keep the best.

The loss is the cross-entropy of the next token with label smoothing (section 5.4): the target gives
a little of the probability to every word, so that the model never grows surer than it should. It is
summed over the real tokens and divided by their number; padding takes no part.

What is kept and used is a moving average of the weights over the last updates: each step with a
high learning rate overshoots, the average of many does not.

A training is planned in epochs or in minutes; the learning rate rises, then falls to zero at the
planned end. One planned in epochs that is stopped and resumed ends with the same bits as one that
never stopped; one planned in minutes depends on the clock.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from transformer_blocks import linear_cross_entropy, paper_rate
from translation.batches import Example, batches_of, collate, encode_pairs, make_batches
from translation.checkpoint import Checkpoint, latest_checkpoint, load_weights, save_checkpoint
from translation.corpus import Corpus, Pair
from translation.decoding import translate
from translation.errors import UserError
from translation.pictures import PLOTTED, plot_loss
from translation.presets import Settings
from translation.run import Run
from translation.scoring import score
from translation.searches import Greedy
from translation.tokenizer import PAD, Tokenizer
from translation.translator import Translator

log = logging.getLogger(__name__)

SAMPLE = 200  # validation sentences that are translated after each epoch


@dataclass
class Progress:
    """How far a training has come; part of every checkpoint."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    epochs_without_gain: int = 0


def batch_loss(
    model: Translator, source: Tensor, target: Tensor, next_token: Tensor, label_smoothing: float
) -> tuple[Tensor, int]:
    """Compute the summed loss of a batch, with the number of its real tokens.

    Only real tokens are scored: the output projection is a large part of the work, and what it
    would say about padding is thrown away.
    """
    real = next_token != PAD
    hidden = model.hidden(source, target)[real]  # (tokens, d_model)
    loss = linear_cross_entropy(
        hidden, model.output.weight, next_token[real], label_smoothing=label_smoothing
    )
    return loss, len(hidden)


def learning_rate(settings: Settings, step: int, progress: float) -> float:
    """Compute the rate of an update.

    Args:
        settings: With a peak rate, the rate rises to it linearly and falls linearly to zero;
            without one it is the paper's (section 5.3).
        step: The update, counted from 1.
        progress: Part of the planned training that is over, 0 to 1.
    """
    if settings.peak_rate is None:
        return paper_rate(step, d_model=settings.d_model, warmup_steps=settings.warmup_steps)
    return settings.peak_rate * min(step / settings.warmup_steps, 1.0 - progress)


def averaged(model: nn.Module, keep: float) -> AveragedModel:
    """Start a moving average of a model's weights that forgets its beginning fast."""

    def update(average: Sequence[Tensor], current: Sequence[Tensor], count: Tensor | int) -> None:
        young = (1.0 + float(count)) / (10.0 + float(count))
        get_ema_multi_avg_fn(min(keep, young))(average, current, count)

    return AveragedModel(model, multi_avg_fn=update)


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
    ) -> None:
        self.run, self.settings, self.corpus, self.tokenizers = run, settings, corpus, tokenizers
        self.seed, self.device, self.minutes = seed, device, minutes
        self.train_set = self._encode(corpus.train)
        self.validation_set = self._encode(corpus.validation)
        torch.manual_seed(seed)
        source, target = tokenizers
        self.model = settings.build(source.vocab_size, target.vocab_size).to(device)
        self.average = averaged(self.model, settings.average)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.progress = Progress()

    def _encode(self, pairs: Sequence[Pair]) -> list[Example]:
        return encode_pairs(pairs, *self.tokenizers, max_length=self.settings.max_length)

    def resume(self) -> bool:
        """Go back to the last checkpoint, if there is one; tell whether there was."""
        checkpoint = latest_checkpoint(self.run.checkpoints)
        if checkpoint is not None:
            self._restore(checkpoint)
            best = latest_checkpoint(self.run.best)
            if best is None or (
                best.step < self.progress.step and not self.progress.epochs_without_gain
            ):
                self._keep_as_best()  # it was lost, or the process died before it was kept
        self._forget_later_rows()
        return checkpoint is not None

    def fit(self) -> None:
        """Train until the plan is done or nothing is gained any more."""
        while not self.finished:
            started = time.monotonic() - self.progress.seconds
            train_loss, rate = self._train_epoch(started)
            self._end_epoch(train_loss, rate, started)

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

    def _train_epoch(self, started: float) -> tuple[float, float]:
        """Go once over the data, or until the minutes are over; return loss and tokens/s."""
        settings, progress = self.settings, self.progress
        batches = make_batches(
            self.train_set,
            batch_tokens=settings.batch_tokens,
            seed=self.seed,
            epoch=progress.epoch,
        )
        total = torch.zeros((), device=self.device)
        tokens = 0
        begun = time.monotonic()
        self.model.train()
        bar = tqdm(
            batches,
            desc=f"epoch {progress.epoch + 1}",
            unit="batch",
            leave=False,
            mininterval=0.5,
            disable=not sys.stderr.isatty(),
        )
        for number, examples in enumerate(bar):
            now = time.monotonic()
            done = self.part_done(now - started, progress.epoch + number / len(batches))
            if done >= 1.0:
                break
            progress.step += 1
            loss, count = self._update(examples, learning_rate(settings, progress.step, done))
            total += loss
            tokens += count
            if progress.step % 100 == 0:
                bar.set_postfix_str(f"loss {self._finite(total / tokens):.3f}")
        bar.close()
        progress.epoch += 1
        rate = tokens / (time.monotonic() - begun)
        return self._finite(total / max(tokens, 1)), rate

    def _update(self, examples: Sequence[Example], rate: float) -> tuple[Tensor, int]:
        """Learn from one batch; return its summed loss and its number of tokens."""
        batch = collate(examples).to(self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss, count = batch_loss(
                self.model, *batch, label_smoothing=self.settings.label_smoothing
            )
        self.optimizer.zero_grad()
        (loss / max(count, 1)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.average.update_parameters(self.model)
        return loss.detach(), count

    def _finite(self, loss: Tensor | float) -> float:
        value = float(loss)
        if not math.isfinite(value):
            raise UserError(
                f"the loss is {value} at step {self.progress.step}; "
                "lower the learning rate and start again, or resume from the last checkpoint"
            )
        return value

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Compute the loss of the averaged weights on sentences that are not trained on."""
        model = self._best_model()
        model.eval()
        total, tokens = 0.0, 0
        for batch in batches_of(self.validation_set, batch_tokens=4096):
            loss, count = batch_loss(
                model, *batch.to(self.device), label_smoothing=self.settings.label_smoothing
            )
            total += float(loss)
            tokens += count
        return total / max(tokens, 1)

    def _best_model(self) -> Translator:
        module = self.average.module
        if not isinstance(module, Translator):
            raise TypeError(f"the average must be of a Translator, got {type(module).__name__}")
        return module

    def _end_epoch(self, train_loss: float, rate: float, started: float) -> None:
        """Validate, keep what is best, write down how it went."""
        progress, model = self.progress, self._best_model()
        validation_loss = self._finite(self.validation_loss())
        sample = self.corpus.validation[:SAMPLE]
        translations = translate(
            model, *self.tokenizers, [pair.source for pair in sample], search=Greedy()
        )
        bleu = score(
            translations, [pair.target for pair in sample], tokenize=self.corpus.bleu_tokenizer
        ).bleu
        best = validation_loss < progress.best_loss
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
        with self.run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        plot_loss(self.run.metrics, self.run.folder / "loss.png")
        self._save()  # after the row, which would be lost for good otherwise
        if best:
            self._keep_as_best()
        print(
            f"epoch {progress.epoch:3d}  step {progress.step:6d}  train {train_loss:.3f}  "
            f"validation {validation_loss:.3f}  BLEU {bleu:4.1f}  {rate:6.0f} tokens/s  "
            f"{progress.seconds / 60.0:5.1f} min{'  *' if best else ''}",
            flush=True,
        )

    def _keep_as_best(self) -> None:
        save_checkpoint(
            self.run.best,
            step=self.progress.step,
            tensors={"model": self._best_model().state_dict()},
            state={"epoch": self.progress.epoch, "validation_loss": self.progress.best_loss},
            keep=1,
        )

    def _save(self) -> None:
        random_states: dict[str, object] = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random_states["cuda"] = torch.cuda.get_rng_state(self.device)
        save_checkpoint(
            self.run.checkpoints,
            step=self.progress.step,
            tensors={
                "model": self.model.state_dict(),
                "average": self._best_model().state_dict(),
            },
            state={
                "optimizer": self.optimizer.state_dict(),
                "averaged": int(self.average.n_averaged),
                "random": random_states,
                "progress": asdict(self.progress),
            },
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        load_weights(self.model, checkpoint.tensors["model"], path=checkpoint.path)
        load_weights(self._best_model(), checkpoint.tensors["average"], path=checkpoint.path)
        state = checkpoint.state
        self.average.n_averaged.fill_(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.device)
        self.progress = Progress(**state["progress"])

    def _forget_later_rows(self) -> None:
        """Drop lines of ``metrics.jsonl`` that were written after the checkpoint."""
        if not self.run.metrics.is_file():
            return
        lines = self.run.metrics.read_text(encoding="utf-8", errors="replace").split("\n")
        kept = []
        for line in lines:
            try:
                row = json.loads(line)
                if row["epoch"] <= self.progress.epoch and row.keys() >= PLOTTED:
                    kept.append(line + "\n")
            except (AttributeError, KeyError, TypeError, ValueError):
                continue  # a line that a kill cut off
        partial = self.run.metrics.with_name(".metrics.jsonl.part")
        partial.write_text("".join(kept), encoding="utf-8")
        partial.replace(self.run.metrics)
