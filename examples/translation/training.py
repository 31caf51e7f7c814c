"""Training of translators: the batches, the loss and the validation for the training loop.

The loss is the cross-entropy of the next token with label smoothing (section 5.4): the target
distribution gives a little probability to every token, so that the model does not become
overconfident. It is computed with teacher forcing: the decoder reads the reference, shifted by one
position. The loss is summed over the real tokens and divided by their number; padding is left out.

After each epoch, the averaged weights are validated: by their loss on the validation sentences and
by BLEU of the first 500 of them, translated by greedy decoding. Those with the highest BLEU are
kept. In a terminal, the translation of one validation sentence is shown, too.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from common.display import OUTPUT, Sample
from common.distributed import Processes
from common.run import Run
from common.searches import Greedy
from common.tokenizer import Tokenizer
from common.training import Training
from transformer_blocks import linear_cross_entropy
from translation.batches import Batch, Batches, batches_of, collate, make_batches
from translation.corpus import Corpus
from translation.decoding import translate
from translation.encoding import training_examples
from translation.examples import Example, Examples, encode_pairs
from translation.pictures import plot_loss
from translation.presets import Config
from translation.scoring import score
from translation.translator import Translator

SAMPLE = 500  # validation sentences that are translated after each epoch


class TranslationLoss:
    """The label-smoothed cross-entropy of sentence pairs; a :class:`common.learner.Loss`.

    Only real tokens go through the output layer, which is a large part of the work.

    Args:
        label_smoothing: Share of the target probability that is spread over all tokens.
        compiled: Whether ``torch.compile`` compiles the model for training, once for all lengths.
    """

    def __init__(self, label_smoothing: float, *, compiled: bool = False) -> None:
        self.label_smoothing = label_smoothing
        self.compute_hidden = (
            torch.compile(compute_hidden, dynamic=True) if compiled else compute_hidden
        )

    def count(self, batch: Sequence[Example]) -> int:
        """Count the target tokens, ends included."""
        return len(batch) + int(Examples.of(batch).lengths[:, 1].sum())

    def collate(self, batch: Sequence[Example]) -> Batch:
        """Pad the sentences of a batch to one length."""
        return collate(batch)

    def loss(self, model: Translator, *tensors: Tensor) -> Tensor:
        """Sum the loss of all real target tokens.

        Args:
            model: The model. In training mode its compiled form is used, if there is one.
            tensors: The tensors of a :class:`~translation.batches.Batch`.
        """
        batch = Batch(*tensors)
        compute = self.compute_hidden if model.training else compute_hidden
        hidden = compute(model, batch.source, batch.target).flatten(0, 1)  # (B * L, d_model)
        if len(batch.real) < len(hidden):
            hidden = hidden.index_select(0, batch.real)
        right = batch.next_token.flatten()[batch.real]
        weight = model.output.weight
        return linear_cross_entropy(
            hidden, weight, right, label_smoothing=self.label_smoothing, reduction="sum"
        )


def compute_hidden(model: Translator, source: Tensor, target: Tensor) -> Tensor:
    """Compute the vectors that the output layer turns into logits, of shape (B, L, d_model)."""
    return model.hidden(source, target)


class TranslationTask(TranslationLoss):
    """The task of learning to translate a corpus; a :class:`common.task.Task`.

    Args:
        corpus: The sentence pairs.
        tokenizers: The tokenizers of the source and of the target.
        config: The configuration of the run.
        train_set: The training pairs as token ids.
        compiled: Whether ``torch.compile`` compiles the model for training.
    """

    unit = "tokens"

    def __init__(
        self,
        corpus: Corpus,
        tokenizers: tuple[Tokenizer, Tokenizer],
        config: Config,
        train_set: Examples,
        *,
        compiled: bool = False,
    ) -> None:
        super().__init__(config.label_smoothing, compiled=compiled)
        self.corpus, self.tokenizers, self.config = corpus, tokenizers, config
        self.train_set = train_set
        self.validation_set = encode_pairs(
            corpus.validation, *tokenizers, max_length=config.max_length
        )

    def batches(self, epoch: int) -> Batches:
        """Return the batches of an epoch: sentences of similar length together, in random order."""
        return make_batches(
            self.train_set,
            batch_tokens=self.config.batch_tokens,
            seed=self.config.seed,
            epoch=epoch,
        )

    def validate(self, model: Translator) -> dict[str, float]:
        """Compute the validation loss, and BLEU."""
        loss = self.validation_loss(model)
        bleu = self.validation_bleu(model) if math.isfinite(loss) else 0.0
        return {"validation_loss": loss, "validation_bleu": bleu}

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether BLEU is higher, or equal with a lower loss.

        BLEU still rises when the label-smoothed loss does no longer fall.
        """
        return _quality(new) > _quality(best)

    @torch.no_grad()
    def validation_loss(self, model: Translator) -> float:
        """Compute the mean loss per token of the validation sentences."""
        device = next(model.parameters()).device
        total, tokens = 0.0, 0
        for batch in batches_of(self.validation_set, batch_tokens=4096):
            total += float(self.loss(model.eval(), *batch.to(device)))
            tokens += len(batch.real)
        return total / max(tokens, 1)

    def validation_bleu(self, model: Translator) -> float:
        """Compute BLEU of greedy translations of the first validation sentences."""
        sample = self.corpus.validation[:SAMPLE]
        sources, references = ([pair[i] for pair in sample] for i in (0, 2))
        outputs = translate(model, *self.tokenizers, sources, search=Greedy())
        return score(outputs, references, tokenize=self.corpus.bleu_tokenizer).bleu

    def sample(self, model: Translator) -> Sample:
        """Translate a validation sentence, always the same one: one of middle length."""
        most = self.config.max_length
        fitting = [
            pair
            for pair in self.corpus.validation[:SAMPLE]
            if len(self.tokenizers[0].encode(pair.source)) < most
        ]
        if not fitting:
            return []
        pair = sorted(fitting, key=lambda pair: len(pair.source))[len(fitting) // 2]
        (output,) = translate(model, *self.tokenizers, [pair.source], search=Greedy())
        return [("source", pair.source), (OUTPUT, output), ("reference", pair.reference)]


def _quality(figures: dict[str, float]) -> tuple[float, float]:
    return figures["validation_bleu"], -figures["validation_loss"]


class TranslationTraining(Training[Translator, Sequence[Example]]):
    """The training of a translator.

    Args:
        run: The run.
        config: The run's configuration.
        corpus: The sentence pairs.
        device: The device to compute on.
        processes: The processes that train together; this one alone by default.
        save_steps: Number of updates after which a checkpoint is saved within an epoch.
        keep: Number of checkpoints that are kept.
        compiled: Whether ``torch.compile`` compiles the model.
        sharded: Whether each process holds only its shard of the model.
    """

    task: TranslationTask

    def __init__(
        self,
        run: Run[Config],
        config: Config,
        corpus: Corpus,
        *,
        device: torch.device,
        processes: Processes | None = None,
        save_steps: int = 1000,
        keep: int = 2,
        compiled: bool = False,
        sharded: bool = False,
    ) -> None:
        source, target = run.load_tokenizers(config)
        train_set = training_examples(run, config, corpus, (source, target))
        task = TranslationTask(corpus, (source, target), config, train_set, compiled=compiled)
        super().__init__(
            run,
            config,
            lambda: config.build(source.vocab_size, target.vocab_size),
            task,
            device=device,
            processes=processes,
            sharded=sharded,
            save_steps=save_steps,
            keep=keep,
            on_report=lambda: plot_loss(run.metrics, run.folder / "loss.png"),
            sample=task.sample,
        )
