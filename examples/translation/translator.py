"""Translators: what this program asks of a model, whatever it is made of."""

from typing import NamedTuple

from torch import Tensor, nn

from transformer_blocks.generation import StepModel


class Attentions(NamedTuple):
    """The attention layers of a stack.

    Attributes:
        title: What they are called together.
        names: Of the modules, from the first layer to the last.
        queries: The side that looks, "source" or "target".
        keys: The side that is looked at.
    """

    title: str
    names: list[str]
    queries: str
    keys: str


class Translator(nn.Module):
    """Reads a sentence and scores the words of its translation; the base of all models here.

    Attributes:
        output: Scores words: maps what :meth:`hidden` gives to logits, (..., V); has no bias.
        max_length: Most tokens of a sentence, on either side.
        attentions: Where it can look, if it has attention.
    """

    output: nn.Linear
    max_length: int
    attentions: list[Attentions]

    @property
    def cross_attentions(self) -> list[str]:
        """Names of the layers that look from the translation into the source, first to last."""
        return [
            name
            for attentions in self.attentions
            for name in attentions.names
            if (attentions.queries, attentions.keys) == ("target", "source")
        ]

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Say what each position of a known translation knows of the token that follows it.

        Args:
            source: Token ids, padded with 0 at the end. Shape (B, S).
            target: Token ids, begin-of-sentence first, padded with 0 at the end. Shape (B, L).

        Returns:
            Shape (B, L, width of the output's input).
        """
        raise NotImplementedError

    def begin(self, source: Tensor) -> StepModel:
        """Read sentences, and be ready to write their translations step by step.

        Args:
            source: Token ids, padded with 0 at the end. Shape (N, S).

        Returns:
            What a search drives.
        """
        raise NotImplementedError

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Score every next token of a known translation.

        Args:
            source: Token ids, padded with 0 at the end. Shape (B, S).
            target: Token ids, begin-of-sentence first, padded with 0 at the end. Shape (B, L).

        Returns:
            Logits. Shape (B, L, V).
        """
        return self.output(self.hidden(source, target))
