r"""The Transformer of figure 1: an encoder and a decoder.

The paper's figure, from the bottom to the top: tokens are embedded, positional encodings are added,
the encoder turns the source into the memory, the decoder attends to the target so far and to the
memory, and the output layer computes a logit for every token of the vocabulary.
"""

from typing import Any

from torch import Tensor, nn

from common.tokenizer import BOS, PAD
from transformer_blocks import (
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)
from translation.translator import Translator


class Transformer(Seq2Seq, Translator):
    """An encoder-decoder Transformer (section 3), with the paper's base sizes as defaults.

    :class:`~transformer_blocks.Seq2Seq` computes it; this class builds its parts.

    Args:
        source_vocabulary: Number of source token ids; id 0 is padding.
        target_vocabulary: Number of target token ids; id 0 is padding.
        d_model: Hidden size.
        dropout: Dropout probability of sublayer outputs and of embeddings (section 5.4).
        max_length: Maximum number of tokens of a sentence.
        tie_embeddings: Whether target embeddings and output layer share their weights (section
            3.4).
        share_embeddings: Whether source and target have one embedding, too, as in the paper
            (section 3.4), because they have one vocabulary.
        sizes: Other arguments of :func:`~transformer_blocks.build_encoder` for both stacks:
            ``num_layers``, ``num_heads``, ``d_ff``, and ``residual``, which is ``PostNorm``, the
            paper's, or ``PreNorm``, easier to train.

    Raises:
        ValueError: If a size is not positive, or ``num_heads`` does not divide ``d_model``.

    Example:
        >>> import torch
        >>> model = Transformer(100, 100, num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> source = torch.tensor([[5, 6, 7, 0]])  # 0 is padding
        >>> target = torch.tensor([[2, 8, 9]])
        >>> model(source, target).shape  # logits of the next token, after each target token
        torch.Size([1, 3, 100])
    """

    output: nn.Linear
    source_embedding: TokenEmbedding
    target_embedding: TokenEmbedding
    positions: SinusoidalPositionalEncoding

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        d_model: int = 512,
        dropout: float = 0.1,
        max_length: int = 512,
        tie_embeddings: bool = True,
        share_embeddings: bool = False,
        **sizes: Any,
    ) -> None:
        sizes |= {"d_model": d_model, "dropout": dropout}
        source_embedding = TokenEmbedding(source_vocabulary, d_model)
        super().__init__(
            source_embedding,
            source_embedding if share_embeddings else TokenEmbedding(target_vocabulary, d_model),
            build_encoder(**sizes),
            build_decoder(**sizes),
            positions=SinusoidalPositionalEncoding(d_model, max_length=max_length),
            dropout=dropout,
            output=None if tie_embeddings else nn.Linear(d_model, target_vocabulary, bias=False),
            padding_id=PAD,
            begin_id=BOS,
        )
        self.max_length = max_length
        self.cross_attentions = [
            f"decoder.layers.{i}.cross_attention" for i in range(len(self.decoder.layers))
        ]

    @property
    def decoder_layers(self) -> list[nn.Module]:  # noqa: D102
        return list(self.decoder.layers)

    def read_layer(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.output(x if self.decoder.norm is None else self.decoder.norm(x))
