"""The Llama family: sizes, rotary settings and tensor names of Llama, Qwen3 and Gemma 3.

Their layers consist of the same parts: grouped-query attention with rotary positions, a gated
feed-forward network and RMSNorm. Two settings in ``config.json`` have an older and a newer form:
the base and the scaling of the rotary frequencies, and the windows of the layers.

The files follow another convention of rotary positions than
:class:`~transformer_blocks.RotaryPositionalEncoding`: element i of a query or key forms a pair with
element i + d_k / 2, and not with its neighbour. The scores are the same if the rows of the query
and key projections are reordered in each head (:func:`pair_neighbours`):

    published  0 1 2 3 4 5 6 7   pairs (0, 4) (1, 5) (2, 6) (3, 7)
    ours       0 4 1 5 2 6 3 7   pairs of neighbours

Next: ``llama_model.py``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from common.errors import UserError
from pretrained.language_model import LanguageModel
from pretrained.loading import LARGEST, Config, shown
from pretrained.weights import Origin
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    GatedFeedForward,
    GroupedQueryAttention,
    Llama3Scaling,
    PositionInterpolation,
    QueryKeyTransform,
    RotaryPositionalEncoding,
    SlidingWindowAttention,
    fused_attention,
)

PROJECTIONS = {
    "self_attention.query_projection": "self_attn.q_proj",
    "self_attention.key_projection": "self_attn.k_proj",
    "self_attention.value_projection": "self_attn.v_proj",
    "self_attention.output_projection": "self_attn.o_proj",
    "feed_forward.gate_projection": "mlp.gate_proj",
    "feed_forward.up_projection": "mlp.up_proj",
    "feed_forward.down_projection": "mlp.down_proj",
}
"""Published names of the linear layers of a layer."""

ROTATED = ("q_proj", "k_proj", "q_norm", "k_norm")
"""The published modules whose outputs are rotated."""

LEFT_OUT = r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
"""Rotary frequencies, which are computed here."""

WINDOW, WHOLE = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Sizes:
    """The settings that all models of the family have.

    Attributes:
        vocabulary_size: Number of token ids.
        d_model: Hidden size.
        num_layers: Number of layers.
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads.
        d_k: Size of a head.
        d_ff: Inner size of the feed-forward networks.
        max_length: Maximum number of tokens of a text.
        activation: Activation function of the gates.
        eps: Constant that the normalisations add to the mean square.
        bias: Whether the projections of the attention have biases.
        feed_forward_bias: Whether the linear layers of the feed-forward networks have biases.
        tied: Whether the output layer shares the weights of the token embedding.
    """

    vocabulary_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int
    d_k: int
    d_ff: int
    max_length: int
    activation: Callable[[Tensor], Tensor]
    eps: float
    bias: bool
    feed_forward_bias: bool
    tied: bool

    @classmethod
    def read(cls, config: Config, *, activation: str = "hidden_act", tied: bool) -> "Sizes":
        """Read the settings of a ``config.json``.

        Args:
            config: The file.
            activation: Name of the setting of the activation function.
            tied: Whether the output layer is tied if the file does not say it.

        Raises:
            UserError: If a setting is missing or invalid.
        """
        config.expect(is_causal=True)
        d_model, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
        groups = config.size("num_key_value_heads", num_heads)
        if num_heads % groups:
            raise UserError(
                f"{config.path}: num_key_value_heads must divide num_attention_heads, "
                f"got {groups} and {num_heads}"
            )
        if config.values.get("head_dim") is None:
            config.heads("num_attention_heads", d_model)
        d_k = config.size("head_dim", max(1, d_model // num_heads), most=LARGEST // num_heads)
        if d_k % 2:
            raise UserError(f"{config.path}: head_dim must be even, got {d_k}")
        return cls(
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            # Limited, because the kinds of the layers are listed before the tensors are compared.
            num_layers=config.size("num_hidden_layers", most=2**12),
            num_heads=num_heads,
            num_key_value_heads=groups,
            d_k=d_k,
            d_ff=config.size("intermediate_size"),
            max_length=config.size("max_position_embeddings"),
            activation=config.activation(activation),
            eps=config.number("rms_norm_eps", 1e-6),
            bias=config.flag("attention_bias", False),
            feed_forward_bias=config.flag("mlp_bias", False),
            tied=config.flag("tie_word_embeddings", tied),
        )

    def norm(self) -> nn.RMSNorm:
        """Make a normalisation of the residual stream."""
        return nn.RMSNorm(self.d_model, eps=self.eps)

    def attention(
        self, transforms: Sequence[QueryKeyTransform], *, window: int | None = None
    ) -> GroupedQueryAttention:
        """Make the attention of a layer, with a window or without."""
        function = fused_attention if window is None else SlidingWindowAttention(window)
        return GroupedQueryAttention(
            self.d_model,
            self.num_heads,
            self.num_key_value_heads,
            d_k=self.d_k,
            bias=self.bias,
            attention_function=function,
            transforms=transforms,
        )

    def feed_forward(self) -> GatedFeedForward:
        """Make the feed-forward network of a layer."""
        return GatedFeedForward(
            self.d_model, self.d_ff, activation=self.activation, bias=self.feed_forward_bias
        )


class LlamaFamily(LanguageModel):
    """A language model of this family.

    Args:
        sizes: The settings of the model.
        layers: The layers, which differ between the members of the family.
        end_ids: Ids of the tokens that end a text.
        embedding_scale: Factor of the token embeddings.
        logit_cap: Bound of the logits; none if ``None``.
    """

    def __init__(
        self,
        sizes: Sizes,
        layers: Iterable[EncoderLayer],
        *,
        end_ids: Sequence[int],
        embedding_scale: float = 1.0,
        logit_cap: float | None = None,
    ) -> None:
        super().__init__(
            Encoder(list(layers), norm=sizes.norm()),
            vocabulary_size=sizes.vocabulary_size,
            d_model=sizes.d_model,
            max_length=sizes.max_length,
            end_ids=end_ids,
            tied=sizes.tied,
            embedding_scale=embedding_scale,
            logit_cap=logit_cap,
        )


def read_rotary(
    config: Config, d_k: int, *, base: float, kind: str | None = None
) -> Callable[[], RotaryPositionalEncoding]:
    """Read the rotary settings of a model, or of those of its layers that are of one kind.

    Args:
        config: The file.
        d_k: Size of a head.
        base: Base of the frequencies if the file does not give one.
        kind: Kind of the layers, if ``rope_parameters`` holds one object for each kind.

    Returns:
        A function that makes a new transform for a layer.

    Raises:
        UserError: If a setting is invalid or not implemented.
    """
    newer, older = (
        config.values.get(name) not in (None, {}) for name in ("rope_parameters", "rope_scaling")
    )
    if newer and older:
        raise UserError(f"{config.path}: rope_parameters and rope_scaling must not both be given")
    base = config.number("rope_local_base_freq" if kind == WINDOW else "rope_theta", base)
    if newer:
        settings = config.nested("rope_parameters")
        settings = settings if kind is None else settings.nested(kind)
    elif older and kind != WINDOW:
        settings = config.nested("rope_scaling")
    else:
        return partial(RotaryPositionalEncoding, d_k, base=base)
    base = settings.number("rope_theta", base)
    kinds = [settings.values[name] for name in ("rope_type", "type") if name in settings.values]
    found = kinds[0] if kinds else "default"
    known = "rope_theta", "rope_type", "type"
    if found == "default":
        settings.expect_only(*known, partial_rotary_factor=1.0)
        return partial(RotaryPositionalEncoding, d_k, base=base)
    factor = settings.number("factor")
    if factor < 1.0:
        raise UserError(f"{settings.path}: factor must be at least 1, got {factor}")
    scaling: PositionInterpolation | Llama3Scaling
    if found == "linear":
        settings.expect_only(*known, "factor", partial_rotary_factor=1.0)
        scaling = PositionInterpolation(factor)
    elif found == "llama3":
        names = "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"
        settings.expect_only(*known, "factor", *names, partial_rotary_factor=1.0)
        low, high = (settings.number(name) for name in names[1:])
        if not low < high:
            raise UserError(
                f"{settings.path}: low_freq_factor must be below high_freq_factor, "
                f"got {low} and {high}"
            )
        length = settings.size(names[0])
        config.expect(original_max_position_embeddings=length)  # beside them, it would be preferred
        scaling = Llama3Scaling(factor, length=length, low=low, high=high)
    else:
        raise UserError(
            f"{settings.path}: rope_type must be default, linear or llama3 for this program, "
            f"got {shown(found)}"
        )
    return partial(RotaryPositionalEncoding, d_k, base=base, scaling=scaling)


def read_windows(
    config: Config, default: Sequence[bool], *, allowed: bool = True
) -> list[int | None]:
    """Read the window of each layer; None for a layer that attends to the whole text.

    Args:
        config: The file.
        default: Whether each layer has a window, if ``layer_types`` does not say it.
        allowed: Whether ``layer_types`` may give windows to layers.

    Raises:
        UserError: If a setting is missing or invalid.
    """
    known = [WINDOW, WHOLE] if allowed else [WHOLE]
    kinds = config.values.get("layer_types")
    if kinds is None:
        kinds = [WINDOW if has_window else WHOLE for has_window in default]
    is_list = isinstance(kinds, list) and len(kinds) == len(default)
    if not is_list or not {*map(str, kinds)} <= {*known}:
        raise UserError(
            f"{config.path}: layer_types must hold {' or '.join(map(repr, known))} for each of the "
            f"{len(default)} layers, got {shown(kinds)}"
        )
    return [config.size("sliding_window") if kind == WINDOW else None for kind in kinds]


def pair_neighbours(tensor: Tensor, d_k: int) -> Tensor:
    """Reorder the elements of each head from published pairs (i, i + d_k / 2) to neighbours.

    Args:
        tensor: Weights or biases of a projection, or gains of a normalisation; dim 0 holds d_k
            elements of one head after another.
        d_k: Size of a head.

    Example:
        >>> import torch
        >>> pair_neighbours(torch.arange(8), d_k=8)
        tensor([0, 4, 1, 5, 2, 6, 3, 7])
    """
    return tensor.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)


def origins(
    sizes: Sizes,
    norms: Mapping[str, str],
    convert_norm: Callable[[str, Tensor], Tensor] = lambda _, gains: gains,
) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each parameter and its origin in a published file, layer by layer.

    Args:
        sizes: The settings of the model.
        norms: Published names of the normalisations of a layer.
        convert_norm: Function from the published name of a normalisation and its tensor to gains.
    """

    def origin(name: str) -> Origin:
        module = name.split(".")[-2]

        def convert(tensor: Tensor) -> Tensor:
            tensor = convert_norm(module, tensor) if module.endswith("norm") else tensor
            return pair_neighbours(tensor, sizes.d_k) if module in ROTATED else tensor

        return Origin((f"model.{name}", name), convert=convert)

    table = origin("embed_tokens.weight")
    if sizes.tied:
        table = Origin((*table.names, "lm_head.weight"))
    yield "token_embedding.weight", table
    yield "output.weight", table if sizes.tied else Origin(("lm_head.weight",))
    yield "decoder.norm.weight", origin("norm.weight")
    for layer in range(sizes.num_layers):
        here, there = f"decoder.layers.{layer}", f"layers.{layer}"
        for ours, theirs in norms.items():
            yield f"{here}.{ours}.weight", origin(f"{there}.{theirs}.weight")
        for ours, theirs in PROJECTIONS.items():
            has_bias = sizes.bias if "attention" in ours else sizes.feed_forward_bias
            for kind in ("weight", "bias")[: 2 if has_bias else 1]:
                yield f"{here}.{ours}.{kind}", origin(f"{there}.{theirs}.{kind}")
