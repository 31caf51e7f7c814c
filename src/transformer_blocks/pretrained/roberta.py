"""RoBERTa: BERT's encoder, trained longer, with other tokens.

RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, sections 4 and 5) has BERT's layers. It
was trained longer and on more text, without predicting whether one sentence follows another, and
its tokens are those of a byte-level byte-pair encoding, as in GPT-2. Its positions count the tokens
that are not padding, from the id of the padding token plus one: the first position is row 2 of the
published tensor.

Next: ``marian.py``, an encoder and a decoder.
"""

from collections.abc import Collection

from transformer_blocks.pretrained.bert import Bert
from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.weights import Origin


class Roberta(Bert):
    """RoBERTa."""

    prefixes = ("", "roberta.")
    # Position numbers, the pooler and the heads, which hidden states do not need.
    left_out = (
        r"(roberta\.)?(embeddings\.position_ids|pooler\..*)|(lm_head|classifier|qa_outputs)\..*"
    )
    skips_padding = True
    default_padding = 1

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        rows = self.max_length
        self.max_length = rows - self.padding_id - 1
        if self.max_length < 1:
            rule = "exceed pad_token_id by more than 1"
            raise config.error("max_position_embeddings", rule, rows)

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; the first positions are not used."""
        origin = super().origin(name)
        skipped = self.padding_id + 1
        return origin.then(lambda rows: rows[skipped:]) if name == "positions.weight" else origin
