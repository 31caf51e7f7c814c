r"""Pooling: compute the vector of a sentence from the hidden states of its tokens.

A model of ``sentence-transformers`` is a sequence of modules, which ``modules.json`` lists: the
encoder, a pooling, and optionally linear layers and a normalisation. The settings of each module
are in a folder of its own. A module that is not implemented here is refused.

Next: ``bert_sentences.py``, which compares such vectors.
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
from transformer_blocks import first_pool, mean_pool
from transformer_blocks.pretrained.loading import Config, read_json, shown
from transformer_blocks.pretrained.weights import Origin, load_model

POOLINGS: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("cls", "pooling_mode_cls_token"), first_pool),
    **dict.fromkeys(("mean", "pooling_mode_mean_tokens"), mean_pool),
}
"""The poolings by their published names, newer and older ones."""

DENSE_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
}

ENCODER = "Transformer"
DEFAULT = [(ENCODER, ""), ("Pooling", "1_Pooling")]
"""The modules of a folder without ``modules.json``, each with its folder."""


class Normalise(nn.Module):
    """L2 normalisation: divide each vector by its Euclidean norm."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors of norm 1, of the same shape."""
        return F.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class Pooling:
    """The modules after the encoder: a pooling, linear layers and normalisations.

    Attributes:
        pool: Function of :data:`POOLINGS`.
        layers: The modules that transform the pooled vector.
        size: Number of features of the resulting vector.
    """

    pool: Callable[..., Tensor]
    layers: nn.Sequential
    size: int

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """Compute the vector of each sentence.

        Args:
            states: Hidden states from the encoder, of shape (B, L, d_model).
            mask: Padding mask of the tokens, of shape (B, 1, 1, L).

        Returns:
            Sentence vectors, of shape (B, size).
        """
        vectors: Tensor = self.layers(self.pool(states, mask=mask))
        return vectors

    @classmethod
    def load(cls, folder: Path, d_model: int, *, dtype: torch.dtype) -> "Pooling":
        """Load the modules after the encoder.

        Args:
            folder: The model's folder, with or without ``modules.json``.
            d_model: Hidden size of the encoder.
            dtype: Data type of the parameters, in which the modules compute.

        Raises:
            UserError: If a file is damaged, or names a module that is not implemented here.
        """
        (_, pooling), *others = read_modules(folder)[1:]
        pool, size = _read_mode(folder / pooling / "config.json", d_model), d_model
        layers: list[nn.Module] = []
        for kind, path in others:
            if kind == "Normalize":
                layers.append(Normalise())
            elif kind == "Dense":
                dense, size = _load_dense(folder / path, size, dtype)
                layers.append(dense)
        return cls(pool, nn.Sequential(*layers), size)


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Read the kind and the folder of each module: the encoder, the pooling, and the others.

    Raises:
        UserError: If ``modules.json`` is damaged, or lists other modules.
    """
    path = folder / "modules.json"
    if not path.exists():
        return DEFAULT
    found = []
    for index, module in enumerate(read_json(path, list)):
        name, part = (
            (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        )
        kind = re.fullmatch(r"sentence_transformers\.(?:\w+\.)*(\w+)", str(name))
        wanted = ({ENCODER}, {"Pooling"}, {"Dense", "Normalize", "Dropout"})[min(index, 2)]
        if not kind or kind[1] not in wanted:
            raise UserError(
                f"{path}: module {index} must be {' or '.join(sorted(wanted))} of "
                f"sentence_transformers for this program, got {shown(name)}"
            )
        if not isinstance(part, str) or not re.fullmatch(r"\w[\w-]*|", part):
            raise UserError(
                f"{path}: module {index} must name a folder within the model's, got {shown(part)}"
            )
        found.append((kind[1], part))
    if len(found) < 2:
        raise UserError(f"{path} must list an encoder and a pooling, got {len(found)} modules")
    return found


def _read_mode(path: Path, d_model: int) -> Callable[..., Tensor]:
    """Read the pooling; in older files, each has a setting that is true or false."""
    if not path.exists():
        return mean_pool
    config = Config(path)
    config.expect(
        word_embedding_dimension=d_model, embedding_dimension=d_model, include_prompt=True
    )
    older = [name for name, value in config.values.items() if "pooling_mode_" in name and value]
    config.values.setdefault("pooling_mode", " and ".join(older) or "mean")
    return config.choice("pooling_mode", POOLINGS)


def _load_dense(folder: Path, in_features: int, dtype: torch.dtype) -> tuple[nn.Module, int]:
    config = Config(folder / "config.json")
    config.expect(
        in_features=in_features, use_residual=False, module_input_name="sentence_embedding"
    )
    default = "torch.nn.modules.activation.Tanh"
    activation = config.choice("activation_function", DENSE_ACTIVATIONS, default)
    bias = config.flag("bias", True)
    out_features = config.size("out_features")
    make = partial(nn.Linear, in_features, out_features, bias=bias)
    linear = load_model(make, folder, lambda _, name: Origin((f"linear.{name}",)), dtype=dtype)
    return nn.Sequential(linear, activation()), out_features
