"""DistilBERT: half the layers of BERT, trained to give the outputs of the whole.

DistilBERT (Sanh et al. 2019, https://arxiv.org/abs/1910.01108, sections 2 and 3) has half the
layers of BERT, and no segment embeddings. It began with the weights of every second layer of BERT,
and was trained to predict the masked tokens with the probabilities that BERT gives them
(*distillation*), besides the tokens themselves. Its modules have other names in the files.

Next: ``roberta_model.py``, a BERT that was trained longer.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from pretrained.bert_model import Bert
from pretrained.loading import Config
from pretrained.weights import Origin, load_model

EMBEDDINGS = {
    "token_embedding": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
}
LAYER = {
    "self_attention.query_projection": "attention.q_lin",
    "self_attention.key_projection": "attention.k_lin",
    "self_attention.value_projection": "attention.v_lin",
    "self_attention.output_projection": "attention.out_lin",
    "self_attention_residual.norm": "sa_layer_norm",
    "feed_forward.up_projection": "ffn.lin1",
    "feed_forward.down_projection": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}
"""Published names of our modules: of those before the layers, and of those of each layer."""

LEFT_OUT = r"vocab_(transform|layer_norm|projector)\..*|((pre_)?classifier|qa_outputs)\..*"
"""The heads for masked tokens, classes and answers, which are not needed for sentence vectors."""


class DistilBert(Bert):
    """DistilBERT's encoder; the arguments are those of :class:`~pretrained.bert_model.Bert`."""

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "DistilBert":
        """Load a published DistilBERT.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "distilbert")
        d_model, num_layers = config.size("dim"), config.size("n_layers")
        num_heads = config.heads("n_heads", d_model)
        config.expect(num_hidden_layers=num_layers, num_attention_heads=num_heads)
        make = partial(
            cls,
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=config.size("hidden_dim"),
            max_length=config.size("max_position_embeddings"),
            num_segments=0,
            activation=config.activation("activation"),
            padding_id=config.size("pad_token_id", 0, least=0),
        )
        return load_model(make, folder, origins(num_layers), left_out=LEFT_OUT, dtype=dtype)


def origins(num_layers: int) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each parameter and its origin in a published file, layer by layer."""
    for ours, theirs in _modules(num_layers):
        is_embedding = theirs.endswith("_embeddings")  # has no bias
        for kind in ("weight", "bias")[: 1 if is_embedding else 2]:
            name = f"{theirs}.{kind}"
            # One that was saved with a head has a prefix.
            yield f"{ours}.{kind}", Origin((name, f"distilbert.{name}"))


def _modules(num_layers: int) -> Iterator[tuple[str, str]]:
    yield from EMBEDDINGS.items()
    for layer in range(num_layers):
        for ours, theirs in LAYER.items():
            yield f"encoder.layers.{layer}.{ours}", f"transformer.layer.{layer}.{theirs}"
