"""Tiny configurations: shrink any configuration of transformers by the names of its fields.

Widths are divided by one factor, so that the sums, products and equalities that a model expects of
them still hold. Numbers of layers, experts and tokens become small. A list with an entry for each
layer keeps one entry of each kind, so that hybrid models keep each kind of layer.
"""

import re
from collections.abc import Mapping
from typing import Any

LAYERS = 2
VOCABULARY = 128  # the special tokens come last
LIMITS = (
    (re.compile(r"vocab"), VOCABULARY),
    (re.compile(r"experts_per_tok|num_experts_per|top_?k$|moe_k$"), 2),
    (re.compile(r"experts$"), 4),
    (
        re.compile(
            r"sliding_window(_size)?$|attention_chunk_size$|index_topk$"
            r"|attention_window$|^block_size$"
        ),
        4,
    ),
    (re.compile(r"kv_shared_layers$"), 0),
    (re.compile(r"attn_layer_offset$"), 1),
    (re.compile(r"attn_layer_period$"), 2),
    (re.compile(r"n_group$|topk_group$"), 1),
    (re.compile(r"(^|_)(layers?|depths?|blocks)$|num_hidden_layers"), LAYERS),
)  # the largest number of a field with such a name
WIDTH = re.compile(
    r"(^|_)(sizes?|dims?|embd|inner|rank|channels|filters|units|width)(_global|_per_stage)?$"
    r"|^d_|hidden_size|(size|dim)_per_head|mrope_section|query_pre_attn_scalar"
)
NO_WIDTH = re.compile(
    r"(vocab|image|patch|kernel|window|batch|block|chunk|codebook|crop|img|sample|input|feat|grid"
    r"|merge|conv|state|pool|group|roi|mask|prompt)_?(sizes?|dims?)$|num_channels|in_channels"
)
IMAGES = ("image_size", "img_size")
TOKEN = re.compile(r"_(token_)?(id|ids|index)$")


def shrink(config: Any, factor: int, *, is_image_small: bool = False) -> Any:
    """Shrink a configuration of transformers, and those in it, in place; return it.

    Args:
        config: The default configuration of a model.
        factor: What widths are divided by, where they can be.
        is_image_small: Whether images become small too. Other fields may tell the number of their
            patches, so that this is not always possible.
    """
    fields = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    length = fields.get("num_hidden_layers")
    kinds = {
        name: list(dict.fromkeys(value))
        for name, value in fields.items()
        if isinstance(value, list | tuple)
        and len(value) == length
        and all(isinstance(each, str | bool) for each in value)
    }
    layers = max([LAYERS, *map(len, kinds.values())])
    following = VOCABULARY
    for name, value in fields.items():
        if hasattr(value, "model_type"):
            new = shrink(value, factor, is_image_small=is_image_small)
        elif name in kinds:
            new = type(value)((kinds[name] * layers)[:layers])
        elif name == "num_hidden_layers" and kinds:
            new = min(value, layers)
        elif is_image_small and name in IMAGES and isinstance(value, int):
            new = min(value, 64)
        elif TOKEN.search(name) and isinstance(value, int) and value >= VOCABULARY - 28:
            following -= 1
            new = following
        else:
            new = _shrink_value(name, value, factor)
        if new is not value:
            setattr(config, name, new)
    return config


def _shrink_value(name: str, value: Any, factor: int) -> Any:
    if isinstance(value, Mapping) and name in ("rope_parameters", "rope_scaling"):
        default = {"mrope_section": [16, 24, 24]} if "rope_type" in value else {}
        return {key: _shrink_value(key, each, factor) for key, each in {**default, **value}.items()}
    if isinstance(value, list | tuple):
        return type(value)(_shrink_value(name, each, factor) for each in value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    for pattern, limit in LIMITS:
        if pattern.search(name):
            return min(value, limit)
    is_width = WIDTH.search(name) and not NO_WIDTH.search(name)
    return value // factor if is_width and value % factor == 0 else value


def list_configurations(config: Any) -> list[Any]:
    """List a configuration and those in it, the outer ones first."""
    found = [config]
    for each in found:  # which grows meanwhile
        found += [value for value in vars(each).values() if hasattr(value, "model_type")]
    return found


def find_field(config: Any, *names: str) -> Any:
    """Find the value of a field in a configuration, or in one that it holds."""
    values = (getattr(x, name, None) for x in list_configurations(config) for name in names)
    return next(filter(None, values), None)


def special_tokens(config: Any) -> set[int]:
    """Collect the ids that mean something to a model, from a configuration and those in it."""
    found: set[int] = set()
    for each in list_configurations(config):
        for name, value in vars(each).items():
            if TOKEN.search(name) and isinstance(value, int | list | tuple):
                found |= {value} if isinstance(value, int) else {*value}
    return found
