r"""BERT: an encoder that was taught what sentences mean (Devlin et al. 2019).

    python examples/pretrained/bert.py sentence-transformers/all-MiniLM-L6-v2 \
        "how do plants eat?" --file sentences.txt

Each line of the file becomes a vector, and so does the query; the lines whose vectors point most
nearly where the query's does are printed, with the cosine of the angle. The model is a folder, or a
name on the Hugging Face hub, as ``sentence-transformers`` publishes it.

BERT (https://arxiv.org/abs/1810.04805, section 3) is the paper's encoder with a few other parts:
positions are learned, embeddings are not scaled but normalised, a third embedding tells first from
second sentences (there is only a first one here), and the feed-forward networks bend by GELU.
Sentence-BERT (Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084) makes one vector of a
sentence, the mean over its tokens, and trains so that the cosine tells how alike two sentences are.

Next: ``marian.py``, an encoder and a decoder.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from pretrained.loading import WEIGHTS, Config, Origin, find_folder, load_weights, read_json
from pretrained.wordpiece import WordPiece
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PostNorm,
    pack,
    padding_mask,
)
from translation.arguments import Parser, number
from translation.corpus import decode_line, read_lines
from translation.decoding import by_length
from translation.errors import UserError
from translation.program import run_program

FILES = (
    *("config.json", WEIGHTS, "vocab.txt", "tokenizer_config.json"),
    *("sentence_bert_config.json", "1_Pooling/config.json"),
)
OUTSIDE = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "kinds": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
INSIDE = {
    "self_attention.query_projection": "attention.self.query",
    "self_attention.key_projection": "attention.self.key",
    "self_attention.value_projection": "attention.self.value",
    "self_attention.output_projection": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.widen": "intermediate.dense",
    "feed_forward.narrow": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
"""What our modules are called in a published file: those outside the layers, those of a layer."""

LEFT_OUT = r"(bert\.)?(embeddings\.position_ids|pooler\..*)|cls\..*"
"""Numbers from 0 up, a layer over [CLS], and what guesses words: sentence vectors need none."""


class Bert(nn.Module):
    """BERT's encoder.

    Args:
        vocabulary_size: Number of token ids.
        d_model: Width of the model.
        num_layers: How many layers are stacked.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks.
        max_length: Most tokens of a text.
        num_kinds: How many kinds of sentence the model tells apart.
        activation: The bend of the feed-forward networks.
        eps: What the layer normalisations add to the variance.
        padding_id: The token that stands for nothing.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        max_length: int,
        num_kinds: int = 2,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        eps: float = 1e-12,
        padding_id: int = 0,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.padding_id = padding_id
        self.words = nn.Embedding(vocabulary_size, d_model)
        self.positions = LearnedPositionalEncoding(d_model, max_length=max_length)
        self.kinds = nn.Embedding(num_kinds, d_model)
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.encoder = Encoder(
            EncoderLayer(
                MultiHeadAttention(d_model, num_heads),
                FeedForward(d_model, d_ff, activation=activation),
                residual=lambda: PostNorm(d_model, norm=nn.LayerNorm(d_model, eps=eps)),
            )
            for _ in range(num_layers)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Read texts.

        Args:
            tokens: Padded ids. Shape (B, L).

        Returns:
            Each token in its context. Shape (B, L, d_model).
        """
        embedded = self.positions(self.words(tokens)) + self.kinds.weight[0]  # (B, L, d_model)
        return self.encoder(self.norm(embedded), mask=padding_mask(tokens, self.padding_id))

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Bert":
        """Read a published BERT.

        Args:
            folder: Holds ``config.json`` and ``model.safetensors``.
            dtype: What to compute in.

        Returns:
            The model, in eval mode.

        Raises:
            UserError: If a file is missing or damaged, or is no BERT.
        """
        config = Config(folder / "config.json", "bert")
        config.expect(
            position_embedding_type="absolute", is_decoder=False, add_cross_attention=False
        )
        d_model, num_layers = config.size("hidden_size"), config.size("num_hidden_layers")
        model = cls(
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=config.heads("num_attention_heads", d_model),
            d_ff=config.size("intermediate_size"),
            max_length=config.size("max_position_embeddings"),
            num_kinds=config.size("type_vocab_size", 2),
            activation=config.activation("hidden_act"),
            eps=config.number("layer_norm_eps", 1e-12),
            padding_id=config.size("pad_token_id", 0, least=0),
        ).to(dtype)
        load_weights(model, folder / WEIGHTS, origins(num_layers), left_out=LEFT_OUT)
        return model.eval()


def origins(num_layers: int) -> dict[str, Origin]:
    """Tell where each of our parameters stands in a published file."""
    modules = dict(OUTSIDE)
    for layer in range(num_layers):
        for ours, theirs in INSIDE.items():
            modules[f"encoder.layers.{layer}.{ours}"] = f"encoder.layer.{layer}.{theirs}"
    found = {}
    for ours, theirs in modules.items():
        for name, old_name in (("weight", "gamma"), ("bias", "beta")):
            names = [f"{theirs}.{name}"]
            if theirs.endswith("LayerNorm"):
                names.append(f"{theirs}.{old_name}")
            # A BERT that was saved with what guesses words stands one level deeper.
            found[f"{ours}.{name}"] = Origin((*names, *(f"bert.{each}" for each in names)))
    return found


@dataclass(frozen=True)
class SentenceEncoder:
    """A BERT that makes one vector of a sentence.

    Attributes:
        model: The encoder, in eval mode.
        tokenizer: Cuts sentences into its tokens.
        max_length: Most tokens of a sentence, marks included; what is longer is cut at its end.
    """

    model: Bert
    tokenizer: WordPiece
    max_length: int

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "SentenceEncoder":
        """Read what ``sentence-transformers`` has published.

        Raises:
            UserError: If a file is missing or damaged, or asks for what this program cannot do.
        """
        pooling = folder / "1_Pooling" / "config.json"
        if pooling.exists():
            chosen = [name for name, value in read_json(pooling).items() if value is True]
            modes = [name for name in chosen if name.startswith("pooling_mode_")]
            if modes and modes != ["pooling_mode_mean_tokens"]:
                raise UserError(f"{pooling}: only the mean over tokens is known here, got {modes}")
        tokenizer = WordPiece.load(folder)
        model = Bert.load(folder, dtype=dtype)
        vocabulary_size = len(model.words.weight)
        if max(tokenizer.vocabulary.values()) >= vocabulary_size:
            raise UserError(
                f"{folder / 'vocab.txt'} has more pieces than the {vocabulary_size} of config.json"
            )
        if tokenizer.padding_id != model.padding_id:
            raise UserError(
                f"{folder}: [PAD] is {tokenizer.padding_id} in vocab.txt but {model.padding_id} "
                "in config.json"
            )
        most = model.max_length
        settings = folder / "sentence_bert_config.json"
        if settings.exists() and (wanted := read_json(settings).get("max_seq_length")):
            if not isinstance(wanted, int) or wanted < 2:
                raise UserError(f"{settings}: max_seq_length must be at least 2, got {wanted!r}")
            most = min(most, wanted)
        return cls(model, tokenizer, most)

    @torch.inference_mode()
    def embed(self, sentences: Sequence[str], *, batch_tokens: int = 4096) -> Tensor:
        """Make a vector of length one of each sentence.

        Args:
            sentences: Any texts. Those of like length share a batch.
            batch_tokens: Most tokens of a batch, padding included.

        Returns:
            A row for each sentence; the product of two rows is their cosine. Shape (N, d_model).
        """
        weight = self.model.words.weight
        encoded = [self.tokenizer.encode(each, max_length=self.max_length) for each in sentences]
        vectors = weight.new_empty(len(encoded), weight.shape[1])
        for chosen in by_length([len(ids) for ids in encoded], batch_tokens):
            rows = [torch.tensor(encoded[place]) for place in chosen]
            tokens = pad_sequence(rows, batch_first=True, padding_value=self.model.padding_id)
            vectors[chosen] = self._pool(tokens.to(weight.device))
        return vectors

    def _pool(self, tokens: Tensor) -> Tensor:
        """Take the mean over the real tokens, and stretch it to length one."""
        hidden = tokens == self.model.padding_id  # (B, L)
        states = self.model(tokens).masked_fill(hidden[:, :, None], 0.0)  # (B, L, d_model)
        counts = tokens.shape[1] - hidden.sum(dim=1)
        return F.normalize(states.sum(dim=1) / counts[:, None], dim=-1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: find_nearest(arguments))


def find_nearest(arguments: Sequence[str] | None) -> None:
    """Print the lines of a file that are nearest to the query, the nearest first."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--file", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--best", type=number(int, "above 0"), default=5, help="default: 5")
    parser.add_argument("--revision", help="on the hub (default: its main branch)")
    options = parser.parse_args(arguments)
    query = decode_line(os.fsencode(options.query), where="the query")
    lines = [line for line in read_lines(options.file) if line.strip()]
    if not query.strip() or not lines:
        raise UserError(f"the query and {options.file} must hold text")
    found = SentenceEncoder.load(find_folder(options.model, FILES, revision=options.revision))
    encoder = replace(found, model=pack(found.model))
    cosines = encoder.embed(lines) @ encoder.embed([query])[0]
    for cosine, place in zip(*cosines.topk(min(options.best, len(lines))), strict=True):
        print(f"{cosine:.4f}\t{lines[place]}")


if __name__ == "__main__":
    sys.exit(main())
