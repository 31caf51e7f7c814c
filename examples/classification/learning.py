"""Learning: the configuration of a classifier, its task, and its predictions."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classification.data import Data
from classification.models import EncoderClassifier
from classification.reviews import Review
from common.batching import group_by_length, pad
from common.run import Run, TrainingConfig
from common.terminal import counted
from common.tokenizer import BOS, Tokenizer
from common.training import Task, random_generator

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TrainingConfig):
    """The configuration of a run.

    Attributes:
        train_file: The labelled training texts; None for the toy reviews.
        test_file: The labelled test texts; None for the toy reviews.
        labels: The labels, in the order of the model's logits.
        batch_size: Number of texts of a batch.
        max_length: Maximum number of tokens of a text, the begin token included; longer texts
            are truncated.
    """

    train_file: str | None = None
    test_file: str | None = None
    labels: list[str] = field(default_factory=list)
    batch_size: int = 64
    num_layers: int = 2
    d_model: int = 64
    num_heads: int = 4
    d_ff: int = 256
    dropout: float = 0.1
    max_length: int = 256
    steps: int | None = 2000
    peak_rate: float | None = 1.5e-3
    warmup_steps: int = 100
    average: float = 0.99

    def build(self, *vocabularies: int) -> EncoderClassifier:
        """Build the model with fresh weights, for the number of token ids."""
        (vocabulary,), classes = vocabularies, len(self.labels)
        return EncoderClassifier(vocabulary, classes, max_length=self.max_length, **self.sizes)


class Classification(Task):
    """The task of predicting the label of a text.

    Args:
        run: The run, whose tokenizer encodes the texts.
        config: The configuration of the run.
        data: The texts and their labels.
    """

    unit = "texts"

    def __init__(self, run: Run[ClassifierConfig], config: ClassifierConfig, data: Data) -> None:
        self.config, (self.tokenizer,) = config, run.load_tokenizers(config)
        self.texts, self.labels = self._encode(data.train)
        self.validation = self._encode(data.validation)
        held_out = " (held out from the training file)" if config.train_file else ""
        self.summary = (
            f"{counted(len(data.train), 'training text')}, "
            f"{counted(len(data.validation), 'validation text')}{held_out}, "
            f"{counted(len(data.test), 'test text')}, {len(config.labels)} labels, "
            f"a vocabulary of {self.tokenizer.vocab_size}"
        )

    def _encode(self, reviews: Sequence[Review]) -> tuple[list[list[int]], Tensor]:
        texts = encode([review.text for review in reviews], self.tokenizer, self.config.max_length)
        return texts, label_numbers(reviews, self.config.labels)

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the indices of the training texts of each batch: every text once, shuffled."""
        order = list(range(len(self.texts)))
        random_generator(self.config.seed, "order", epoch).shuffle(order)
        size = self.config.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    def count(self, batch: Sequence[int]) -> int:
        """Count the texts of a batch."""
        return len(batch)

    def collate(self, batch: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the padded token ids of a batch, of shape (B, L), and the labels, (B,)."""
        return pad([self.texts[i] for i in batch]), self.labels[list(batch)]

    def loss(self, model: nn.Module, *tensors: Tensor) -> Tensor:
        """Sum the cross-entropy of the labels of a batch."""
        tokens, labels = tensors
        return F.cross_entropy(model(tokens), labels, reduction="sum")

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Compute the mean loss and the accuracy on the validation texts."""
        texts, right = self.validation
        probabilities = predict(model, texts)
        loss = F.nll_loss(probabilities.log(), right)
        accuracy = (probabilities.argmax(1) == right).float().mean()
        return {"validation_loss": float(loss), "validation_accuracy": float(accuracy)}


def encode(texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """Encode texts, with the begin token, whose output is classified, first; truncate long ones."""
    encoded = [[BOS, *ids] for ids in tokenizer.encode_many(texts)]
    if too_long := sum(len(ids) > max_length for ids in encoded):
        log.warning(f"{counted(too_long, 'text')} truncated to the model's {max_length} tokens")
    return [ids[:max_length] for ids in encoded]


def label_numbers(reviews: Sequence[Review], labels: Sequence[str]) -> Tensor:
    """Return the index of each review's label, of shape (N,)."""
    indices = {label: index for index, label in enumerate(labels)}
    return torch.tensor([indices[review.label] for review in reviews])


@torch.inference_mode()
def predict(model: nn.Module, texts: Sequence[Sequence[int]]) -> Tensor:
    """Compute the probabilities of the labels of texts.

    Args:
        model: The model, in evaluation mode.
        texts: The token ids of each text, as :func:`encode` returns them.

    Returns:
        The probability of each label, in the order of ``texts``, of shape (N, classes).
    """
    device = next(model.parameters()).device
    probabilities: dict[int, Tensor] = {}
    for chosen in group_by_length([len(text) for text in texts], 4096):
        logits = model(pad([texts[i] for i in chosen]).to(device))
        probabilities.update(zip(chosen, logits.cpu().double().softmax(-1), strict=True))
    return torch.stack([probabilities[i] for i in range(len(texts))])
