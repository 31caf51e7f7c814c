"""Sentences: their vectors from BERT, DistilBERT or RoBERTa, and the similarity of two.

Next: ``bert.py``, the program.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pretrained.packages  # noqa: F401  # isort: skip  (first: it names missing packages)

import torch
import torch.nn.functional as F
from torch import Tensor

from common.errors import UserError
from common.text_files import decode_line, read_lines
from pretrained.batches import check_ids, make_batches
from pretrained.pooling import Pooling, read_modules
from transformer_blocks import padding_mask
from transformer_blocks.inference import prepare
from transformer_blocks.pretrained.bert import Bert
from transformer_blocks.pretrained.distilbert import DistilBert
from transformer_blocks.pretrained.loading import Config, find_folder
from transformer_blocks.pretrained.roberta import Roberta
from transformer_blocks.pretrained.tokenizer import FILE, PublishedTokenizer
from transformer_blocks.pretrained.weights import FILES as WEIGHT_FILES

PARTS = ("", "[0-9]_*/")  # the model's folder, and the folders of its modules
NAMES = ("config.json", *WEIGHT_FILES, FILE, "tokenizer_config.json", "sentence_bert_config.json")
FILES = (
    *("modules.json", "config_sentence_transformers.json"),
    *(f"{part}{name}" for part in PARTS for name in NAMES),
)
FAMILIES: dict[str, type[Any]] = {"bert": Bert, "distilbert": DistilBert, "roberta": Roberta}
"""Classes of the models, by ``model_type`` in ``config.json``."""


@dataclass(frozen=True)
class SentenceEncoder:
    """A BERT or one of its relatives that encodes a sentence as one vector.

    Attributes:
        model: The encoder, in evaluation mode.
        tokenizer: The tokenizer of the sentences.
        pooling: Computes the vector of a sentence from the hidden states of its tokens.
        prompts: The text that precedes each text of a kind, by the kind's name, "query" or
            "document"; under "", that of texts of no kind.
        by_cosine: Whether the similarity of two vectors is their cosine, or else their dot product.
    """

    model: Bert
    tokenizer: PublishedTokenizer
    pooling: Pooling
    prompts: Mapping[str, str] = field(default_factory=dict)
    by_cosine: bool = True

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "SentenceEncoder":
        """Load a model that ``sentence-transformers`` has published.

        Args:
            folder: Folder that holds the files of :data:`FILES`.
            dtype: Data type of the parameters, in which the model computes.

        Raises:
            UserError: If a file is missing or damaged, or a setting is not implemented here.
        """
        encoder = folder / read_modules(folder)[0][1]
        config = Config(encoder / "config.json")
        model = config.choice("model_type", FAMILIES).load(encoder, dtype=dtype)
        embedding = model.token_embedding.weight
        tokenizer = PublishedTokenizer.load(
            encoder,
            max_length=min(model.max_length, read_max_length(encoder, default=model.max_length)),
        )
        check_ids(encoder, tokenizer.tokens, embedding)
        pooling = Pooling.load(folder, embedding.shape[1], dtype=dtype)
        return cls(model, tokenizer, pooling, **read_comparison(folder))

    @torch.inference_mode()
    def embed(
        self, sentences: Sequence[str], *, kind: str = "", batch_tokens: int = 4096
    ) -> Tensor:
        """Encode each sentence as a vector, as ``encode`` of ``sentence-transformers`` does.

        Args:
            sentences: Any texts. Those of similar length share a batch; one that is too long is
                truncated.
            kind: The kind of the texts, "query" or "document", which selects the prompt.
            batch_tokens: Maximum number of tokens of a batch, padding included.

        Returns:
            One vector for each sentence, of shape (N, size).

        Raises:
            UserError: If a vector holds NaN or infinity, as with weights that are too large.
        """
        weight = self.model.token_embedding.weight
        prompt = self.prompts.get(kind, "")
        encoded = [self.tokenizer.encode(prompt + each) for each in sentences]
        vectors = weight.new_empty(len(encoded), self.pooling.size)
        padding_id = self.model.padding_id
        for chosen, tokens in make_batches(
            encoded, batch_tokens, padding_id=padding_id, device=weight.device
        ):
            vectors[chosen] = self.pooling(self.model(tokens), padding_mask(tokens, padding_id))
        if not vectors.isfinite().all():
            raise UserError("sentence vectors must be finite: the model's weights are too large")
        return vectors

    def compare(self, query: str, documents: Sequence[str]) -> Tensor:
        """Compute the similarity of a query and each document.

        Args:
            query: Any text.
            documents: N texts.

        Returns:
            Cosines or dot products, of shape (N,).
        """
        query_vector = self.embed([query], kind="query")[0]  # (size,)
        vectors = self.embed(documents, kind="document")  # (N, size)
        if self.by_cosine:
            query_vector, vectors = F.normalize(query_vector, dim=-1), F.normalize(vectors, dim=-1)
        return vectors @ query_vector


def read_max_length(folder: Path, *, default: int) -> int:
    """Read the maximum number of tokens of a text.

    Args:
        folder: The encoder's folder.
        default: The number if no file names one.

    Raises:
        UserError: If a file names fewer than two.
    """
    settings = folder / "sentence_bert_config.json"
    if settings.exists():
        config = Config(settings)
        config.expect(do_lower_case=False)
        if config.values.get("max_seq_length") is not None:
            return config.size("max_seq_length", least=2)
    tokenizer = folder / "tokenizer_config.json"
    if tokenizer.exists():
        # Tokenizers without a maximum have 1e30.
        return Config(tokenizer).size("model_max_length", default, least=2, most=2**128)
    return default


def read_comparison(folder: Path) -> dict[str, Any]:
    """Read the prompts and the similarity function.

    Returns:
        Arguments of :class:`SentenceEncoder`.

    Raises:
        UserError: If the folder holds another kind of model, or its similarity function is not
            implemented here.
    """
    path = folder / "config_sentence_transformers.json"
    if not path.exists():
        return {}
    config = Config(path, "SentenceTransformer")
    config.values = {name: each for name, each in config.values.items() if each is not None}
    by_cosine = config.choice("similarity_fn_name", {"cosine": True, "dot": False}, "cosine")
    prompts = config.nested("prompts").values if config.values.get("prompts") else {}
    texts = {kind: str(prompts[kind] or "") for kind in ("query", "document") if kind in prompts}
    texts[""] = str(prompts.get(config.values.get("default_prompt_name")) or "")
    return {"prompts": texts, "by_cosine": by_cosine}


def find_nearest(options: Any) -> None:
    """Print the lines of a file that are most similar to the query, the most similar first."""
    query = decode_line(os.fsencode(options.query), where="the query")
    lines = [line for line in read_lines(options.file) if line.strip()]
    if not query.strip() or not lines:
        raise UserError(f"the query and {options.file} must hold text")
    found = SentenceEncoder.load(find_folder(options.model, FILES, revision=options.revision))
    encoder = replace(found, model=prepare(found.model))
    similarities = encoder.compare(query, lines)
    for similarity, line in zip(*similarities.topk(min(options.best, len(lines))), strict=True):
        print(f"{similarity:.4f}\t{lines[line]}")
