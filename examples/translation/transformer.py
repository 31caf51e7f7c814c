r"""The Transformer of figure 1: an encoder and a decoder.

The paper's figure, from the bottom to the top: tokens are embedded, positional encodings are added,
the encoder turns the source into the memory, the decoder attends to the target so far and to the
memory, and the output layer computes a logit for every token of the vocabulary.
"""

from torch import Tensor, nn

from transformer_blocks import (
    DecoderCache,
    Dropout,
    PostNorm,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    padding_mask,
)
from transformer_blocks.generation import IncrementalDecoder
from translation.translator import Attentions, Translator, share_weight


class Transformer(Translator):
    """An encoder-decoder Transformer (section 3), with the paper's base sizes as defaults.

    Args:
        source_vocabulary: Number of source token ids; id 0 is padding.
        target_vocabulary: Number of target token ids; id 0 is padding.
        num_layers: Number of layers of the encoder and of the decoder.
        d_model: Hidden size.
        num_heads: Number of heads of each attention.
        d_ff: Inner size of the feed-forward networks.
        dropout: Dropout probability of sublayer outputs and of embeddings (section 5.4).
        max_length: Maximum number of tokens of a sentence.
        residual: ``PostNorm``, the paper's, or ``PreNorm``, easier to train.
        tie_embeddings: Whether target embeddings and output layer share their weights (section
            3.4).
        share_embeddings: Whether source and target embeddings share their weights, too, as in the
            paper (section 3.4); both sides then have one vocabulary.

    Raises:
        ValueError: If a size is not positive, ``num_heads`` does not divide ``d_model``, or
            ``share_embeddings`` is set and the vocabularies differ in size.

    Example:
        >>> import torch
        >>> model = Transformer(100, 100, num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> source = torch.tensor([[5, 6, 7, 0]])  # 0 is padding
        >>> target = torch.tensor([[2, 8, 9]])
        >>> model(source, target).shape  # logits of the next token, after each target token
        torch.Size([1, 3, 100])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        num_layers: int = 6,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        max_length: int = 512,
        residual: type[Residual] = PostNorm,
        tie_embeddings: bool = True,
        share_embeddings: bool = False,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.attentions = [
            Attentions(title, [f"{stack}.layers.{i}.{kind}" for i in range(num_layers)], *sides)
            for title, stack, kind, sides in (
                ("Encoder self-attention", "encoder", "self_attention", ("source", "source")),
                ("Decoder self-attention", "decoder", "self_attention", ("target", "target")),
                ("Cross-attention", "decoder", "cross_attention", ("target", "source")),
            )
        ]
        self.source_embedding = TokenEmbedding(source_vocabulary, d_model)
        self.target_embedding = TokenEmbedding(target_vocabulary, d_model)
        self.positions = SinusoidalPositionalEncoding(d_model, max_length=max_length)
        self.dropout = Dropout(dropout)
        self.encoder = build_encoder(
            num_layers=num_layers,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            residual=residual,
        )
        self.decoder = build_decoder(
            num_layers=num_layers,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            residual=residual,
        )
        self.output = nn.Linear(d_model, target_vocabulary, bias=False)
        if tie_embeddings:
            self.output.weight = self.target_embedding.weight
        if share_embeddings:
            share_weight(self.source_embedding, self.target_embedding)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the source.

        Args:
            source: Source token ids, padded with 0, of shape (B, S).

        Returns:
            The memory, of shape (B, S, d_model), and its padding mask, of shape (B, 1, 1, S).
        """
        mask = padding_mask(source)
        x = self.dropout(self.positions(self.source_embedding(source)))  # (B, S, d_model)
        return self.encoder(x, mask=mask), mask

    def decode(
        self,
        target: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        *,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """Decode target tokens, attending to those before them and to the memory.

        Padding of the target needs no mask: it follows the real tokens, and the causal mask hides
        it from them.

        Args:
            target: Target token ids, begin token first, of shape (B, L).
            memory: The memory that :meth:`encode` returned, of shape (B, S, d_model).
            memory_mask: The padding mask of the memory, of shape (B, 1, 1, S).
            cache: Instead of the two, the cache that ``decoder.new_cache`` made of them. Then
                ``target`` holds the tokens that follow those of earlier calls.

        Returns:
            The vectors from which the output layer computes the logits, of shape (B, L, d_model).
        """
        x = self.embed_target(target, 0 if cache is None else cache.length)
        return self.decoder(x, memory, memory_mask=memory_mask, cache=cache)

    def embed_target(self, target: Tensor, offset: int) -> Tensor:
        """Embed target tokens, of shape (B, L), the first of them at position ``offset``.

        Returns:
            Vectors with positions, of shape (B, L, d_model).
        """
        return self.dropout(self.positions(self.target_embedding(target), offset=offset))

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:  # noqa: D102
        return self.decode(target, *self.encode(source))

    @property
    def decoder_layers(self) -> list[nn.Module]:  # noqa: D102
        return list(self.decoder.layers)

    def read_layer(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.output(x if self.decoder.norm is None else self.decoder.norm(x))

    def begin(self, source: Tensor) -> IncrementalDecoder:  # noqa: D102
        memory, memory_mask = self.encode(source)
        cache = self.decoder.new_cache(memory, memory_mask=memory_mask)
        return IncrementalDecoder(self.decoder, cache, embed=self.embed_target, output=self.output)
