"""Marian's encoder and decoder, and where their weights stand in a published file.

Few things differ from figure 1 of the paper, and each is a line below:

- one table embeds the words of both languages, and scores them at the end;
- all sines of a position stand before all cosines, instead of in turns;
- the feed-forward networks bend by swish (``F.silu``);
- a bias is added to the scores; padding, which begins every sentence, is never one of the words.

Next: ``sentence_pieces.py``, how Marian reads, and ``marian.py``, which translates.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrained.loading import WEIGHTS, Config, Origin, load_model
from transformer_blocks import (
    DecoderCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
    padding_mask,
)
from transformer_blocks.generation import IncrementalDecoder

SHARED = (
    *("model.shared.weight", "model.encoder.embed_tokens.weight"),
    *("model.decoder.embed_tokens.weight", "lm_head.weight"),
)
ATTENTION = {
    "query_projection": "q_proj",
    "key_projection": "k_proj",
    "value_projection": "v_proj",
    "output_projection": "out_proj",
}
INSIDE = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "self_attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.up_projection": "fc1",
    "feed_forward.down_projection": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
INSIDE_DECODER = {
    **INSIDE,
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
"""What our modules are called in a published file, where the first table stands for one tensor."""

LEFT_OUT = r"model\.(encoder|decoder)\.embed_positions\.weight"
"""The waves, which are computed here."""


class SinesThenCosines(SinusoidalPositionalEncoding):
    """The paper's waves in another order: columns 0, 2, 4, ... and then 1, 3, 5, ...

    Example:
        >>> waves = SinesThenCosines(4, max_length=8)(torch.zeros(1, 8, 4))
        >>> torch.allclose(waves[0, :, 0], torch.arange(8.0).sin())
        True
        >>> torch.allclose(waves[0, :, 2], torch.arange(8.0).cos())
        True
    """

    def __init__(self, d_model: int, *, max_length: int) -> None:
        super().__init__(d_model, max_length=max_length)
        self._sort()

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "SinusoidalPositionalEncoding":
        super()._apply(fn, recurse)  # which computes the table anew
        self._sort()
        return self

    def _sort(self) -> None:
        self.table = torch.cat((self.table[:, 0::2], self.table[:, 1::2]), dim=1)


class Marian(nn.Module):
    """Marian's encoder and decoder.

    Args:
        vocabulary_size: Number of token ids, of both languages together.
        d_model: Width of the model.
        num_layers: Layers of the encoder, and of the decoder.
        num_heads: Heads of the encoder's attentions, and of the decoder's.
        d_ff: Inner width of the encoder's feed-forward networks, and of the decoder's.
        max_length: Most tokens of a sentence.
        activation: The bend of the feed-forward networks.
        padding_id: The token that stands for nothing, and begins every translation.
        end_id: The token that ends a sentence.
    """

    final_bias: Tensor

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: tuple[int, int],
        num_heads: tuple[int, int],
        d_ff: tuple[int, int],
        max_length: int,
        padding_id: int,
        end_id: int = 0,
        activation: Callable[[Tensor], Tensor] = F.silu,
    ) -> None:
        super().__init__()
        self.padding_id, self.end_id, self.max_length = padding_id, end_id, max_length
        self.embedding = TokenEmbedding(vocabulary_size, d_model)
        self.positions = SinesThenCosines(d_model, max_length=max_length)
        self.encoder = build_encoder(
            num_layers=num_layers[0],
            d_model=d_model,
            num_heads=num_heads[0],
            d_ff=d_ff[0],
            dropout=0.0,
            activation=activation,
        )
        self.decoder = build_decoder(
            num_layers=num_layers[1],
            d_model=d_model,
            num_heads=num_heads[1],
            d_ff=d_ff[1],
            dropout=0.0,
            activation=activation,
        )
        self.output = nn.Linear(d_model, vocabulary_size, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("final_bias", torch.zeros(1, vocabulary_size))

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Read the source, ids of shape (B, S).

        Returns:
            The memory, shape (B, S, d_model), and its mask, shape (B, 1, 1, S).
        """
        mask = padding_mask(source, self.padding_id)
        return self.encoder(self.embed(source), mask=mask), mask

    def decode(self, target: Tensor, cache: DecoderCache) -> Tensor:
        """Score what follows each of the newest target tokens.

        Args:
            target: Ids. Shape (B, L).
            cache: What ``decoder.new_cache`` made of the memory; the tokens are added to it.

        Returns:
            Logits. Shape (B, L, V).
        """
        return self.logits(self.decoder(self.embed(target, cache.length), cache=cache))

    def embed(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Embed tokens, of shape (B, L), the first of them at position ``offset``.

        Returns:
            Vectors with positions, of shape (B, L, d_model).
        """
        return self.positions(self.embedding(tokens), offset=offset)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits, of shape (..., V), from hidden states, of shape (..., d_model)."""
        return self.output(hidden) + self.final_bias

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Marian":
        """Read a published translator.

        Args:
            folder: Holds ``config.json`` and ``model.safetensors``.
            dtype: What to compute in.

        Returns:
            The model, in eval mode.

        Raises:
            UserError: If a file is missing or damaged, or is no model of Marian's.
        """
        config = Config(folder / "config.json", "marian")
        config.values.setdefault("scale_embedding", False)  # what it means if nothing is said
        config.expect(
            scale_embedding=True,
            static_position_embeddings=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            normalize_before=False,
            normalize_embedding=False,
            add_final_layer_norm=False,
        )
        # The table of positions is computed, before and whether or not the file's tensors fit.
        vocabulary_size, d_model = config.size("vocab_size"), config.size("d_model", most=2**13)
        padding_id = config.size("pad_token_id", least=0)
        config.expect(decoder_vocab_size=vocabulary_size, decoder_start_token_id=padding_id)
        num_layers = config.size("encoder_layers"), config.size("decoder_layers")
        make = partial(
            cls,
            vocabulary_size=vocabulary_size,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=(
                config.heads("encoder_attention_heads", d_model),
                config.heads("decoder_attention_heads", d_model),
            ),
            d_ff=(config.size("encoder_ffn_dim"), config.size("decoder_ffn_dim")),
            max_length=config.size("max_position_embeddings", most=2**12),
            padding_id=padding_id,
            end_id=config.size("eos_token_id", least=0),
            activation=config.activation("activation_function"),
        )
        return load_model(
            make, folder / WEIGHTS, origins(num_layers), left_out=LEFT_OUT, dtype=dtype
        )


def origins(num_layers: tuple[int, int]) -> Iterator[tuple[str, Origin]]:
    """Tell where each of our parameters stands in a published file, layer by layer."""
    yield "embedding.weight", Origin(SHARED)
    yield "output.weight", Origin(SHARED)
    yield "final_bias", Origin(("final_logits_bias",))
    sides = ("encoder", num_layers[0], INSIDE), ("decoder", num_layers[1], INSIDE_DECODER)
    for side, count, modules in sides:
        for layer in range(count):
            for ours, theirs in modules.items():
                for kind in ("weight", "bias"):
                    name = f"model.{side}.layers.{layer}.{theirs}.{kind}"
                    yield f"{side}.layers.{layer}.{ours}.{kind}", Origin((name,))


class MarianSteps(IncrementalDecoder):
    """Decodes translations with a Marian model.

    Args:
        model: The model, in evaluation mode.
        source: Source ids with padding, of shape (N, S).
        max_length: Maximum number of tokens to generate; the last of them is the end token.
        suppressed: Ids that are never generated besides padding: those of the embedding beyond the
            vocabulary.
    """

    def __init__(
        self, model: Marian, source: Tensor, *, max_length: int, suppressed: Sequence[int] = ()
    ) -> None:
        memory, memory_mask = model.encode(source)
        cache = model.decoder.new_cache(memory, memory_mask=memory_mask)
        super().__init__(model.decoder, cache, embed=model.embed, output=model.logits)
        self.end_id, self.max_length = model.end_id, max_length
        self.suppressed = torch.tensor([model.padding_id, *suppressed], device=source.device)

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens, of shape (N,); return the logits of the next, (N, V)."""
        # Suppressed before the softmax, as in training: the weights of padding are not trained.
        logits = super().step(tokens).index_fill_(1, self.suppressed, -math.inf)
        if self.cache.length == self.max_length:
            logits.fill_(-math.inf)
            logits[:, self.end_id] = 0.0  # a probability of 1
        return logits
