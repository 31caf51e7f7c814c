"""Qwen3-MoE: the model, and the names of its weights in published files.

Qwen3-30B-A3B and its relatives ("Qwen3 Technical Report", Yang et al. 2025,
https://arxiv.org/abs/2505.09388, section 2) are a Qwen3 with a mixture of experts in place of each
feed-forward network (:class:`~transformer_blocks.MixtureOfExperts`): each token uses 8 of 128
experts. Some layers may keep a single network: those of ``mlp_only_layers``, and with
``decoder_sparse_step`` all whose number it does not divide. With ``norm_topk_prob``, the weights of
the chosen experts sum to one.

Next: ``gpt_oss.py``, a mixture of experts with attention sinks.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.qwen3 import Qwen3
from transformer_blocks.variants.alternate import alternate
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts
from transformer_blocks.variants.routing import softmax_over_all, softmax_over_chosen

EXPERT_NAMES = {
    "feed_forward": "mlp",
    "router": "gate",
    "gate_projection": "gate_proj",
    "up_projection": "up_proj",
    "down_projection": "down_proj",
}


def read_experts(config: Config, name: str, experts: int, top_k: int) -> dict[str, Any]:
    """Read the number of experts, and that of a token's experts.

    Args:
        config: The file.
        name: Name of the number of experts.
        experts: The number if the file has none.
        top_k: The number of a token's experts if the file has none.

    Raises:
        LoadError: If a number is invalid, or a token has more experts than there are.
    """
    experts = config.size(name, experts, most=2**12)
    top_k = config.size("num_experts_per_tok", top_k)
    if top_k > experts:
        raise config.error("num_experts_per_tok", f"be at most {name}={experts}", top_k)
    return {"num_experts": experts, "top_k": top_k}


class Qwen3Moe(Qwen3):
    """Qwen3-MoE."""

    names = Qwen3.names | EXPERT_NAMES

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        config.expect({"use_sliding_window": False})
        d_model, layers = self.options["d_model"], range(self.options["num_layers"])
        every = config.size("decoder_sparse_step", 1)
        alone = config.get("mlp_only_layers", [])
        if not isinstance(alone, list) or not all(type(each) is int for each in alone):
            raise config.error("mlp_only_layers", "be a list of numbers", alone)
        network = partial(GatedFeedForward, d_model, activation=self.options["activation"])
        name = "num_local_experts" if "num_local_experts" in config.values else "num_experts"
        is_normalised = config.flag("norm_topk_prob", False)
        experts = partial(
            MixtureOfExperts,
            d_model,
            **read_experts(config, name, 128, 8),
            expert=partial(network, config.size("moe_intermediate_size", 768)),
            routing=softmax_over_chosen if is_normalised else softmax_over_all,
        )
        dense = partial(network, self.options["d_ff"])
        kinds = (dense if n in alone or (n + 1) % every else experts for n in layers)
        self.options["feed_forward"] = alternate(*kinds)
