"""Learning: how a language model is configured, what it learns from, and how it is measured."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from common.configuration import build_model
from common.run import Plan
from common.training import random_generator
from text.models import STYLES, LanguageModel
from transformer_blocks import linear_cross_entropy


@dataclass(frozen=True, kw_only=True)
class Config(Plan):
    """What a run is.

    Attributes:
        text: The file to learn from; None for the toy stories.
        style: One of :data:`text.models.STYLES`.
        batch_size: Pieces of text of an update.
        context: Tokens of such a piece, and most that the model reads at once.
        num_layers: Layers of the model.
        d_model: Its width.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks; with a gate, two thirds of it.
        dropout: Of sublayer outputs and embeddings.
    """

    text: str | None = None
    style: str = "today"
    batch_size: int = 16
    context: int = 128
    num_layers: int = 2
    d_model: int = 128
    num_heads: int = 4
    d_ff: int = 384
    dropout: float = 0.0

    def build(self, vocabulary: int) -> LanguageModel:
        """Build the model with fresh weights.

        Raises:
            UserError: If the settings describe none.
        """
        return build_model(
            lambda: STYLES[self.style](
                vocabulary,
                num_layers=self.num_layers,
                d_model=self.d_model,
                num_heads=self.num_heads,
                d_ff=self.d_ff,
                dropout=self.dropout,
                context=self.context,
            )
        )


class NextToken:
    """The task: to guess each next token; a :class:`common.training.Task`.

    Args:
        train: The stream to learn from. Shape (T,).
        validation: The stream to be tried on.
        config: Of the run.
        device: Where to compute.
    """

    def __init__(
        self, train: Tensor, validation: Tensor, config: Config, device: torch.device
    ) -> None:
        self.train, self.validation = train, validation
        self.config, self.device = config, device

    def batch(self, step: int) -> Tensor:
        """Cut pieces out of the text, at random; each with one token more, the last guess.

        Returns:
            Shape (batch_size, L + 1).
        """
        length = min(self.config.context + 1, len(self.train))
        random = random_generator(self.config.seed, "pieces", step)
        starts = [
            random.randrange(len(self.train) - length + 1) for _ in range(self.config.batch_size)
        ]
        return torch.stack([self.train[start : start + length] for start in starts])

    def loss(self, model: LanguageModel, step: int) -> tuple[Tensor, int]:  # noqa: D102
        tokens = self.batch(step).to(self.device)
        hidden, right = model.hidden(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        loss = linear_cross_entropy(hidden, model.embedding.weight, right, reduction="sum")
        return loss, len(right)

    def validate(self, model: LanguageModel) -> dict[str, float]:  # noqa: D102
        loss = text_loss(model, self.validation) / (len(self.validation) - 1)
        return {"validation_loss": loss, "validation_perplexity": math.exp(min(loss, 700.0))}


@torch.inference_mode()
def text_loss(model: LanguageModel, tokens: Tensor) -> float:
    """Sum minus the logarithms (nats) of the chances of all tokens but the first.

    A text is longer than the context, so it is read in windows that overlap by half: but for the
    first tokens of the text, every guess has half a context behind it at least.

    Args:
        model: In eval mode.
        tokens: A stream of ids. Shape (T,).
    """
    device = next(model.parameters()).device
    stride = max(1, model.context // 2)
    total, scored = 0.0, 0  # scored: targets so far; target i is tokens[i + 1]
    while scored < len(tokens) - 1:
        start = max(0, scored - (model.context - stride))
        end = min(len(tokens) - 1, start + model.context)
        window = tokens[start : end + 1].to(device)
        hidden = model.hidden(window[None, :-1])[0, scored - start :]
        right = window[1 + scored - start :]
        loss = linear_cross_entropy(hidden, model.embedding.weight, right, reduction="sum")
        total += float(loss)
        scored = end
    return total
