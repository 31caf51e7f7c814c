"""gpt-oss: mixtures of experts, attention sinks, and windows in every other layer.

gpt-oss-120b and gpt-oss-20b ("gpt-oss-120b & gpt-oss-20b Model Card", OpenAI 2025,
https://arxiv.org/abs/2508.10925, section 2) have Llama's layers with these changes:

- Each layer has a mixture of experts, of which a token uses four, by a softmax over those that are
  chosen (:class:`~transformer_blocks.MixtureOfExperts`). The tensors of all experts are published
  as one, with gate and up projection side by side in alternating columns.
- The gated networks bound what they multiply (:class:`ClampedGate`).
- Each head has a learned sink (:class:`~transformer_blocks.SinkAttention`), and every other layer a
  sliding window.
- Rotary frequencies are scaled by YaRN (:class:`~transformer_blocks.YarnScaling`).
- The projections of the attention and all others have biases.

The experts of OpenAI's own files are quantised to four bits, in a format that is refused here
(``quantization_config``); files with dequantised weights are read.

Next: ``deepseek_v3.py``, with latent attention.
"""

import re
from collections.abc import Collection
from functools import partial

from torch import Tensor

from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.pretrained.config import Config
from transformer_blocks.pretrained.llama_family import WHOLE, WINDOW, Llama, Rotary, read_windows
from transformer_blocks.pretrained.qwen3_moe import read_experts
from transformer_blocks.pretrained.weights import Origin
from transformer_blocks.variants.alternate import alternate
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts
from transformer_blocks.variants.sinks import SinkAttention


class ClampedGate(GatedFeedForward):
    """A gated network with bounds: down((up + 1) * gate * sigmoid(alpha * gate)).

    Args:
        d_model: Size of the input and output vectors.
        d_ff: Inner size.
        alpha: Factor of the gate within the sigmoid.
        limit: Bound of the gate, above, and of the up projection, on both sides.
    """

    def __init__(self, d_model: int, d_ff: int, *, alpha: float, limit: float) -> None:
        super().__init__(d_model, d_ff, bias=True)
        self.alpha, self.limit = alpha, limit

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to every position, of shape (..., d_model)."""
        gate = self.gate_projection(x).clamp(max=self.limit)
        up = self.up_projection(x).clamp(-self.limit, self.limit)
        return self.down_projection((up + 1.0) * gate * (self.alpha * gate).sigmoid())


class GptOss(Llama):
    """gpt-oss."""

    base, eps, bias = 1.5 * 10.0**5, 1e-5, True
    names = Llama.names | {
        "self_attention.attention_function.sinks": "self_attn.sinks",
        "feed_forward": "mlp",
    }

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        super().__init__(config)
        config.expect({"hidden_act": "silu"})
        d_model, d_ff = self.options["d_model"], self.options["d_ff"]
        alpha, limit = config.number("swiglu_alpha", 1.702), config.number("swiglu_limit", 7.0)
        self.options["feed_forward"] = partial(
            MixtureOfExperts,
            d_model,
            **read_experts(config, "num_local_experts", 128, 4),
            expert=partial(ClampedGate, d_model, d_ff, alpha=alpha, limit=limit),
            bias=True,
        )
        windows = self.options["windows"]
        kinds = (partial(self.attention, window) for window in windows)
        self.options["attention"] = alternate(*kinds)

    def attention(self, window: int | None) -> MultiHeadAttention:
        """Make the attention of a layer."""
        names = "d_model", "num_heads", "num_key_value_heads", "d_k", "bias"
        return MultiHeadAttention(
            **{name: self.options[name] for name in names},
            attention_function=SinkAttention(self.options["num_heads"], window=window),
            transforms=[self.options["rotary"]()],
        )

    def read_rotary(self, config: Config) -> Rotary:
        """Read the rotary positions of the layers, whose scaling has no default here."""
        if not (config.get("rope_parameters") or config.get("rope_scaling")):
            raise config.error("rope_parameters", "be given", None)
        return super().read_rotary(config)

    def read_windows(self, config: Config) -> list[int | None]:
        """Read the window of each layer; None for a layer that attends to the whole text."""
        layers = range(self.options["num_layers"])
        return read_windows(config, [WHOLE if layer % 2 else WINDOW for layer in layers])

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; the experts' are parts of one."""
        part = re.fullmatch(r"(.*experts)\.(\d+)\.(gate|up|down)_projection\.(\w+)", name)
        if not part:
            return super().origin(name)
        layer, expert, kind, parameter = part.groups()
        published = "down_proj" if kind == "down" else "gate_up_proj"
        bias = "_bias" if parameter == "bias" else ""
        origin = super().origin(f"{layer}.{published}{bias}")
        columns = slice(None) if kind == "down" else slice(kind == "up", None, 2)
        return origin.then(lambda tensor: tensor[int(expert)][..., columns].t())
