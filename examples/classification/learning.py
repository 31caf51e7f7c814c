"""Learning: how a classifier is configured, what it learns from, and how it is asked."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classification.data import Data
from classification.models import BagClassifier, EncoderClassifier
from classification.reviews import Review
from common.batching import group_by_length, pad
from common.configuration import build_model
from common.run import Plan
from common.tokenizer import BOS, Tokenizer
from common.training import random_generator

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Config(Plan):
    """What a run is.

    Attributes:
        train_file: Labelled texts to learn from; None for the toy reviews.
        test_file: Those to be tried on.
        labels: In the order of the model's scores.
        batch_size: Texts of an update.
        num_layers: Layers of the encoder.
        d_model: Width of the model.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks.
        dropout: Of sublayer outputs and embeddings.
        max_length: Most tokens of a text, the mark included; longer ones are cut.
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

    def build_encoder(self, vocabulary: int) -> EncoderClassifier:
        """Build the encoder with fresh weights.

        Raises:
            UserError: If its sizes do not go together.
        """
        return build_model(
            lambda: EncoderClassifier(
                vocabulary,
                len(self.labels),
                num_layers=self.num_layers,
                d_model=self.d_model,
                num_heads=self.num_heads,
                d_ff=self.d_ff,
                dropout=self.dropout,
                max_length=self.max_length,
            )
        )

    def build_bag(self, vocabulary: int) -> BagClassifier:
        """Build the baseline with fresh weights."""
        return build_model(
            lambda: BagClassifier(vocabulary, len(self.labels), d_model=self.d_model)
        )


class Classification:
    """The task: to guess the label of a text; a :class:`common.training.Task`.

    Args:
        data: The texts.
        tokenizer: Cuts them.
        config: Of the run.
        device: Where to compute.
    """

    def __init__(
        self, data: Data, tokenizer: Tokenizer, config: Config, device: torch.device
    ) -> None:
        self.config, self.device, self.tokenizer = config, device, tokenizer
        self.texts, self.answers = self._encode(data.train)
        self.validation = self._encode(data.validation)
        self._order: tuple[int, list[int]] = (-1, [])

    def _encode(self, reviews: Sequence[Review]) -> tuple[list[list[int]], Tensor]:
        texts = encode([review.text for review in reviews], self.tokenizer, self.config.max_length)
        return texts, label_numbers(reviews, self.config.labels)

    def batch(self, step: int) -> list[int]:
        """Say which training texts an update reads: each text once an epoch, in any order."""
        size, count = self.config.batch_size, len(self.texts)
        epoch, place = divmod(step - 1, -(-count // size))
        if self._order[0] != epoch:
            order = list(range(count))
            random_generator(self.config.seed, "order", epoch).shuffle(order)
            self._order = epoch, order
        return self._order[1][place * size : (place + 1) * size]

    def loss(self, model: nn.Module, step: int) -> tuple[Tensor, int]:  # noqa: D102
        chosen = self.batch(step)
        logits = model(pad([self.texts[i] for i in chosen]).to(self.device))  # (B, classes)
        right = self.answers[chosen].to(self.device)
        return F.cross_entropy(logits, right, reduction="sum"), len(chosen)

    def validate(self, model: nn.Module) -> dict[str, float]:  # noqa: D102
        texts, right = self.validation
        chances = predict(model, texts)
        loss = F.nll_loss(chances.log(), right)
        accuracy = (chances.argmax(1) == right).double().mean()
        return {"validation_loss": float(loss), "validation_accuracy": float(accuracy)}


def encode(texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """Turn texts into ids, with the mark first that the encoder answers from; cut long ones."""
    encoded = [[BOS, *ids] for ids in tokenizer.encode_many(texts)]
    if too_long := sum(len(ids) > max_length for ids in encoded):
        log.warning(f"texts that were cut, since the model reads {max_length} tokens: {too_long:,}")
    return [ids[:max_length] for ids in encoded]


def label_numbers(reviews: Sequence[Review], labels: Sequence[str]) -> Tensor:
    """Give the place of each review's label. Shape (N,)."""
    places = {label: place for place, label in enumerate(labels)}
    return torch.tensor([places[review.label] for review in reviews])


@torch.inference_mode()
def predict(
    model: nn.Module,
    texts: Sequence[Sequence[int]],
    *,
    progress: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """Ask a model for the labels of texts.

    Args:
        model: In eval mode.
        texts: As :func:`encode` gives them.
        progress: Told how many texts a batch has finished.

    Returns:
        The probability of each label, in the order of ``texts``. Shape (N, classes).
    """
    device = next(model.parameters()).device
    chances: dict[int, Tensor] = {}
    for chosen in group_by_length([len(text) for text in texts], 4096):
        logits = model(pad([texts[i] for i in chosen]).to(device))
        chances.update(zip(chosen, logits.double().softmax(-1).cpu(), strict=True))
        progress(len(chosen))
    return torch.stack([chances[i] for i in range(len(texts))])


def confusion(right: Tensor, guessed: Tensor, classes: int) -> Tensor:
    """Count guesses: a row for each right label, a column for each guessed one.

    Example:
        >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2)
        tensor([[1, 1],
                [0, 1]])
    """
    return torch.bincount(right * classes + guessed, minlength=classes**2).view(classes, classes)
