r"""BERT: an encoder that was taught what sentences mean.

    python examples/pretrained/bert.py sentence-transformers/all-MiniLM-L6-v2 \
        "how do plants eat?" --file sentences.txt

Each line of the file becomes a vector, and so does the query; the lines whose vectors point most
nearly where the query's does are printed, with the cosine of the angle. The model is a folder, or a
name on the Hugging Face hub, as ``sentence-transformers`` publishes it.

BERT (``bert_model.py``) makes a vector of each token. Sentence-BERT (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084) makes one of a sentence, the mean over its tokens, and trains so
that the cosine tells how alike two sentences are.

Next: ``marian.py``, an encoder and a decoder.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from pretrained.bert_model import Bert
from pretrained.loading import WEIGHTS, find_folder, read_json
from pretrained.wordpiece import WordPiece
from transformer_blocks import pack
from translation.arguments import Parser, number
from translation.corpus import decode_line, read_lines
from translation.decoding import by_length
from translation.errors import UserError
from translation.program import run_program

FILES = (
    *("config.json", WEIGHTS, "vocab.txt", "tokenizer_config.json"),
    *("sentence_bert_config.json", "1_Pooling/config.json"),
)


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
