"""Translators: the interface of the models that translate."""

from collections.abc import Sequence

from torch import Tensor, nn

from transformer_blocks.generation import StepModel


class Translator(nn.Module):
    """The base class of all models that translate.

    Attributes:
        output: The output layer, from the vectors of :meth:`hidden` to V logits, without bias.
        max_length: Maximum number of tokens of a sentence, on either side.
        cross_attentions: Names of the cross-attention layers, first to last; empty for a model
            without attention.
    """

    output: nn.Linear
    max_length: int
    cross_attentions: list[str]

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the inputs of the output layer for a known translation (teacher forcing).

        Args:
            source: Source token ids, padded with 0 at the end, of shape (B, S).
            target: Target token ids, begin token first, padded with 0 at the end, of shape (B, L).

        Returns:
            A vector for each target position, of shape (B, L, ``output.in_features``).
        """
        raise NotImplementedError

    @property
    def decoder_layers(self) -> Sequence[nn.Module]:
        """The layers of the decoder whose outputs :meth:`read_layer` reads; none by default."""
        return ()

    def read_layer(self, x: Tensor) -> Tensor:
        """Compute logits from the output of a decoder layer, as the model does after the last one.

        Args:
            x: Output of one of the :attr:`decoder_layers`, of shape (B, L, d_model).

        Returns:
            Logits, of shape (B, L, V).
        """
        return self.output(x)

    def begin(self, source: Tensor) -> StepModel:
        """Encode sentences and prepare to decode their translations step by step.

        Args:
            source: Source token ids, padded with 0 at the end, of shape (N, S).

        Returns:
            The step model that a search decodes with.
        """
        raise NotImplementedError

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the logits of every next token of a known translation.

        Args:
            source: Source token ids, padded with 0 at the end, of shape (B, S).
            target: Target token ids, begin token first, padded with 0 at the end, of shape (B, L).

        Returns:
            Logits, of shape (B, L, V).
        """
        return self.output(self.hidden(source, target))
