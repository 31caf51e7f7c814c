"""RoBERTa: BERT's encoder, trained longer, with other tokens.

RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, sections 4 and 5) has BERT's layers. It
was trained longer and on more text, without predicting whether one sentence follows another, and
its tokens are those of a byte-level byte-pair encoding, as in GPT-2. Its positions count the tokens
that are not padding, from the id of the padding token plus one: the first position is row 2 of the
published tensor.

Next: ``wordpiece.py``, BERT's tokenizer.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from common.errors import UserError
from pretrained import bert_model
from pretrained.bert_model import Bert
from pretrained.loading import Config
from pretrained.weights import Origin, load_model

LEFT_OUT = r"(roberta\.)?(embeddings\.position_ids|pooler\..*)|(lm_head|classifier|qa_outputs)\..*"
"""Position numbers, the pooler and the heads, which are not needed for sentence vectors."""


class Roberta(Bert):
    """RoBERTa's encoder; the arguments are those of :class:`~pretrained.bert_model.Bert`."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens; their positions count the tokens that are not padding, wherever it is."""
        x = self.token_embedding(tokens)  # (B, L, d_model)
        encodings = self.positions(x.new_zeros(1, *x.shape[1:]))[0]  # (L, d_model)
        numbers = (tokens != self.padding_id).cumsum(1) - 1
        return x + encodings[numbers.clamp(min=0)]

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Roberta":
        """Load a published RoBERTa.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "roberta")
        config.expect(
            position_embedding_type="absolute", is_decoder=False, add_cross_attention=False
        )
        d_model, num_layers = config.size("hidden_size"), config.size("num_hidden_layers")
        padding_id = config.size("pad_token_id", 1, least=0)
        positions = config.size("max_position_embeddings") - padding_id - 1
        if positions < 1:
            raise UserError(
                f"{config.path}: max_position_embeddings must exceed pad_token_id by more than 1, "
                f"got {positions + padding_id + 1} and {padding_id}"
            )
        make = partial(
            cls,
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=config.heads("num_attention_heads", d_model),
            d_ff=config.size("intermediate_size"),
            max_length=positions,
            num_segments=config.size("type_vocab_size", 2),
            activation=config.activation("hidden_act"),
            eps=config.number("layer_norm_eps", 1e-12),
            padding_id=padding_id,
        )
        return load_model(
            make, folder, origins(num_layers, padding_id), left_out=LEFT_OUT, dtype=dtype
        )


def origins(num_layers: int, padding_id: int) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each parameter and its origin in a published file, layer by layer."""
    for ours, origin in bert_model.origins(num_layers):
        names = [name for name in origin.names if not name.startswith("bert.")]
        skipped = padding_id + 1 if ours == "positions.weight" else 0
        yield ours, Origin((*names, *(f"roberta.{name}" for name in names)), skipped=skipped)
