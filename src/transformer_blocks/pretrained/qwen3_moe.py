"""Qwen3-MoE: the model, and the names of its weights in published files.

Qwen3-30B-A3B and its relatives ("Qwen3 Technical Report", Yang et al. 2025,
https://arxiv.org/abs/2505.09388, section 2) are a Qwen3 with a mixture of experts in place of each
feed-forward network (:class:`~transformer_blocks.MixtureOfExperts`): each token uses 8 of 128
experts. Some layers may keep a single network: those of ``mlp_only_layers``, and with
``decoder_sparse_step`` all whose number it does not divide. With ``norm_topk_prob``, the weights of
the chosen experts sum to one.

Next: ``gemma3_model.py``, most of whose layers have a sliding window.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from transformer_blocks import (
    GatedFeedForward,
    MixtureOfExperts,
    Routing,
    alternate,
    softmax_over_all,
    softmax_over_chosen,
)
from transformer_blocks.pretrained.llama_family import Sizes
from transformer_blocks.pretrained.loading import Config, LoadError, shown
from transformer_blocks.pretrained.qwen3 import Qwen3


@dataclass(frozen=True, kw_only=True)
class ExpertSizes(Sizes):
    """The settings of a model with a mixture of experts in its layers.

    Attributes:
        num_experts: Number of experts of a layer.
        top_k: Number of experts that each token uses.
        d_expert: Inner size of an expert.
        routing: What chooses the experts of a token, and their weights.
        dense_layers: Numbers of the layers that have a single network, of size ``d_ff``.
    """

    num_experts: int = 1
    top_k: int = 1
    d_expert: int = 1
    routing: Routing = softmax_over_chosen
    dense_layers: frozenset[int] = frozenset()


class Qwen3Moe(Qwen3):
    """Qwen3-MoE: a Qwen3 with a mixture of experts in each layer.

    Args:
        sizes: The settings of the model.
    """

    model_type = "qwen3_moe"
    expected = Qwen3.expected | {"use_sliding_window": False}
    names = Qwen3.names | {
        "feed_forward": "mlp",
        "router": "gate",
        "gate_projection": "gate_proj",
        "up_projection": "up_proj",
        "down_projection": "down_proj",
    }

    @classmethod
    def feed_forward(cls, sizes: Sizes) -> Callable[[], nn.Module]:
        """Return a function that makes the networks of the layers, one after the other."""
        assert isinstance(sizes, ExpertSizes)

        def network(d_ff: int) -> nn.Module:
            return GatedFeedForward(sizes.d_model, d_ff, activation=sizes.activation)

        experts = partial(
            MixtureOfExperts,
            sizes.d_model,
            num_experts=sizes.num_experts,
            top_k=sizes.top_k,
            expert=partial(network, sizes.d_expert),
            routing=sizes.routing,
        )
        dense = partial(network, sizes.d_ff)
        layers = range(len(sizes.windows))
        return alternate(*(dense if each in sizes.dense_layers else experts for each in layers))

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        sizes = ExpertSizes.read(folder, config)
        name = "num_local_experts" if "num_local_experts" in config.values else "num_experts"
        num_experts = config.size(name, 128, most=2**12)
        top_k = config.size("num_experts_per_tok", 8)
        if top_k > num_experts:
            raise LoadError(
                f"{config.path}: num_experts_per_tok must be at most {name}, "
                f"got {top_k} and {num_experts}"
            )
        every = config.size("decoder_sparse_step", 1)
        alone = config.values.get("mlp_only_layers") or []
        if not isinstance(alone, list) or not all(type(each) is int for each in alone):
            raise LoadError(
                f"{config.path}: mlp_only_layers must be a list of numbers, got {shown(alone)}"
            )
        dense = {layer for layer in range(len(sizes.windows)) if (layer + 1) % every}
        is_normalised = config.flag("norm_topk_prob", False)
        more: dict[str, Any] = {
            "num_experts": num_experts,
            "top_k": top_k,
            "d_expert": config.size("moe_intermediate_size", 768),
            "routing": softmax_over_chosen if is_normalised else softmax_over_all,
            "dense_layers": frozenset({*dense, *alone}),
        }
        return {"sizes": replace(sizes, **more)}
