r"""BERT: an encoder that was taught what sentences mean.

    python examples/pretrained/bert.py sentence-transformers/all-MiniLM-L6-v2 \
        "how do plants eat?" --file sentences.txt

Each line of the file becomes a vector, and so does the query; the lines whose vectors point most
nearly where the query's does are printed, with the cosine of the angle. The model is a folder, or a
name on the Hugging Face hub, as ``sentence-transformers`` publishes it. A model that was trained to
be compared by dot products is compared by them.

BERT (``bert_model.py``) makes a vector of each token. Sentence-BERT (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084) makes one of a sentence, often the mean over its tokens
(``pooling.py``), and trains so that the cosine tells how alike two sentences are.

Next: ``marian.py``, an encoder and a decoder.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

sys.path.append(str(Path(__file__).parent.parent))  # run as a program, it finds its neighbours

from common.batching import group_by_length as by_length
from common.errors import UserError
from common.options import Parser, number
from common.program import run_program
from common.text_files import decode_line, read_lines
from pretrained.bert_model import Bert
from pretrained.loading import WEIGHTS, Config, find_folder, shown
from pretrained.pooling import Pooling, read_modules
from pretrained.wordpiece import FILES as TOKENIZER_FILES
from pretrained.wordpiece import WordPiece
from transformer_blocks.inference import prepare

PARTS = ("", "[0-9]_*/")  # the folder, and those of the modules in it
FILES = (
    *("modules.json", "config_sentence_transformers.json"),
    *(f"{part}{name}" for part in PARTS for name in ("config.json", WEIGHTS, *TOKENIZER_FILES)),
    *(f"{part}sentence_bert_config.json" for part in PARTS),
)


@dataclass(frozen=True)
class SentenceEncoder:
    """A BERT that makes one vector of a sentence.

    Attributes:
        model: The encoder, in eval mode.
        tokenizer: Cuts sentences into its tokens.
        pooling: Makes a sentence's vector of its tokens'.
        max_length: Most tokens of a sentence, marks included; what is longer is cut at its end.
        prompts: What is written before texts of a kind, as queries; of "" before all others.
        by_cosine: Whether vectors are compared by the cosine of their angle, or else by their dot
            product.
    """

    model: Bert
    tokenizer: WordPiece
    pooling: Pooling
    max_length: int
    prompts: Mapping[str, str] = field(default_factory=dict)
    by_cosine: bool = True

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "SentenceEncoder":
        """Read what ``sentence-transformers`` has published.

        Raises:
            UserError: If a file is missing or damaged, or asks for what this program cannot do.
        """
        encoder = folder / read_modules(folder)[0][1]
        tokenizer = WordPiece.load(encoder)
        model = Bert.load(encoder, dtype=dtype)
        vocabulary_size, d_model = model.words.weight.shape
        if max(tokenizer.vocabulary.values()) >= vocabulary_size:
            raise UserError(
                f"{encoder}: the vocabulary has more pieces than the {vocabulary_size} of "
                "config.json"
            )
        if tokenizer.padding_id != model.padding_id:
            raise UserError(
                f"{encoder}: [PAD] is {tokenizer.padding_id} in the vocabulary but "
                f"{model.padding_id} in config.json"
            )
        return cls(
            model,
            tokenizer,
            Pooling.load(folder, d_model, dtype=dtype),
            min(model.max_length, read_max_length(encoder, default=model.max_length)),
            **read_comparison(folder),
        )

    @torch.inference_mode()
    def embed(
        self, sentences: Sequence[str], *, kind: str = "", batch_tokens: int = 4096
    ) -> Tensor:
        """Make a vector of each sentence, as ``encode`` of ``sentence-transformers`` does.

        Args:
            sentences: Any texts. Those of like length share a batch.
            kind: What the texts are, "query" or "document": some models want another prompt
                before each kind.
            batch_tokens: Most tokens of a batch, padding included.

        Returns:
            A row for each sentence. Shape (N, width).
        """
        weight = self.model.words.weight
        prompt = self.prompts.get(kind, self.prompts.get("", ""))
        encoded = [
            self.tokenizer.encode(prompt + each, max_length=self.max_length) for each in sentences
        ]
        vectors = weight.new_empty(len(encoded), self.pooling.width)
        for chosen in by_length([len(ids) for ids in encoded], batch_tokens):
            rows = [torch.tensor(encoded[place]) for place in chosen]
            tokens = pad_sequence(rows, batch_first=True, padding_value=self.model.padding_id)
            tokens = tokens.to(weight.device)
            vectors[chosen] = self.pooling(self.model(tokens), tokens != self.model.padding_id)
        return vectors

    def compare(self, query: str, documents: Sequence[str]) -> Tensor:
        """Tell how alike a query and each document are. Shape (N,)."""
        ours, theirs = self.embed([query], kind="query"), self.embed(documents, kind="document")
        if self.by_cosine:
            ours, theirs = F.normalize(ours, dim=-1), F.normalize(theirs, dim=-1)
        return theirs @ ours[0]


def read_max_length(folder: Path, *, default: int) -> int:
    """Read how many tokens of a text count.

    Raises:
        UserError: If a file asks for fewer than two, or for another way to read.
    """
    settings = folder / "sentence_bert_config.json"
    config = Config(settings) if settings.exists() else None
    if config:
        text = {"method": "forward", "method_output_name": "last_hidden_state"}
        config.expect_only(
            do_lower_case=False,
            transformer_task="feature-extraction",
            modality_config={"text": text},
            module_output_name="token_embeddings",
            max_seq_length=config.values.get("max_seq_length"),
            unpad_inputs=config.values.get("unpad_inputs"),  # another layout, the same numbers
        )
        if config.values.get("max_seq_length") is not None:
            return config.size("max_seq_length", least=2)
    tokenizer = folder / "tokenizer_config.json"
    if tokenizer.exists():
        # Where nothing is to be cut, 1e30 stands there.
        return Config(tokenizer).size("model_max_length", default, least=2, most=2**128)
    return default


def read_comparison(folder: Path) -> dict[str, Any]:
    """Read what is written before texts, and how their vectors are compared.

    Returns:
        Arguments of :class:`SentenceEncoder`.

    Raises:
        UserError: If the folder holds another kind of model, or asks for another comparison.
    """
    path = folder / "config_sentence_transformers.json"
    if not path.exists():
        return {}
    config = Config(path, "SentenceTransformer")
    similarity = config.values.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise UserError(
            f"{path}: similarity_fn_name must be cosine or dot for this program, "
            f"got {shown(similarity)}"
        )
    prompts = config.values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(each, str | None) for each in prompts.values()
    ):
        raise UserError(f"{path}: prompts must be texts by their names, got {shown(prompts)}")
    prompts = {name: prompt or "" for name, prompt in prompts.items()}
    default = config.values.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise UserError(f"{path}: default_prompt_name must be one of prompts, got {shown(default)}")
    known = {"query": ("query",), "document": ("document", "passage", "corpus")}
    chosen = {"": prompts[default]} if default is not None else {}
    for kind, names in known.items():
        found = [prompts[name] for name in names if name in prompts]
        chosen |= {kind: found[0]} if found else {}
    return {"prompts": chosen, "by_cosine": similarity == "cosine"}


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
    encoder = replace(found, model=prepare(found.model))
    likeness = encoder.compare(query, lines)
    for score, place in zip(*likeness.topk(min(options.best, len(lines))), strict=True):
        print(f"{score:.4f}\t{lines[place]}")


if __name__ == "__main__":
    sys.exit(main())
