"""DistilBERT: half the layers of BERT, trained to give the outputs of the whole.

DistilBERT (Sanh et al. 2019, https://arxiv.org/abs/1910.01108, sections 2 and 3) has half the
layers of BERT, and no segment embeddings. It began with the weights of every second layer of BERT,
and was trained to predict the masked tokens with the probabilities that BERT gives them
(*distillation*), besides the tokens themselves. Its modules have other names in the files.

Next: ``roberta.py``, a BERT that was trained longer.
"""

from collections.abc import Collection

from transformer_blocks.pretrained.bert import Bert
from transformer_blocks.pretrained.config import Config


class DistilBert(Bert):
    """DistilBERT."""

    sizes = ("dim", "n_layers", "n_heads", "hidden_dim", "activation")
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
    prefixes = ("", "distilbert.")
    # The heads for masked tokens, classes and answers, which hidden states do not need.
    left_out = r"vocab_(transform|layer_norm|projector)\..*|((pre_)?classifier|qa_outputs)\..*"

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        self.num_segments, self.eps = 0, 1e-12
