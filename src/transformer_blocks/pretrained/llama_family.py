"""The Llama family: sizes and rotary settings of Llama, Qwen3 and Gemma 3.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from transformer_blocks import Llama3Scaling, PositionInterpolation, RotaryPositionalEncoding
from transformer_blocks.pretrained.loading import (
    ACTIVATIONS,
    LARGEST,
    Config,
    LoadError,
    read_end_ids,
    shown,
)

WINDOW, WHOLE, DEFAULT = "sliding_attention", "full_attention", "default"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The settings that all models of the family have.

    Attributes:
        vocabulary_size: Number of token ids.
        d_model: Hidden size.
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads.
        d_k: Size of a head.
        d_ff: Inner size of the feed-forward networks.
        max_length: Maximum number of tokens of a text.
        activation: Activation function of the gates.
        eps: Constant that the normalisations add to the mean square.
        windows: Window of each layer; None for a layer that attends to the whole text.
        rotary: Function that makes the rotary positions of a layer.
        window_rotary: Function that makes those of a layer with a window; ``rotary`` if ``None``.
        bias: Whether the projections of the attention have biases.
        feed_forward_bias: Whether the linear layers of the feed-forward networks have biases.
        tied: Whether the output layer shares the weights of the token embedding.
        query_scale: Factor of the gains of the query normalisation.
        logit_cap: Bound of the logits; none if ``None``.
        end_ids: Ids of the tokens that end a text.
    """

    vocabulary_size: int
    d_model: int
    num_heads: int
    num_key_value_heads: int
    d_k: int
    d_ff: int
    max_length: int
    activation: Callable[[Tensor], Tensor]
    eps: float
    windows: Sequence[int | None]
    rotary: Callable[[], RotaryPositionalEncoding]
    window_rotary: Callable[[], RotaryPositionalEncoding] | None = None
    bias: bool = False
    feed_forward_bias: bool = False
    tied: bool = False
    query_scale: float = 1.0
    logit_cap: float | None = None
    end_ids: tuple[int, ...] = ()

    @classmethod
    def read(
        cls,
        folder: Path,
        config: Config,
        *,
        activation: str = "hidden_act",
        tied: bool = False,
        base: float = 10000.0,
        kind: str | None = None,
        has_window: Callable[[int], bool] = lambda layer: False,
        windows_allowed: bool = False,
    ) -> Self:
        """Read the settings of a ``config.json``.

        Args:
            folder: The model's folder.
            config: The file.
            activation: Name of the setting of the activation function.
            tied: Whether the output layer is tied if the file does not say it.
            base: Base of the rotary frequencies if the file does not give one.
            kind: As for :func:`read_rotary`.
            has_window: Whether a layer has a window, if ``layer_types`` does not say it.
            windows_allowed: Whether ``layer_types`` may give windows to layers.

        Raises:
            LoadError: If a setting is missing or invalid.
        """
        sizes: dict[str, Any] = config.sizes(
            vocabulary_size="vocab_size",
            d_model="hidden_size",
            num_layers="num_hidden_layers",
            d_ff="intermediate_size",
            max_length="max_position_embeddings",
        )
        num_layers, num_heads = sizes.pop("num_layers"), config.size("num_attention_heads")
        groups = config.size("num_key_value_heads", num_heads)
        if num_heads % groups:
            raise LoadError(
                f"{config.path}: num_key_value_heads must divide num_attention_heads, "
                f"got {groups} and {num_heads}"
            )
        if config.values.get("head_dim") is None:
            config.check_heads("num_attention_heads", sizes["d_model"])
        d_k = sizes["d_model"] // num_heads
        d_k = config.size("head_dim", max(1, d_k), most=LARGEST // num_heads)
        if d_k % 2:
            raise LoadError(f"{config.path}: head_dim must be even, got {d_k}")
        return cls(
            **sizes,
            num_heads=num_heads,
            num_key_value_heads=groups,
            d_k=d_k,
            activation=config.choice(activation, ACTIVATIONS),
            eps=config.number("rms_norm_eps", 1e-6),
            windows=read_windows(config, map(has_window, range(num_layers)), windows_allowed),
            rotary=read_rotary(config, d_k, base=base, kind=kind),
            bias=config.flag("attention_bias", False),
            feed_forward_bias=config.flag("mlp_bias", False),
            tied=config.flag("tie_word_embeddings", tied),
            end_ids=read_end_ids(folder, config),
        )

    def norm(self) -> nn.RMSNorm:
        """Make a normalisation of the residual stream."""
        return nn.RMSNorm(self.d_model, eps=self.eps)


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
        LoadError: If a setting is invalid or not implemented.
    """
    newer, older = (
        config.values.get(name) not in (None, {}) for name in ("rope_parameters", "rope_scaling")
    )
    if newer and older:
        raise LoadError(f"{config.path}: rope_parameters and rope_scaling must not both be given")
    base = config.number("rope_local_base_freq" if kind == WINDOW else "rope_theta", base)
    if newer:
        settings = config.nested("rope_parameters")
        settings = settings if kind is None else settings.nested(kind)
    elif older and kind != WINDOW:
        settings = config.nested("rope_scaling")
    else:
        return partial(RotaryPositionalEncoding, d_k, base=base)
    make = partial(RotaryPositionalEncoding, d_k, base=settings.number("rope_theta", base))
    settings.expect(partial_rotary_factor=1.0)
    found = settings.values.get("rope_type", settings.values.get("type", DEFAULT))
    if found not in (DEFAULT, "linear", "llama3"):
        raise LoadError(
            f"{settings.path}: rope_type must be default, linear or llama3 for this program, "
            f"got {shown(found)}"
        )
    if found != DEFAULT:
        factor = settings.number("factor")
        if factor < 1.0:
            raise LoadError(f"{settings.path}: factor must be at least 1, got {factor}")
        make = partial(make, scaling=PositionInterpolation(factor))
    if found == "llama3":
        own = "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"
        length, low, high = settings.size(own[0]), *map(settings.number, own[1:])
        if not low < high:
            raise LoadError(
                f"{settings.path}: low_freq_factor must be below high_freq_factor, "
                f"got {low} and {high}"
            )
        config.expect(original_max_position_embeddings=length)  # beside them, it would be preferred
        make = partial(make, scaling=Llama3Scaling(factor, length=length, low=low, high=high))
    return make


def read_windows(config: Config, default: Iterable[bool], allowed: bool) -> list[int | None]:
    """Read the window of each layer; None for a layer that attends to the whole text.

    Args:
        config: The file.
        default: Whether each layer has a window, if ``layer_types`` does not say it.
        allowed: Whether ``layer_types`` may give windows to layers.

    Raises:
        LoadError: If a setting is missing or invalid.
    """
    known = [WINDOW, WHOLE] if allowed else [WHOLE]
    by_default = [WINDOW if has_window else WHOLE for has_window in default]
    kinds = config.values.get("layer_types")
    kinds = by_default if kinds is None else kinds
    is_list = isinstance(kinds, list) and len(kinds) == len(by_default)
    if not is_list or not {*map(str, kinds)} <= {*known}:
        raise LoadError(
            f"{config.path}: layer_types must hold {' or '.join(map(repr, known))} for each of the "
            f"{len(by_default)} layers, got {shown(kinds)}"
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
