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

from common.run import Run
from common.training import Task
from transformer_blocks import greedy_search, linear_cross_entropy
from translation.batches import Batch, Example, batches_of, collate, encode_pairs, make_batches
from translation.decoding import TrainedTranslator, translate
from translation.pairs import Corpus
from translation.presets import TranslatorConfig
from translation.scoring import score
from translation.translator import Translator

SAMPLE = 500  # validation sentences that are translated after each epoch


class TranslationLoss:
    """The label-smoothed cross-entropy, a part of a :class:`common.training.Task`.

    Only real tokens go through the output layer, which is a large part of the work.

    Args:
        label_smoothing: Share of the target probability that is spread over all tokens.
    """

    def __init__(self, label_smoothing: float) -> None:
        self.label_smoothing = label_smoothing

    def count(self, batch: Sequence[Example]) -> int:
        """Count the target tokens, ends included."""
        return len(batch) + sum(len(target) for _, target in batch)

    collate = staticmethod(collate)

    def loss(self, model: Translator, *tensors: Tensor) -> Tensor:
        """Sum the loss of all real target tokens.

        Args:
            model: The model.
            tensors: The tensors of a :class:`~translation.batches.Batch`.
        """
        batch = Batch(*tensors)
        hidden = model.hidden(batch.source, batch.target).flatten(0, 1)  # (B * L, d_model)
        if len(batch.real) < len(hidden):
            hidden = hidden.index_select(0, batch.real)
        right = batch.next_token.flatten()[batch.real]
        weight = model.output.weight
        return linear_cross_entropy(
            hidden, weight, right, label_smoothing=self.label_smoothing, reduction="sum"
        )


class TranslationTask(TranslationLoss, Task):
    """The task of learning to translate a corpus.

    Args:
        run: The run, whose tokenizers encode the corpus.
        config: The run's configuration.
        corpus: The sentence pairs.
    """

    unit = "tokens"

    def __init__(
        self, run: Run[TranslatorConfig], config: TranslatorConfig, corpus: Corpus
    ) -> None:
        super().__init__(config.label_smoothing)
        self.run, self.config, self.corpus = run, config, corpus
        source, target = run.load_tokenizers(config)
        self.tokenizers = source, target
        self.train_set, self.validation_set = (
            encode_pairs(pairs, source, target, max_length=config.max_length)
            for pairs in (corpus.train, corpus.validation)
        )
        sizes = f"{source.vocab_size} and {target.vocab_size}"
        self.summary = f"{corpus.sizes}, preset {config.preset}, vocabularies of {sizes}"

    def batches(self, epoch: int) -> list[list[Example]]:
        """Return the batches of an epoch: sentences of similar length together, in random order."""
        most, seed = self.config.batch_tokens, self.config.seed
        return make_batches(self.train_set, batch_tokens=most, seed=seed, epoch=epoch)

    def validate(self, model: Translator) -> dict[str, float]:
        """Compute the validation loss, and BLEU."""
        loss = self.validation_loss(model)
        bleu = self.validation_bleu(model) if math.isfinite(loss) else 0.0
        return {"validation_loss": loss, "validation_bleu": bleu}

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether BLEU is higher, or equal with a lower loss.

        BLEU still rises when the label-smoothed loss does no longer fall.
        """
        ranks = [(each["validation_bleu"], -each["validation_loss"]) for each in (new, best)]
        return ranks[0] > ranks[1]

    @torch.no_grad()
    def validation_loss(self, model: Translator) -> float:
        """Compute the mean loss per token of the validation sentences."""
        device = next(model.parameters()).device
        total, tokens = 0.0, 0
        for batch in batches_of(self.validation_set, batch_tokens=4096):
            total += float(self.loss(model, *batch.to(device)))
            tokens += len(batch.real)
        return total / max(tokens, 1)

    def validation_bleu(self, model: Translator) -> float:
        """Compute BLEU of greedy translations of the first validation sentences."""
        sample = self.corpus.validation[:SAMPLE]
        sources, references = ([pair[i] for pair in sample] for i in (0, 2))
        outputs = self.translate(model, sources)
        return score(outputs, references, tokenize=self.corpus.bleu_tokenizer).bleu

    def translate(self, model: Translator, sentences: Sequence[str]) -> list[str]:
        """Translate sentences by greedy decoding."""
        trained = TrainedTranslator(self.config, model, *self.tokenizers)
        return translate(trained, sentences, search=greedy_search)

    def sample(self, model: Translator) -> str:
        """Translate a validation sentence, always the same one: one of middle length."""
        sources = sorted((pair.source for pair in self.corpus.validation[:SAMPLE]), key=len)
        source = sources[len(sources) // 2]
        return f"{source} → {self.translate(model, [source])[0]}"
