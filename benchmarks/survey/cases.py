"""Cases: the models of other libraries, small and with random parameters, each with an example."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from survey.tiny import VOCABULARY, find_field, shrink, special_tokens
from transformer_blocks.inspection.comparison import find_tensors

WIDTH, LARGEST = 32, 100 * 10**6  # of our configurations; parameters of the largest model
LENGTHS, TARGETS = (9, 5, 7), (6, 4, 3)  # of the sequences in a batch
FACTORS = (16, 8, 1)
# Mappings of transformers, by what their models are used for. A class is taken once; those after
# the first three are taken for the types of models that have no other class.
ROLES = (
    *("SEQ_TO_SEQ_CAUSAL_LM", "CAUSAL_LM", "MASKED_LM"),
    *("IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "MULTIMODAL_LM", "", "CTC", "IMAGE_CLASSIFICATION"),
)
CAUSAL = ROLES[:2] + ROLES[3:6]


class Case(NamedTuple):
    """A model, an example of its inputs, and whether it must be causal (None: found out)."""

    model: nn.Module
    example: Any
    causal: bool | None = None


class NotDrivenError(Exception):
    """A model was built, and none of the inputs that the survey can make fits it."""


Build = Callable[[], Case]


def describe_error(error: Exception) -> str:
    """Format an error in one line that is not too long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def find_cases() -> dict[str, Build]:
    """List the models of all installed libraries, by library and name."""
    found: dict[str, Build] = {}
    for library, find in (
        ("torch", torch_cases),
        ("x_transformers", x_transformers_cases),
        ("transformers", transformers_cases),
    ):
        with suppress(ImportError):
            found |= {f"{library} {name}": build for name, build in find()}
    return found


def is_real(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    """Mark the real tokens of a batch that is padded at the right, of shape (B, L)."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def draw_tokens(
    lengths: tuple[int, ...] = LENGTHS, padding: int = 0, special: frozenset[int] = frozenset()
) -> Tensor:
    """Draw ids that are not special, of shape (B, L), with padding at the right."""
    known = torch.tensor([each for each in range(3, 90) if each not in special])
    ids = known[torch.randperm(len(known))[: len(lengths) * max(lengths)]]
    return ids.view(len(lengths), -1).where(is_real(lengths), padding)


# torch


def torch_cases() -> Iterator[tuple[str, Build]]:
    """List the modules of torch.nn that take sequences."""
    for name in ("TransformerEncoder", "TransformerDecoder", "Transformer"):
        causal = name != "TransformerEncoder"
        for norm_first in (False, True):
            options = {"norm_first": norm_first}
            yield f"nn.{name}({norm_first=})", partial(_torch, name, options, causal)
    for switch in ("bias", "add_bias_kv", "add_zero_attn"):
        options = {switch: True}
        yield (
            f"nn.MultiheadAttention({switch}=True)",
            partial(_torch, "MultiheadAttention", options, False),
        )
    for name in ("RNN", "GRU", "LSTM"):
        for bidirectional in (False, True):
            options = {"bidirectional": bidirectional}
            yield f"nn.{name}({bidirectional=})", partial(_torch, name, options, not bidirectional)


def _torch(name: str, options: Mapping[str, Any], causal: bool) -> Case:
    layer = getattr(nn, f"{name}Layer", None)
    if layer is None:
        model = getattr(nn, name)(WIDTH, 4, batch_first=True, **options)
    else:
        model = getattr(nn, name)(layer(WIDTH, 4, 64, batch_first=True, **options), 2)
    source, target = (torch.randn(*is_real(each).shape, WIDTH) for each in (LENGTHS, TARGETS))
    values = dict.fromkeys(("src", "memory", "query", "key", "value", "input"), source)
    values |= {"tgt": target, "tgt_key_padding_mask": ~is_real(TARGETS)}
    values |= {f"{each}key_padding_mask": ~is_real() for each in ("", "src_", "memory_")}
    values["tgt_mask"] = torch.ones(max(TARGETS), max(TARGETS), dtype=torch.bool).triu(1)
    known = inspect.signature(model.forward).parameters
    return Case(model, {each: values[each] for each in known if each in values}, causal)


# x-transformers


def x_transformers_cases() -> Iterator[tuple[str, Build]]:
    """List the decoder and encoder of x-transformers, with each switch of its parts alone."""
    library = import_module("x_transformers.x_transformers")
    switches = [""]
    for part, prefix in (("AttentionLayers", ""), ("Attention", "attn_"), ("FeedForward", "ff_")):
        known = inspect.signature(getattr(library, part).__init__).parameters
        switches += [f"{prefix}{name}" for name, each in known.items() if each.default is False]
    for kind in ("Decoder", "Encoder"):
        for switch in switches:
            if switch not in ("causal", "attn_causal", "cross_attend", "only_cross"):
                name = f"{kind}({switch}{'=True' if switch else ''})"
                yield name, partial(_x_transformers, kind, switch)


def _x_transformers(kind: str, switch: str) -> Case:
    library = import_module("x_transformers")
    options = {switch: True} if switch else {}
    sizes = {"dim": WIDTH, "depth": 2, "heads": 4, "attn_dim_head": 8, "verbose": False}
    layers = getattr(library, kind)(**sizes, **options)
    model = library.TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=64, attn_layers=layers)
    return Case(_stir(model), {"x": draw_tokens(), "mask": is_real()}, kind == "Decoder")


# transformers


def transformers_cases() -> Iterator[tuple[str, Build]]:
    """List the classes of models of transformers, by its own mappings."""
    mappings = import_module("transformers.models.auto.modeling_auto")
    found: dict[str, Build] = {}
    types: set[str] = set()
    for role in ROLES:
        name = f"MODEL_FOR_{role}_MAPPING_NAMES" if role else "MODEL_MAPPING_NAMES"
        new = getattr(mappings, name, {})
        for kind, value in new.items():
            classes = [value] if isinstance(value, str) else value
            if role in ROLES[:3] or kind not in types:
                found.setdefault(classes[0], partial(_transformers, classes[0], kind, role))
        types |= new.keys()
    yield from found.items()


def _transformers(name: str, kind: str, role: str) -> Case:
    library = import_module("transformers")
    library.logging.set_verbosity_error()
    model_class = getattr(library, name)
    config_class = getattr(model_class, "config_class", None) or library.CONFIG_MAPPING[kind]
    causal = True if role in CAUSAL else None
    errors: list[Exception] = []
    for factor in FACTORS:  # a width may not divide, and a part may have a fixed size
        try:
            config = shrink(config_class(), factor, is_image_small=factor != FACTORS[-1])
            if causal and hasattr(config, "is_decoder") and not config.is_encoder_decoder:
                config.is_decoder = True
            with torch.device("meta"):
                size = sum(each.numel() for each in model_class(config).parameters())
            if size > LARGEST:
                raise ValueError(f"the model has {size:,} parameters")
            torch.manual_seed(0)
            model = _stir(model_class(config))
            return Case(model, _find_example(model, config), causal)
        except Exception as error:
            errors.append(error)
    raise next((each for each in errors if isinstance(each, NotDrivenError)), errors[0])


def _stir(model: nn.Module) -> nn.Module:
    """Add noise to the parameters, so that those initialised with zeros have an effect."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


def _find_example(model: nn.Module, config: Any) -> dict[str, Tensor]:
    """Find inputs that the model takes: ids, images or audio; raise if there are none."""
    reasons = []
    for example in _make_examples(model, config):
        try:
            with torch.no_grad():
                output = model(**example)
            if any(True for _ in find_tensors(dict(output))):
                return example
        except Exception as error:
            reasons.append(describe_error(error))
    raise NotDrivenError((reasons or ["it takes neither ids, nor images, nor audio"])[0])


def _make_examples(model: nn.Module, config: Any) -> Iterator[dict[str, Tensor]]:
    known = inspect.signature(model.forward).parameters
    padding = getattr(config, "pad_token_id", None)
    draw = partial(draw_tokens, padding=padding or 0, special=frozenset(special_tokens(config)))
    masks = {"attention_mask": is_real().long()} if "attention_mask" in known else {}
    target: dict[str, Tensor] = {}
    if "decoder_input_ids" in known:
        target["decoder_input_ids"] = draw(TARGETS)
        if "decoder_attention_mask" in known:
            target["decoder_attention_mask"] = is_real(TARGETS).long()
    if "input_ids" in known:
        yield {"input_ids": draw(), **masks, **target}
        yield {"input_ids": draw(), **masks}
    rows, find = len(LENGTHS), partial(find_field, config)
    channels = find("num_channels", "in_channels", "in_chans") or 3
    size = find("image_size", "img_size", "input_size") or 64
    height, width = size if isinstance(size, list | tuple) else (size, size)
    frames = find("num_frames", "frames_per_clip") or 4
    if "pixel_values" in known:
        images = torch.randn(rows, channels, height, width)
        yield {"pixel_values": images, **target}
        yield {"pixel_values": images[:, None].repeat(1, frames, 1, 1, 1)}
        if "input_ids" in known:
            yield {"input_ids": draw(), **masks, "pixel_values": images, **target}
    if "input_values" in known:
        sound = torch.randn(rows, 4000)
        yield {"input_values": sound, **target}
        yield {"input_values": sound[:, None]}
    if "input_features" in known:
        bins = find("num_mel_bins", "feature_size", "input_dim", "n_mels") or 80
        steps = 2 * (find("max_source_positions") or 32)
        yield {"input_features": torch.randn(rows, bins, steps), **target}
        yield {"input_features": torch.randn(rows, 64, bins), **target}
