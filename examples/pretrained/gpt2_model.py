"""GPT-2, and where its weights stand in a published file.

"Language Models are Unsupervised Multitask Learners" (Radford et al. 2019,
https://cdn.openai.com/better-language-models/language_models.pdf, section 2.3) leaves out the half
of the paper's model that reads another sentence. What is left is a stack of self-attention and
feed-forward networks in which nobody looks ahead: our encoder with ``causal=True``. Each part is
normalised before instead of after (:class:`~transformer_blocks.PreNorm`), positions are learned,
and one table embeds words and scores them.

Next: ``byte_pairs.py``, how GPT-2 reads, and ``gpt2.py``, which writes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from pretrained.loading import ACTIVATIONS, WEIGHTS, Config, Origin, load_model
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    SelfAttentionCache,
)

INSIDE = {
    "self_attention_residual.norm": "ln_1",
    "feed_forward_residual.norm": "ln_2",
    "self_attention.output_projection": "attn.c_proj",
    "feed_forward.up_projection": "mlp.c_fc",
    "feed_forward.down_projection": "mlp.c_proj",
}
"""What the modules of a layer are called in a published file; attention's other three share one."""

LEFT_OUT = r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"
"""Tables of the causal mask, which is computed here."""


class Gpt2(nn.Module):
    """A language model: scores the word that follows.

    Args:
        vocabulary_size: V, the number of token ids.
        d_model: Width of the model.
        num_layers: How many layers are stacked.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks; 4 * d_model if not given.
        max_length: Most tokens of a text.
        activation: The bend of the feed-forward networks.
        eps: What the layer normalisations add to the variance.
        end_id: The token that stands between texts.

    Example:
        >>> sizes = {"vocabulary_size": 50, "d_model": 16, "num_layers": 2, "num_heads": 4}
        >>> model = Gpt2(**sizes, max_length=10, end_id=0).eval()
        >>> tokens = torch.randint(50, (1, 6))
        >>> before = model(tokens)
        >>> tokens[:, -1] += 1  # rewrite the last token ...
        >>> torch.allclose(before[:, :-1], model(tokens % 50)[:, :-1])  # ... nobody earlier notices
        True
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int | None = None,
        max_length: int,
        activation: Callable[[Tensor], Tensor] = ACTIVATIONS["gelu_new"],
        eps: float = 1e-5,
        end_id: int,
    ) -> None:
        super().__init__()
        self.max_length, self.end_id = max_length, end_id
        self.words = nn.Embedding(vocabulary_size, d_model)
        self.positions = LearnedPositionalEncoding(d_model, max_length=max_length)
        layers = [
            EncoderLayer(
                MultiHeadAttention(d_model, num_heads),
                FeedForward(d_model, d_ff or 4 * d_model, activation=activation),
                residual=lambda: PreNorm(d_model, norm=nn.LayerNorm(d_model, eps=eps)),
            )
            for _ in range(num_layers)
        ]
        self.encoder = Encoder(layers, norm=nn.LayerNorm(d_model, eps=eps))
        self.output = nn.Linear(d_model, vocabulary_size, bias=False)
        self.output.weight = self.words.weight

    def hidden(self, tokens: Tensor, *, cache: SelfAttentionCache | None = None) -> Tensor:
        """Tell what each position knows of the token that follows.

        Padding needs no mask: it stands at the end, where causality hides it.

        Args:
            tokens: Ids. Shape (B, L).
            cache: What ``encoder.new_cache`` made. Then ``tokens`` are those that follow the tokens
                of earlier calls, and are added to it.

        Returns:
            Shape (B, L, d_model).
        """
        written = 0 if cache is None else cache.length
        embedded = self.positions(self.words(tokens), offset=written)  # (B, L, d_model)
        return self.encoder(embedded, causal=True, cache=cache)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score every next token of known texts, ids of shape (B, L): logits, (B, L, V)."""
        return self.output(self.hidden(tokens))

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Gpt2":
        """Read a published GPT-2.

        Args:
            folder: Holds ``config.json`` and ``model.safetensors``.
            dtype: What to compute in.

        Returns:
            The model, in eval mode.

        Raises:
            UserError: If a file is missing or damaged, or is no GPT-2.
        """
        config = Config(folder / "config.json", "gpt2")
        config.expect(
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            add_cross_attention=False,
            tie_word_embeddings=True,
        )
        d_model, num_layers = config.size("n_embd"), config.size("n_layer")
        make = partial(
            cls,
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=config.heads("n_head", d_model),
            d_ff=config.size("n_inner", 4 * d_model),
            max_length=config.size("n_positions"),
            activation=config.activation("activation_function"),
            eps=config.number("layer_norm_epsilon", 1e-5),
            end_id=config.size("eos_token_id", least=0),
        )
        return load_model(
            make, folder / WEIGHTS, origins(num_layers), left_out=LEFT_OUT, dtype=dtype
        )


def origins(num_layers: int) -> Iterator[tuple[str, Origin]]:
    """Tell where each of our parameters stands in a published file, layer by layer.

    GPT-2's linear maps were written down as columns of inputs: x W instead of x W^T.
    """

    def origin(name: str, **options: int) -> Origin:
        is_matrix = name.endswith("weight") and ".ln_" not in name
        return Origin((name, f"transformer.{name}"), transposed=is_matrix, **options)

    table = Origin(("wte.weight", "transformer.wte.weight", "lm_head.weight"))
    yield "words.weight", table
    yield "output.weight", table
    yield "positions.weight", Origin(("wpe.weight", "transformer.wpe.weight"))
    yield "encoder.norm.weight", Origin(("ln_f.weight", "transformer.ln_f.weight"))
    yield "encoder.norm.bias", Origin(("ln_f.bias", "transformer.ln_f.bias"))
    for layer in range(num_layers):
        for kind in ("weight", "bias"):
            here, there = f"encoder.layers.{layer}", f"h.{layer}"
            for ours, theirs in INSIDE.items():
                yield f"{here}.{ours}.{kind}", origin(f"{there}.{theirs}.{kind}")
            for part, ours in enumerate(("query", "key", "value")):  # three maps side by side
                name = f"{here}.self_attention.{ours}_projection.{kind}"
                yield name, origin(f"{there}.attn.c_attn.{kind}", part=part, parts=3)


class Gpt2Steps:
    """A GPT-2 in the middle of writing: what a search drives.

    Args:
        model: In eval mode.
        begun: Ids that stand before the first token of the search; may be none. Shape (N, L).
        suppressed: Ids that are never written, as rows of the embedding beyond the vocabulary.
    """

    def __init__(self, model: Gpt2, begun: Tensor, *, suppressed: Sequence[int] = ()) -> None:
        self.model = model
        device = model.words.weight.device
        self.suppressed = torch.tensor(suppressed, dtype=torch.int64, device=device)
        self.cache = model.encoder.new_cache()
        if begun.shape[1]:
            model.hidden(begun, cache=self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, shape (N,), and score the next ones, shape (N, V)."""
        hidden = self.model.hidden(tokens[:, None], cache=self.cache)  # (N, 1, d_model)
        logits = self.model.output(hidden[:, 0])
        return logits.index_fill_(1, self.suppressed, -math.inf)

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, shape (M,), only."""
        self.cache.reorder(rows)
