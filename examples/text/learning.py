"""Learning: the configuration of a language model, its task, and its loss on a text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from common.run import Run, TrainingConfig
from common.terminal import counted
from common.training import Task, random_generator
from text.models import TextModel, build_text_model
from text.source import Text, encode_lines
from text.writing import generate
from transformer_blocks import greedy_search, linear_cross_entropy

SHOWN = 24  # tokens that are generated after each validation


@dataclass(frozen=True, kw_only=True)
class TextConfig(TrainingConfig):
    """The configuration of a run. With a gated feed-forward network, two thirds of ``d_ff`` count.

    Attributes:
        text: The training text; None for the toy stories.
        style: The style of the model's parts, "2017" or "today".
        batch_size: Number of sequences of a batch.
        context: Number of tokens of a sequence, and the most that the model processes at once.
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
    steps: int | None = 1000
    peak_rate: float | None = 2e-3
    warmup_steps: int = 200
    average: float = 0.99

    def build(self, *vocabularies: int) -> TextModel:
        """Build the model with fresh weights, for the number of token ids."""
        (vocabulary,) = vocabularies
        return build_text_model(vocabulary, style=self.style, context=self.context, **self.sizes)


class NextToken(Task):
    """The task of predicting each next token.

    Args:
        run: The run, whose tokenizer encodes the text.
        config: The configuration of the run.
        text: The text.
    """

    unit = "tokens"

    def __init__(self, run: Run[TextConfig], config: TextConfig, text: Text) -> None:
        self.config, self.text, (self.tokenizer,) = config, text, run.load_tokenizers(config)
        self.train, self.validation = (
            encode_lines(lines, self.tokenizer) for lines in (text.train, text.validation)
        )
        self.length = min(config.context + 1, len(self.train))  # the inputs and the last target
        self.summary = (
            f"{counted(len(text.train), 'training line')} of {len(self.train):,} tokens, "
            f"{counted(len(text.validation), 'validation line')}, "
            f"{counted(len(text.test), 'test line')} (cut from the end of the text), a vocabulary "
            f"of {self.tokenizer.vocab_size}, style {config.style}"
        )

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the random start positions of each batch's sequences.

        An epoch has as many batches as the text has room for without overlap.
        """
        number = math.ceil(len(self.train) / (self.config.batch_size * self.length))
        return [self._starts(epoch * number + i) for i in range(1, number + 1)]

    def _starts(self, number: int) -> list[int]:
        random = random_generator(self.config.seed, "pieces", number)
        ends = len(self.train) - self.length + 1
        return [random.randrange(ends) for _ in range(self.config.batch_size)]

    def count(self, batch: Sequence[int]) -> int:
        """Count the tokens that are predicted."""
        return len(batch) * (self.length - 1)

    def collate(self, batch: Sequence[int]) -> tuple[Tensor]:
        """Cut the sequences of a batch out of the text, of shape (B, L + 1)."""
        return (torch.stack([self.train[start : start + self.length] for start in batch]),)

    def loss(self, model: TextModel, *tensors: Tensor) -> Tensor:
        """Sum the cross-entropy of all tokens but the first of each sequence."""
        (tokens,) = tensors
        hidden, right = model.hidden(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        return linear_cross_entropy(hidden, model.embedding.weight, right, reduction="sum")

    def validate(self, model: TextModel) -> dict[str, float]:
        """Compute the mean loss per token and the perplexity of the validation text."""
        loss = text_loss(model, self.validation) / (len(self.validation) - 1)
        return {"validation_loss": loss, "validation_perplexity": math.exp(min(loss, 700.0))}

    def sample(self, model: TextModel) -> str:
        """Continue the beginning of a validation line, always the same one."""
        lines = self.text.validation
        prompt = " ".join(lines[len(lines) // 2].split()[:4])[:30]
        return generate(model, self.tokenizer, [prompt], greedy_search, length=SHOWN)[0]


@torch.inference_mode()
def text_loss(model: TextModel, tokens: Tensor) -> float:
    """Sum the negative log-probabilities (in nats) of all tokens but the first.

    A text is longer than the context, so it is read in windows that overlap by half: except at the
    beginning of the text, every prediction has at least half a context before it.

    Args:
        model: The model, in evaluation mode.
        tokens: The token ids of the text, of shape (T,).
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
