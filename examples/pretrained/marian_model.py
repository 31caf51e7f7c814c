"""Marian: the model, and the names of its weights in a published file.

Marian's encoder-decoder differs from figure 1 of the paper in a few points, each a line below:

- source, target and output layer share one embedding;
- in the positional encoding, all sines come before all cosines instead of alternating;
- the activation function is swish (``F.silu``);
- a bias is added to the logits;
- the padding token is the start token of every translation, and is never generated.

Next: ``sentence_pieces.py``, Marian's tokenizer, and ``marian_translator.py``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrained.loading import Config
from pretrained.weights import Origin, load_model
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
LAYER = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "self_attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.up_projection": "fc1",
    "feed_forward.down_projection": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
DECODER_LAYER = {
    **LAYER,
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
"""Published names of our modules. The names of ``SHARED`` all belong to one tensor."""

LEFT_OUT = r"model\.(encoder|decoder)\.embed_positions\.weight"
"""Positional encodings, which are computed here."""


class SinesThenCosines(SinusoidalPositionalEncoding):
    """The paper's positional encoding with its columns in another order: 0, 2, 4, ... 1, 3, 5, ...

    Args:
        d_model: Hidden size.
        max_length: Maximum number of positions.

    Example:
        >>> encoding = SinesThenCosines(4, max_length=8)(torch.zeros(1, 8, 4))
        >>> torch.allclose(encoding[0, :, 0], torch.arange(8.0).sin(), atol=1e-6)
        True
        >>> torch.allclose(encoding[0, :, 2], torch.arange(8.0).cos(), atol=1e-6)
        True
    """

    def __init__(self, d_model: int, *, max_length: int) -> None:
        super().__init__(d_model, max_length=max_length)
        self._reorder_columns()

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "SinusoidalPositionalEncoding":
        super()._apply(fn, recurse)  # recomputes the table
        self._reorder_columns()
        return self

    def _reorder_columns(self) -> None:
        self.table = torch.cat((self.table[:, 0::2], self.table[:, 1::2]), dim=1)


class Marian(nn.Module):
    """Marian's encoder and decoder.

    Args:
        vocabulary_size: Number of token ids of both languages together, V.
        d_model: Hidden size.
        num_layers: Number of layers of the encoder, and of the decoder.
        num_heads: Number of attention heads of each encoder layer, and of each decoder layer.
        d_ff: Inner size of the encoder's feed-forward networks, and of the decoder's.
        max_length: Maximum number of tokens of a sentence.
        activation: Activation function of the feed-forward networks.
        padding_id: Id of the padding token, which is also the start token of every translation.
        end_id: Id of the token that ends a sentence.
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
        """Encode source sentences.

        Args:
            source: Padded token ids, of shape (B, S).

        Returns:
            The memory, of shape (B, S, d_model), and its padding mask, of shape (B, 1, 1, S).
        """
        mask = padding_mask(source, self.padding_id)
        return self.encoder(self.embed(source), mask=mask), mask

    def decode(self, target: Tensor, cache: DecoderCache) -> Tensor:
        """Compute the logits of the token that follows each of the newest target tokens.

        Args:
            target: Token ids, of shape (B, L).
            cache: Keys and values of the memory and of the preceding target tokens, from
                ``decoder.new_cache(memory)``. Those of ``target`` are appended.

        Returns:
            Logits, of shape (B, L, V).
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
        """Load a published translation model.

        Args:
            folder: Folder that holds ``config.json`` and ``model.safetensors``.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "marian")
        config.values.setdefault("scale_embedding", False)  # the default of transformers
        config.expect(
            scale_embedding=True,
            static_position_embeddings=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            normalize_before=False,
            normalize_embedding=False,
            add_final_layer_norm=False,
            is_causal=True,
        )
        # Limited, because the positional encoding is computed before the tensors are compared.
        vocabulary_size, d_model = config.size("vocab_size"), config.size("d_model", most=2**13)
        padding_id = config.size("pad_token_id", least=0)
        num_layers = config.size("encoder_layers"), config.size("decoder_layers")
        num_heads = (
            config.heads("encoder_attention_heads", d_model),
            config.heads("decoder_attention_heads", d_model),
        )
        config.expect(
            decoder_vocab_size=vocabulary_size,
            decoder_start_token_id=padding_id,
            num_hidden_layers=num_layers[0],
            num_attention_heads=num_heads[0],
        )
        make = partial(
            cls,
            vocabulary_size=vocabulary_size,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=(config.size("encoder_ffn_dim"), config.size("decoder_ffn_dim")),
            max_length=config.size("max_position_embeddings", most=2**12),
            padding_id=padding_id,
            end_id=config.size("eos_token_id", least=0),
            activation=config.activation("activation_function"),
        )
        return load_model(make, folder, origins(num_layers), left_out=LEFT_OUT, dtype=dtype)


def origins(num_layers: tuple[int, int]) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each parameter and its origin in a published file, layer by layer."""
    yield "embedding.weight", Origin(SHARED)
    yield "output.weight", Origin(SHARED)
    yield "final_bias", Origin(("final_logits_bias",))
    stacks = ("encoder", num_layers[0], LAYER), ("decoder", num_layers[1], DECODER_LAYER)
    for stack, count, modules in stacks:
        for layer in range(count):
            for ours, theirs in modules.items():
                for kind in ("weight", "bias"):
                    name = f"model.{stack}.layers.{layer}.{theirs}.{kind}"
                    yield f"{stack}.layers.{layer}.{ours}.{kind}", Origin((name,))


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
