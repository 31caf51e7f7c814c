"""RoBERTa: BERT's encoder, trained longer, with other tokens.

RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, sections 4 and 5) has BERT's layers. It
was trained longer and on more text, without predicting whether one sentence follows another, and
its tokens are those of a byte-level byte-pair encoding, as in GPT-2. Its positions count the tokens
that are not padding, from the id of the padding token plus one: the first position is row 2 of the
published tensor.

Next: ``pooling.py``, from the vectors of tokens to that of a sentence.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_blocks.pretrained.bert import Bert
from transformer_blocks.pretrained.loading import Config, LoadError
from transformer_blocks.pretrained.weights import Origin


class Roberta(Bert):
    """RoBERTa's encoder, with the arguments of :class:`Bert`."""

    model_type = "roberta"
    prefixes = ("", "roberta.")
    # Position numbers, the pooler and the heads, which sentence vectors do not need.
    left_out = (
        r"(roberta\.)?(embeddings\.position_ids|pooler\..*)|(lm_head|classifier|qa_outputs)\..*"
    )

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens; their positions count the tokens that are not padding, wherever it is."""
        x = self.token_embedding(tokens)  # (B, L, d_model)
        encodings = self.positions(x.new_zeros(1, *x.shape[1:]))[0]  # (L, d_model)
        numbers = (tokens != self.padding_id).cumsum(1) - 1
        return x + encodings[numbers.clamp(min=0)]

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        arguments = super().read(folder, config)
        padding_id, rows = config.size("pad_token_id", 1, least=0), arguments["max_length"]
        if rows <= padding_id + 1:
            raise LoadError(
                f"{config.path}: max_position_embeddings must exceed pad_token_id by more than 1, "
                f"got {rows} and {padding_id}"
            )
        return arguments | {"max_length": rows - padding_id - 1, "padding_id": padding_id}

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; the first positions are not used."""
        skipped = self.padding_id + 1 if name == "positions.weight" else 0
        return replace(super().origin(name), skipped=skipped)
