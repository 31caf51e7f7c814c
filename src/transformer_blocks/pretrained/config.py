"""Config: the settings of a published model, each checked when it is read.

One rule decides about every setting of a ``config.json``: a family reads it; or it has the only
value that is implemented here (:data:`ONLY`); or the output does not depend on it
(:data:`WITHOUT_EFFECT`). A file with any other setting is refused, so that no output is wrong
without a word.

Next: ``weights.py``, the weights of a model.
"""

import json
import re
import reprlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swish": F.silu,
}
"""Activation functions by their names in ``config.json``."""

LARGEST, MOST_LAYERS = 2**28, 2**10
"""Upper limits of every size and of a number of layers: beyond any published model. Products of two
sizes still fit in torch, and so many layers can be built before the weights are read."""

ONLY: dict[str, Any] = {
    "add_cross_attention": False,
    "add_final_layer_norm": False,
    "is_causal": True,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "moe_layer_freq": 1,
    "normalize_before": False,
    "normalize_embedding": False,
    "partial_rotary_factor": 1.0,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "scoring_func": "sigmoid",
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "tie_encoder_decoder": False,
    "topk_method": "noaux_tc",
    "use_bidirectional_attention": False,
    "use_sliding_window": False,
}
"""Settings that have no other value here."""

WITHOUT_EFFECT = re.compile(
    # training, and heads that are not read
    r".*dropout.*|.*_pdrop|.*layerdrop|.*initializer.*|init_std|.*aux_loss.*|aux_loss_alpha|seq_aux"
    r"|router_jitter_noise|ep_size|pretraining_tp|num_(nextn_predict|mtp)_layers|summary_.*"
    r"|classif.*|pooler_.*|problem_type|finetuning_task|num_labels|id2label|label2id"
    r"|gradient_checkpointing|output_past|sinusoidal_pos_embds"
    # where a model comes from, how it is stored, and what a function returns
    r"|_.*|architectures|auto_map|transformers_version|(torch_)?dtype|torchscript|use_bfloat16"
    r"|tf_legacy_loss|tokenizer_class|output_.*|return_dict.*|(use_)?cache.*|directionality"
    r"|chunk_size_feed_forward|reorder_and_upcast_attn|unsloth_.*|adapters"
    # tokens and searches, which the caller chooses
    r"|(bos|eos|pad|sep|cls|mask|unk|forced_[be]os)_token_id|prefix|task_specific_params"
    r"|do_sample|early_stopping|temperature|top_[kp]|typical_p|num_(beams|beam_groups)|.*_penalty"
    r"|num_return_sequences|(encoder_)?no_repeat_ngram_size|(min|max)_length|.*bad_words_ids"
    r"|(begin_)?suppress_tokens|force_bos_token_to_be_generated|remove_invalid_values"
    # other names of settings that are read, and settings of other versions of a family
    r"|n_ctx|n_positions|experts_per_token|initial_context_length|extra_pos_embeddings"
    r"|tie_word_embeddings|max_window_layers"
)
"""Names of settings that no output depends on, unless a family reads them."""

Choice = TypeVar("Choice")


class LoadError(ValueError):
    """A file of a published model is missing, damaged, or describes what is not implemented."""


class Config:
    """The settings of a published model, each checked when it is read.

    Args:
        path: Path of the file, which errors name.
        values: Its settings.
    """

    def __init__(self, path: Path | str, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.known: set[str] = set()
        self.parts: dict[str, Config] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default if the file has none or null."""
        self.known.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def error(self, name: str, rule: str, found: object) -> LoadError:
        """Make the error that a setting does not follow a rule."""
        return LoadError(f"{self.path}: {name} must {rule}, got {shown(found)}")

    def expect(self, settings: Mapping[str, object]) -> None:
        """Raise unless each of these settings is absent or has the given value.

        Raises:
            LoadError: If one has another value.
        """
        for name, wanted in settings.items():
            self.known.add(name)
            if self.values.get(name, wanted) != wanted:
                raise self.error(name, f"be {wanted!r} here", self.values[name])

    def check_rest(self) -> None:
        """Apply the rule of this file to all settings that were not read.

        Raises:
            LoadError: If one is not implemented.
        """
        for name, value in self.values.items():
            is_null = value is None and ONLY.get(name) is not True  # null is false, or the default
            if name in ONLY and name not in self.known and not is_null:
                self.expect({name: ONLY[name]})
            elif not (name in self.known or value is None or WITHOUT_EFFECT.fullmatch(name)):
                raise self.error(name, "be left out, as it is not implemented here", value)
        for part in self.parts.values():
            part.check_rest()

    def size(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int:
        """Read a whole number.

        Args:
            name: Name of the setting.
            default: The value if the file has none.
            least: Smallest valid value.
            most: Largest valid value.

        Raises:
            LoadError: If the value is missing without a default, or invalid.
        """
        value = self.get(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.error(name, f"be a whole number from {least} to {most}", value)
        return value

    def layers(self, name: str, default: int | None = None) -> int:
        """Read a number of layers."""
        return self.size(name, default, most=MOST_LAYERS)

    def heads(self, name: str, d_model: int) -> int:
        """Read a number of heads, which must divide the hidden size.

        Raises:
            LoadError: If the number is missing or does not divide ``d_model``.
        """
        heads = self.size(name)
        if d_model % heads:
            raise self.error(name, f"divide the hidden size {d_model}", heads)
        return heads

    def number(self, name: str, default: float | None = None) -> float:
        """Read a number from 1e-30 to 1e30, which float32 can represent.

        Args:
            name: Name of the setting.
            default: The value if the file has none.

        Raises:
            LoadError: If the value is missing without a default, or invalid.
        """
        value = self.get(name, default)
        if type(value) not in (int, float) or not 10.0**-30 <= value <= 10.0**30:
            raise self.error(name, "be a number from 1e-30 to 1e30", value)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Read true or false.

        Args:
            name: Name of the setting.
            default: The value if the file has none.

        Raises:
            LoadError: If the value is neither.
        """
        self.known.add(name)
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "be true or false", value)
        return value

    def choice(
        self, name: str, choices: Mapping[str, Choice], default: str | None = None
    ) -> Choice:
        """Return what belongs to the name that a setting has as its value.

        Args:
            name: Name of the setting.
            choices: What belongs to each value that is implemented.
            default: The value if the file has none.

        Raises:
            LoadError: If the value is missing without a default, or is none of them.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.error(name, f"be one of {', '.join(choices)} here", value)
        return choices[value]

    def nested(self, name: str) -> "Config":
        """Return the settings of an object within the file; their errors name it too.

        Raises:
            LoadError: If the value is missing or no object.
        """
        values = self.get(name)
        if not isinstance(values, dict):
            raise self.error(name, "be an object", values)
        return self.parts.setdefault(name, Config(f"{self.path}: {name}", values))


def shown(value: object) -> str:
    """Format a value of a published file for an error message, shortened if long or nested."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        LoadError: If the file is missing or damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise LoadError(f"{path} is not JSON that can be read: too many nested levels") from error
    except UnicodeEncodeError as error:
        raise LoadError(f"{path} holds a lone surrogate, which is no character") from error
    except ValueError as error:  # neither JSON nor UTF-8
        raise LoadError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content
