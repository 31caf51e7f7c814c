"""DeepSeek-V3: latent attention, and mixtures of experts with a bias for the choice.

DeepSeek-V3 ("DeepSeek-V3 Technical Report", 2024, https://arxiv.org/abs/2412.19437, section 2.1)
has Llama's layers with two changes:

- The attention is :class:`~transformer_blocks.LatentAttention`, whose cache stores a latent vector.
- All layers but the first few have a mixture of experts with a shared one, chosen by sigmoids and
  biases (:class:`~transformer_blocks.SigmoidRouting`).

Of a query, the files hold the rotated part last, ours is first; the same for the compressed keys
and values. The factor with which YaRN multiplies the scores is in two places of the published code:
one part with the rotation, the other, with which the query projection is multiplied here, for whole
queries (``mscale_all_dim``).

The weights of DeepSeek's own files are quantised to eight bits, which is refused here
(``quantization_config``). The layers for the prediction of further tokens are not read.

Next: ``gemma3.py``, most of whose layers have a sliding window.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transformer_blocks.pretrained.config import LARGEST, Config
from transformer_blocks.pretrained.llama_family import (
    DEFAULT,
    Llama,
    Rotary,
    pair_neighbours,
    yarn_factor,
)
from transformer_blocks.pretrained.qwen3_moe import EXPERT_NAMES, read_experts
from transformer_blocks.pretrained.weights import Origin
from transformer_blocks.variants.alternate import alternate
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.latent_attention import LatentAttention
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts
from transformer_blocks.variants.routing import SigmoidRouting

QUERY, LATENT = "self_attention.query_projection", "self_attention.latent_norm"


class DeepseekV3(Llama):
    """DeepSeek-V3."""

    names = (
        Llama.names
        | EXPERT_NAMES
        | {
            QUERY: "self_attn.q_proj",
            f"{QUERY}.0": "self_attn.q_a_proj",
            f"{QUERY}.1": "self_attn.q_a_layernorm",
            f"{QUERY}.2": "self_attn.q_b_proj",
            LATENT: "self_attn.kv_a_layernorm",
            "self_attention.down_projection": "self_attn.kv_a_proj_with_mqa",
            "self_attention.up_projection": "self_attn.kv_b_proj",
            "routing.bias": "gate.e_score_correction_bias",
            "shared": "shared_experts",
        }
    )

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        self.read_sizes(config)
        layers = self.options["num_layers"]
        self.left_out = rf"model\.layers\.({layers})\..*"  # predicts further tokens
        sizes, rotary = self.read_attention(config), self.read_rotary(config)
        self.options["attention"] = lambda: LatentAttention(**sizes, rotary=rotary())
        self.options["feed_forward"] = self.read_networks(config)

    def read_attention(self, config: Config) -> dict[str, Any]:
        """Read the arguments of the attention of a layer."""
        heads = self.num_heads = config.size("num_attention_heads")
        latent, rotated = config.size("kv_lora_rank", 512), config.size("qk_rope_head_dim", 64)
        most = LARGEST // heads
        self.d_k = rotated
        self.value_size = config.size("v_head_dim", 128, most=most)
        plain = config.size("qk_nope_head_dim", 128, most=most)
        if plain != self.value_size:
            raise config.error("qk_nope_head_dim", f"be v_head_dim={self.value_size} here", plain)
        config.expect(
            {
                "num_key_value_heads": heads,
                "head_dim": rotated,
                "qk_head_dim": self.value_size + rotated,
            }
        )
        if rotated % 2 or rotated > latent or latent % 2:
            rule = f"be even, and at most kv_lora_rank, which is even, got {latent}"
            raise config.error("qk_rope_head_dim", rule, rotated)
        self.are_neighbours = config.flag("rope_interleave", True)
        has_query_latent = config.values.get("q_lora_rank", 1536) is not None
        query_latent_size = config.size("q_lora_rank", 1536)
        return {
            "d_model": self.options["d_model"],
            "num_heads": heads,
            "latent_size": latent,
            "value_size": self.value_size,
            "query_latent_size": query_latent_size if has_query_latent else None,
            "bias": config.flag("attention_bias", False),
        }

    def read_rotary(self, config: Config) -> Rotary:
        """Read the rotary positions of the layers, and the factor of whole queries."""
        rotary, self.query_factor = super().read_rotary(config), 1.0
        for settings in config.parts.values():
            if settings.get("mscale_all_dim") and settings.get("rope_type", DEFAULT) != DEFAULT:
                whole = yarn_factor(settings, settings.number("factor"), "mscale_all_dim")
                self.query_factor = whole * whole
        return rotary

    def read_networks(self, config: Config) -> Any:
        """Read the feed-forward networks of the layers."""
        config.expect({"norm_topk_prob": True})
        d_model, layers = self.options["d_model"], self.options["num_layers"]
        network = partial(GatedFeedForward, d_model, activation=self.options["activation"])
        d_expert = config.size("moe_intermediate_size", 2048)
        shared = config.size("n_shared_experts", 1, most=2**12)
        sizes = read_experts(config, "n_routed_experts", 256, 8)
        groups, chosen = config.size("n_group", 8), config.size("topk_group", 4)
        is_few = chosen * (sizes["num_experts"] // groups) < sizes["top_k"]
        if sizes["num_experts"] % groups or chosen > groups or is_few:
            rule = f"divide n_routed_experts={sizes['num_experts']} and give enough for a token"
            raise config.error("n_group", rule, groups)
        scale = config.number("routed_scaling_factor", 2.5)

        def experts() -> MixtureOfExperts:
            routing = SigmoidRouting(
                sizes["num_experts"], scale=scale, num_groups=groups, top_groups=chosen
            )
            expert = partial(network, d_expert)
            whole = network(shared * d_expert)
            return MixtureOfExperts(d_model, **sizes, expert=expert, routing=routing, shared=whole)

        dense = min(config.size("first_k_dense_replace", 3, least=0), layers)
        alone = partial(network, self.options["d_ff"])
        return alternate(*[alone] * dense, *[experts] * (layers - dense))

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; the rotated part is published last."""
        origin = super().origin(name)
        if f"{QUERY}.weight" in name or f"{QUERY}.2." in name:
            return Origin(origin.names, self.turn_query)
        if "self_attention.down_projection" in name:
            return Origin(origin.names, self.turn_latent)
        return Origin(origin.names)

    def pairs(self, rows: Tensor) -> Tensor:
        """Reorder rotated rows from published pairs to neighbours."""
        return rows if self.are_neighbours else pair_neighbours(rows, self.d_k)

    def turn_latent(self, rows: Tensor) -> Tensor:
        """Move the rotated key before the latent vector."""
        return torch.cat((self.pairs(rows[-self.d_k :]), rows[: -self.d_k]))

    def turn_query(self, rows: Tensor) -> Tensor:
        """Move the rotated rows of each head to its beginning, and scale all."""
        of_heads = rows.unflatten(0, (self.num_heads, self.value_size + self.d_k))
        plain, rotated = of_heads.split((self.value_size, self.d_k), dim=1)
        turned = torch.cat((self.pairs(rotated.flatten(0, 1)).view_as(rotated), plain), dim=1)
        return self.query_factor * turned.flatten(0, 1)
