r"""Pooling: one vector of a sentence from those of its tokens, and what follows.

A model of ``sentence-transformers`` is a sequence of modules, listed in ``modules.json``: first the
encoder, then a pooling, then perhaps linear layers and a normalisation, each with its settings in a
folder of its own. All of them are read, and one that is not implemented here is refused.

Next: ``bert.py``, which searches with such vectors.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import UserError
from pretrained.loading import (
    WEIGHTS,
    Config,
    Origin,
    load_model,
    read_json_list,
    shown,
)


def first(states: Tensor, real: Tensor) -> Tensor:
    """Take the first token, [CLS]."""
    return states[:, 0]


def last(states: Tensor, real: Tensor) -> Tensor:
    """Take the last real token, [SEP]."""
    return states[torch.arange(len(states)), real.sum(dim=1) - 1]


def maximum(states: Tensor, real: Tensor) -> Tensor:
    """Take the largest of each number."""
    return states.masked_fill(~real[:, :, None], -torch.inf).amax(dim=1)


def mean(states: Tensor, real: Tensor) -> Tensor:
    """Take the mean."""
    return _sum(states, real) / real.sum(dim=1, keepdim=True)


def mean_over_root(states: Tensor, real: Tensor) -> Tensor:
    """Divide the sum by the square root of the number of tokens."""
    return _sum(states, real) / real.sum(dim=1, keepdim=True).sqrt()


def weighted_mean(states: Tensor, real: Tensor) -> Tensor:
    """Take the mean in which the first token counts once, the second twice, and so on."""
    weights = torch.arange(1, states.shape[1] + 1, device=states.device) * real  # (B, L)
    return _sum(states * weights[:, :, None], real) / weights.sum(dim=1, keepdim=True)


def _sum(states: Tensor, real: Tensor) -> Tensor:
    return states.masked_fill(~real[:, :, None], 0.0).sum(dim=1)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": first,
    "max": maximum,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_over_root,
    "weightedmean": weighted_mean,
    "lasttoken": last,
}
"""What the poolings are called in a published file: from states (B, L, d_model), and a mask (B, L)
that is True at real tokens, to one vector each, (B, d_model)."""

OLD_NAMES = {f"pooling_mode_{name}_tokens": name for name in ("mean", "max", "weightedmean")} | {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_lasttoken": "lasttoken",
}
"""What older files call them; each is true or false there."""

DENSE_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}

ON_SENTENCES = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}
"""What a module after the pooling must work on, and not on the vectors of tokens."""

ENCODER = "Transformer"
DEFAULT = [(ENCODER, ""), ("Pooling", "1_Pooling")]
"""The modules of a folder without ``modules.json``."""


class Normalise(nn.Module):
    """Divide each vector by its length."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors of length one, of the same shape."""
        return F.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class Pooling:
    """What makes a sentence's vector of its tokens'.

    Attributes:
        modes: Functions of :data:`POOLINGS`; of several, the vectors are joined end to end.
        following: What is then computed of the vector.
        width: Its size at the end.
    """

    modes: tuple[Callable[[Tensor, Tensor], Tensor], ...]
    following: nn.Sequential
    width: int

    def __call__(self, states: Tensor, real: Tensor) -> Tensor:
        """Make a vector of each sentence, shape (B, width).

        Args:
            states: The encoder's output. Shape (B, L, d_model).
            real: True at real tokens, False at padding. Shape (B, L).
        """
        pooled = torch.cat([mode(states, real) for mode in self.modes], dim=-1)
        vectors: Tensor = self.following(pooled)
        return vectors

    @classmethod
    def load(cls, folder: Path, d_model: int, *, dtype: torch.dtype) -> "Pooling":
        """Read the modules after the encoder.

        Raises:
            UserError: If a file is damaged, or names a module that is not implemented here.
        """
        (_, pooling), *others = read_modules(folder)[1:]
        modes = _read_modes(folder / pooling / "config.json", d_model)
        width = len(modes) * d_model
        following: list[nn.Module] = []
        for kind, path in others:
            if kind == "Normalize":
                settings = folder / path / "config.json"
                if settings.exists():
                    Config(settings).expect_only(**ON_SENTENCES)
                following.append(Normalise())
            elif kind == "Dense":
                dense, width = _read_dense(folder / path, width, dtype)
                following.append(dense)
        return cls(tuple(POOLINGS[mode] for mode in modes), nn.Sequential(*following), width)


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Read the kinds of the modules and the folders of their settings: encoder, pooling, others.

    Raises:
        UserError: If ``modules.json`` is damaged, or lists others.
    """
    path = folder / "modules.json"
    if not path.exists():
        return DEFAULT
    found = []
    for place, module in enumerate(read_json_list(path)):
        name, part = (
            (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        )
        kind = re.fullmatch(r"sentence_transformers\.(?:\w+\.)*(\w+)", str(name))
        wanted = ({ENCODER}, {"Pooling"}, {"Dense", "Normalize", "Dropout"})[min(place, 2)]
        if not kind or kind[1] not in wanted:
            raise UserError(
                f"{path}: module {place} must be {' or '.join(sorted(wanted))} of "
                f"sentence_transformers for this program, got {shown(name)}"
            )
        if not isinstance(part, str) or not re.fullmatch(r"\w[\w-]*|", part):
            raise UserError(f"{path}: module {place} must name a folder here, got {shown(part)}")
        found.append((kind[1], part))
    if len(found) < 2:
        raise UserError(f"{path} must list an encoder and a pooling, got {len(found)} modules")
    return found


def _read_modes(path: Path, d_model: int) -> list[str]:
    if not path.exists():
        return ["mean"]
    config = Config(path)
    modes = config.values.get("pooling_mode")
    flags = {name: value for name, value in config.values.items() if name in OLD_NAMES}
    config.expect_only(
        word_embedding_dimension=d_model,
        embedding_dimension=d_model,
        include_prompt=True,
        pooling_mode=modes,
        **flags,
    )
    if modes is None:
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise UserError(f"{path}: {name} must be true or false, got {shown(value)}")
        chosen = {OLD_NAMES[name] for name, value in flags.items() if value}
        modes = [mode for mode in POOLINGS if mode in chosen] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not all(_is_mode(mode) for mode in modes):
        raise UserError(
            f"{path}: pooling_mode must be one or several of {', '.join(POOLINGS)}, "
            f"got {shown(modes)}"
        )
    return modes


def _is_mode(mode: object) -> bool:
    return isinstance(mode, str) and mode in POOLINGS


def _read_dense(folder: Path, width: int, dtype: torch.dtype) -> tuple[nn.Module, int]:
    config = Config(folder / "config.json")
    config.expect_only(
        in_features=width,
        use_residual=False,
        **{
            name: config.values.get(name)
            for name in ("activation_function", "bias", "out_features")
        },
        **ON_SENTENCES,
    )
    name = config.values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or name not in DENSE_ACTIVATIONS:
        raise UserError(
            f"{config.path}: activation_function must be one of {', '.join(DENSE_ACTIVATIONS)}, "
            f"got {shown(name)}"
        )
    bias = config.values.get("bias", True)
    if not isinstance(bias, bool):
        raise UserError(f"{config.path}: bias must be true or false, got {shown(bias)}")
    new_width = config.size("out_features")
    make = partial(nn.Linear, width, new_width, bias=bias)
    kinds = ("weight", "bias") if bias else ("weight",)
    origins = [(kind, Origin((f"linear.{kind}",))) for kind in kinds]
    linear = load_model(make, folder / WEIGHTS, origins, left_out="", dtype=dtype)
    return nn.Sequential(linear, DENSE_ACTIVATIONS[name]()), new_width
