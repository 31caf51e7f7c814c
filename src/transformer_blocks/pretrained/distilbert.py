"""DistilBERT: half the layers of BERT, trained to give the outputs of the whole.

DistilBERT (Sanh et al. 2019, https://arxiv.org/abs/1910.01108, sections 2 and 3) has half the
layers of BERT, and no segment embeddings. It began with the weights of every second layer of BERT,
and was trained to predict the masked tokens with the probabilities that BERT gives them
(*distillation*), besides the tokens themselves. Its modules have other names in the files.

Next: ``roberta_model.py``, a BERT that was trained longer.
"""

from pathlib import Path
from typing import Any, ClassVar

from transformer_blocks.pretrained.bert import Bert
from transformer_blocks.pretrained.loading import ACTIVATIONS, Config


class DistilBert(Bert):
    """DistilBERT's encoder, with the arguments of :class:`Bert`."""

    model_type = "distilbert"
    expected: ClassVar[dict[str, Any]] = {}
    sizes = Bert.sizes | {
        "d_model": "dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "d_ff": "hidden_dim",
    }
    names = Bert.names | {
        "encoder.layers": "transformer.layer",
        "self_attention.query_projection": "attention.q_lin",
        "self_attention.key_projection": "attention.k_lin",
        "self_attention.value_projection": "attention.v_lin",
        "self_attention.output_projection": "attention.out_lin",
        "self_attention_residual.norm": "sa_layer_norm",
        "feed_forward.up_projection": "ffn.lin1",
        "feed_forward.down_projection": "ffn.lin2",
        "feed_forward_residual.norm": "output_layer_norm",
    }
    old_names: ClassVar[dict[str, str]] = {}
    prefixes = ("", "distilbert.")
    # The heads for masked tokens, classes and answers, which sentence vectors do not need.
    left_out = r"vocab_(transform|layer_norm|projector)\..*|((pre_)?classifier|qa_outputs)\..*"

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        sizes = config.sizes(**cls.sizes)
        config.expect(num_hidden_layers=sizes["num_layers"], num_attention_heads=sizes["num_heads"])
        return {
            **sizes,
            "num_segments": 0,
            "activation": config.choice("activation", ACTIVATIONS),
            "padding_id": config.size("pad_token_id", 0, least=0),
        }
