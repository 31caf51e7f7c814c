"""Llama: the parts of its layers from a configuration, which later families share.

Llama ("LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023,
https://arxiv.org/abs/2302.13971, section 2.2; "The Llama 3 Herd of Models", 2024,
https://arxiv.org/abs/2407.21783, section 3.2) differs from GPT-2 in these parts: RMSNorm in place
of layer normalisation, a gated feed-forward network (SwiGLU), rotary positions in the attention in
place of learned ones, and no biases. Grouped-query attention came with the larger models of Llama 2
and is in all of Llama 3. Llama 3.1 also scales the rotary frequencies, for longer texts.

Two settings in ``config.json`` have an older and a newer form: the base and the scaling of the
rotary frequencies, and the windows of the layers.

The files follow another convention of rotary positions than
:class:`~transformer_blocks.RotaryPositionalEncoding`: element i of a query or key forms a pair with
element i + d_k / 2, and not with its neighbour. The scores are the same if the rows of the query
and key projections are reordered in each head (:func:`pair_neighbours`):

    published  0 1 2 3 4 5 6 7   pairs (0, 4) (1, 5) (2, 6) (3, 7)
    ours       0 4 1 5 2 6 3 7   pairs of neighbours

Next: ``qwen3.py``, which normalises queries and keys.
"""

import math
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from transformer_blocks.models import LanguageModel
from transformer_blocks.pretrained.config import ACTIVATIONS, LARGEST, Config
from transformer_blocks.pretrained.family import Family
from transformer_blocks.pretrained.llama import build_llama
from transformer_blocks.pretrained.weights import Origin
from transformer_blocks.variants.rotary import RotaryPositionalEncoding
from transformer_blocks.variants.rotary_scaling import (
    Llama3Scaling,
    PositionInterpolation,
    YarnScaling,
)

WINDOW, WHOLE, DEFAULT = "sliding_attention", "full_attention", "default"
LENGTH = "original_max_position_embeddings"
Rotary = Callable[[], RotaryPositionalEncoding]


class Llama(Family):
    """Llama.

    Attributes:
        options: Arguments of :func:`~transformer_blocks.pretrained.build_llama`.
        d_k: Size of a head.
    """

    names: ClassVar[dict[str, str]] = {
        "embedding": "embed_tokens",
        "decoder.norm": "norm",
        "decoder.layers": "layers",
        "self_attention.query_projection": "self_attn.q_proj",
        "self_attention.key_projection": "self_attn.k_proj",
        "self_attention.value_projection": "self_attn.v_proj",
        "self_attention.output_projection": "self_attn.o_proj",
        "feed_forward.gate_projection": "mlp.gate_proj",
        "feed_forward.up_projection": "mlp.up_proj",
        "feed_forward.down_projection": "mlp.down_proj",
        "self_attention_residual.norm": "input_layernorm",
        "feed_forward_residual.norm": "post_attention_layernorm",
    }
    prefixes = ("model.", "")
    left_out = r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # computed here
    activation: ClassVar[str] = "hidden_act"
    base: ClassVar[float] = 10000.0
    eps: ClassVar[float] = 1e-6
    bias: ClassVar[bool] = False
    tied: ClassVar[bool] = False
    options: dict[str, Any]

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        self.read_sizes(config)
        d_model, heads = self.options["d_model"], config.size("num_attention_heads")
        if config.values.get("head_dim") is None:
            config.heads("num_attention_heads", d_model)
        groups = config.size("num_key_value_heads", heads)
        if heads % groups:
            raise config.error("num_key_value_heads", f"divide num_attention_heads={heads}", groups)
        self.d_k = config.size("head_dim", max(1, d_model // heads), most=LARGEST // heads)
        if self.d_k % 2:
            raise config.error("head_dim", "be even", self.d_k)
        self.options |= {
            "num_heads": heads,
            "num_key_value_heads": groups,
            "d_k": self.d_k,
            "rotary": self.read_rotary(config),
            "windows": self.read_windows(config),
            "bias": config.flag("attention_bias", self.bias),
        }

    def read_sizes(self, config: Config) -> None:
        """Read the settings that do not concern the attention."""
        self.max_length = config.size("max_position_embeddings")
        self.options = {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": config.layers("num_hidden_layers"),
            "d_model": config.size("hidden_size"),
            "d_ff": config.size("intermediate_size"),
            "activation": config.choice(self.activation, ACTIVATIONS),
            "eps": config.number("rms_norm_eps", self.eps),
            "feed_forward_bias": config.flag("mlp_bias", False),
            "tied": config.flag("tie_word_embeddings", self.tied),
        }

    def read_rotary(self, config: Config) -> Rotary:
        """Read the rotary positions of the layers."""
        return partial(read_rotary(config, base=self.base), self.d_k)

    def read_windows(self, config: Config) -> list[int | None]:
        """Read the window of each layer; None for a layer that attends to the whole text."""
        return read_windows(config, [WHOLE] * self.options["num_layers"], may_have=False)

    def build(self) -> LanguageModel:
        """Compose the model."""
        return build_llama(**self.options)

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; reorder what is rotated in pairs."""
        if name.startswith("output."):
            own = Origin(("lm_head.weight",))
            if not self.options["tied"]:
                return own
            return Origin((*super().origin("embedding.weight").names, *own.names))
        origin = super().origin(name)
        if re.search(r"self_attention\..*(query|key)_(projection|norm)\.", name):
            return origin.then(partial(pair_neighbours, d_k=self.d_k))
        return origin


def read_rotary(
    config: Config, *, base: float, kind: str | None = None
) -> Callable[[int], RotaryPositionalEncoding]:
    """Read the rotary settings of a model, or of those of its layers that are of one kind.

    Args:
        config: The file.
        base: Base of the frequencies if the file does not give one.
        kind: Kind of the layers, if ``rope_parameters`` holds one object for each kind.

    Returns:
        A function that makes a new transform for a layer, from the size of a head.

    Raises:
        LoadError: If a setting is invalid or not implemented.
    """
    newer, older = (config.get(name) or None for name in ("rope_parameters", "rope_scaling"))
    if newer and older:
        raise config.error("rope_scaling", "be left out beside rope_parameters", older)
    base = config.number("rope_local_base_freq" if kind == WINDOW else "rope_theta", base)
    if not (newer or (older and kind != WINDOW)):
        return partial(RotaryPositionalEncoding, base=base)
    settings = config.nested("rope_parameters" if newer else "rope_scaling")
    settings = settings.nested(kind) if newer and kind else settings
    make = partial(RotaryPositionalEncoding, base=settings.number("rope_theta", base))
    older_name = settings.get("type", DEFAULT)
    found = settings.get("rope_type", older_name)
    if found == DEFAULT:
        return make
    if found not in ("linear", "llama3", "yarn"):
        raise settings.error("rope_type", "be default, linear, llama3 or yarn here", found)
    factor = settings.number("factor")
    if factor < 1.0:
        raise settings.error("factor", "be at least 1", factor)
    if found == "linear":
        return partial(make, scaling=PositionInterpolation(factor))
    length = settings.size(LENGTH)
    config.expect({LENGTH: length})  # beside them, it would be preferred
    if found == "yarn":
        return partial(make, scaling=read_yarn(settings, factor, length))
    low, high = (settings.number(f"{name}_freq_factor") for name in ("low", "high"))
    if not low < high:
        raise settings.error("low_freq_factor", f"be below high_freq_factor={high}", low)
    return partial(make, scaling=Llama3Scaling(factor, length=length, low=low, high=high))


def read_yarn(settings: Config, factor: float, length: int) -> YarnScaling:
    """Read the settings of YaRN, with which DeepSeek sharpens scores in two places."""
    low, high = settings.number("beta_slow", 1.0), settings.number("beta_fast", 32.0)
    if not low < high:
        raise settings.error("beta_slow", f"be below beta_fast={high}", low)
    if length <= 2.0 * math.pi * low:  # fewer turns than beta_slow, even of the fastest pair
        raise settings.error(LENGTH, f"exceed 2 pi * beta_slow={low}", length)
    sharp: dict[str, float] = {}
    if settings.get("attention_factor") is not None:
        sharp["attention_factor"] = settings.number("attention_factor")
    elif settings.get("mscale") and settings.get("mscale_all_dim"):
        shares = (yarn_factor(settings, factor, name) for name in ("mscale", "mscale_all_dim"))
        sharp["attention_factor"] = next(shares) / next(shares)
    truncate = settings.flag("truncate", True)
    return YarnScaling(factor, length, low=low, high=high, truncate=truncate, **sharp)


def yarn_factor(settings: Config, factor: float, name: str) -> float:
    """Return the factor 0.1 m ln s + 1 of YaRN, with the m of a setting."""
    return 0.1 * settings.number(name) * math.log(factor) + 1.0


def read_windows(config: Config, default: list[str], *, may_have: bool = True) -> list[int | None]:
    """Read the window of each layer; None for a layer that attends to the whole text.

    Args:
        config: The file.
        default: The kind of each layer, if ``layer_types`` does not say it.
        may_have: Whether ``layer_types`` may give windows to layers.

    Raises:
        LoadError: If a setting is missing or invalid.
    """
    known = [WINDOW, WHOLE] if may_have else [WHOLE]
    kinds, window = config.get("layer_types", default), config.get("sliding_window")
    is_list = isinstance(kinds, list) and len(kinds) == len(default)
    if not is_list or not {*map(str, kinds)} <= {*known}:
        rule = f"hold {' or '.join(map(repr, known))} for each of the {len(default)} layers"
        raise config.error("layer_types", rule, kinds)
    has_window = WINDOW in kinds
    window = config.size("sliding_window") if has_window else window
    return [window if kind == WINDOW else None for kind in kinds]


def pair_neighbours(tensor: Tensor, d_k: int) -> Tensor:
    """Reorder the elements of each head from published pairs (i, i + d_k / 2) to neighbours.

    Args:
        tensor: Weights or biases of a projection, or gains of a normalisation; dim 0 holds d_k
            elements of one head after another.
        d_k: Size of a head.

    Example:
        >>> import torch
        >>> from transformer_blocks.pretrained.llama_family import pair_neighbours
        >>> pair_neighbours(torch.arange(8), d_k=8)
        tensor([0, 4, 1, 5, 2, 6, 3, 7])
    """
    return tensor.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)
