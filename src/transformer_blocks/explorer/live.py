"""Live model: a model and its tokenizers, with which a page translates or continues any sentence.

The page computes the forward pass in JavaScript, in one function for each block of the library. It
gets the model as a tree: of each module its class, its sizes, its weights and the modules in it.
These are the blocks of the paper's translator, of GPT-2 and of Llama.

A weight matrix is stored with 8 bits a number: as integers from -127 to 127, and a step for each
row, which the integers are multiplied by. Steps, and vectors such as biases, are bfloat16.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._alteration import check_unaltered
from transformer_blocks._contracts import Count, Size, checked, instance_of
from transformer_blocks.attention import scaled_dot_product_attention
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.embedding import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.explorer.arithmetic import as_bytes, deflate
from transformer_blocks.explorer.byte_pairs import read_byte_pairs
from transformer_blocks.explorer.checks import Text
from transformer_blocks.explorer.sentence_pieces import count_pieces
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.models import LanguageModel, Seq2Seq, TiedLinear, TokenModel
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import PostNorm, PreNorm
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.rotary import RotaryPositionalEncoding

BLOCKS: dict[type[nn.Module], tuple[str, ...]] = {
    Encoder: (),
    EncoderLayer: (),
    Decoder: (),
    DecoderLayer: (),
    TokenEmbedding: ("weight",),
    nn.Embedding: ("weight",),
    LearnedPositionalEncoding: ("weight",),
    SinusoidalPositionalEncoding: ("d_model",),
    RotaryPositionalEncoding: ("d_k",),
    MultiHeadAttention: ("num_heads", "num_key_value_heads", "d_k", "attention_function"),
    FeedForward: ("activation",),
    GatedFeedForward: ("activation",),
    PostNorm: (),
    PreNorm: (),
    nn.Linear: ("weight", "bias"),
    nn.LayerNorm: ("eps", "weight", "bias"),
    nn.RMSNorm: ("eps", "weight"),
}
"""The blocks that the page has functions for, and what it needs to know of each."""

KNOWN: dict[Any, str | None] = {
    F.relu: "relu",
    F.gelu: "gelu",
    ("tanh", F.gelu): "gelu_tanh",
    F.silu: "silu",
    fused_attention: None,
    scaled_dot_product_attention: None,
}
"""The functions in a block that the page knows."""

LARGEST = 127  # of 8 bits
MOST_WEIGHTS = 13 * 10**7
"""The largest model of a page has as many weights as the smallest GPT-2, 124 million, and some."""


@checked
@dataclass(frozen=True)
class LiveModel:
    """A model that the page runs: a translator, or a language model such as GPT-2 or Llama.

    The page stores and runs at most 130 million weights. The smallest GPT-2 has 124 million, which
    make a page of 152 MB.

    Args:
        model: The model, of the paper's blocks or of those of later language models.
        tokenizers: The SentencePiece models of its tokenizers, as bytes: those of the source and of
            the target, or that of the text. Or of a language model the ``tokenizer.json`` of
            byte-level byte pairs, as GPT-2 and Llama 3 have it.
        end_id: Id of the token that ends a target, or a line of a text.
        max_length: Maximum number of tokens of a source and of a target; or of a text with its
            continuation, if the model has no ``context`` of which it reads the end.
        language: Language code of the sentences to type, whose spelling is normalised: in "en",
            quotation marks become straight; in "ja" and "zh", spaces are removed.
        characters: Characters that sentences may have, and of which the page embeds glyphs.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the page would compute something else: it has no function for a part of the
            model, a part has hooks or replaced methods, a table is not the paper's, a weight is not
            finite, layers have different numbers of heads, ``max_length`` exceeds the positions, a
            token has no embedding, or a tokenizer is of another kind or another vocabulary. Or if
            the model has too many weights.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_language_model
        >>> from transformer_blocks.explorer import AttentionMaps, Explorer, LiveModel
        >>> model = build_language_model(999, num_layers=2, d_model=64, num_heads=4, d_ff=256)
        >>> live = LiveModel(model, [], end_id=3, max_length=40)
        >>> maps = AttentionMaps("Self-attention", torch.eye(2)[None, None], ["the", "cat"])
        >>> without, page = Explorer([maps]), Explorer([maps], live=live)
        >>> weights = sum(weight.numel() for weight in model.parameters())
        >>> (len(page.html) - len(without.html)) / weights < 2  # bytes of a weight
        True
    """

    model: Annotated[TokenModel, instance_of(TokenModel)]
    tokenizers: Sequence[bytes] = field(repr=False)
    end_id: Count
    max_length: Size
    language: Text = ""
    characters: Text = field(default="", repr=False)

    def __post_init__(self) -> None:
        _describe_model(self.model)
        _check_sizes(self)


def serialize_live(live: LiveModel) -> dict[str, Any]:
    """Convert a model with its weights, and its tokenizers, to the content of the page's JSON."""
    tree, tensors = _describe_model(live.model)
    integers, floats = bytearray(), bytearray()
    for tensor in tensors:
        numbers = tensor.detach().float().cpu()
        if numbers.dim() == 2:
            rounded, numbers = quantize(numbers)
            integers += as_bytes(rounded, torch.int8)
        floats += as_bytes(numbers.bfloat16().view(torch.int16), torch.int16)
    return {
        "tree": tree,
        "shapes": [list(tensor.shape) for tensor in tensors],
        "integers": deflate(bytes(integers)),
        "floats": deflate(bytes(floats)),
        "tokenizers": [
            deflate(_read_tokenizer(live, each)[0], zlib.Z_DEFAULT_STRATEGY)
            for each in live.tokenizers
        ],
        "endId": live.end_id,
        "maxLength": live.max_length,
        "language": live.language,
    }


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to 8 bits.

    Args:
        weight: The matrix, float32, of shape (rows, columns).

    Returns:
        Integers from -127 to 127, of the same shape, and the step of each row, of shape (rows,),
        rounded to bfloat16.

    Example:
        >>> import torch
        >>> from transformer_blocks.explorer.live import quantize
        >>> weight = torch.randn(3, 8)
        >>> integers, steps = quantize(weight)
        >>> bool(((integers * steps[:, None] - weight).abs() < steps[:, None]).all())
        True
    """
    steps = (weight.abs().amax(dim=1) / LARGEST).bfloat16().float()
    integers = (weight / steps.clamp_min(1e-30)[:, None]).round()
    return integers.clamp(-LARGEST, LARGEST), steps


def _read_tokenizer(live: LiveModel, content: bytes) -> tuple[bytes, int]:
    """Return what the page reads of a tokenizer, and the number of its tokens."""
    if content[:1] != b"{" or isinstance(live.model, Seq2Seq):
        return content, count_pieces(content)
    output: Any = live.model.output
    found = read_byte_pairs(content, len(output.weight))
    return json.dumps(found).encode(), len(found["tokens"])


def _describe_model(model: TokenModel) -> tuple[dict[str, Any], list[Tensor]]:
    """Describe a model for the page, and list its weights.

    Raises:
        ValueError: If the page has no function for a part of it.
    """
    kind = Seq2Seq if isinstance(model, Seq2Seq) else LanguageModel
    options = {each: getattr(model, each, None) for each in ("begin_id", "padding_id", "context")}
    mirrored = {name for each in (kind, TokenModel) for name in vars(each) if name[:2] != "__"}
    mirrored -= {"loss"} if options["context"] is None else {"loss", "start"}  # of a TextModel
    for name in sorted(mirrored):
        if getattr(type(model), name, None) is not getattr(kind, name, None):
            raise ValueError(
                f"model must compute what a {kind.__name__} does, got another {name} of "
                f"{type(model).__name__}"
            )
    for name, part in model.named_modules():
        check_unaltered(part, name or "model")
    tensors: list[Tensor] = []
    tree = {"is": kind.__name__, **_describe_parts(model, tensors)}
    if (count := sum(each.numel() for each in tensors)) > MOST_WEIGHTS:
        raise ValueError(
            f"model must have at most {MOST_WEIGHTS:,} weights in a page, got {count:,}; "
            "explore(model, ...) without it shows its attention to one text"
        )
    return tree | options, tensors


def _check_sizes(live: LiveModel) -> None:
    """Raise unless ids, positions, heads and tokenizers fit a model of the page's blocks.

    Raises:
        ValueError: If they do not.
    """
    model: Any = live.model
    is_seq2seq, positions = isinstance(model, Seq2Seq), model.positions
    embeddings = [model.source_embedding, model.target_embedding] if is_seq2seq else []
    embeddings = embeddings or [model.embedding]
    source, target = (len(each.weight) for each in (embeddings[0], embeddings[-1]))
    longest = getattr(model, "context", None) or live.max_length
    table = getattr(positions, "table", getattr(positions, "weight", None))
    if table is not None and longest > len(table):
        raise ValueError(
            f"max_length, or the context, must not exceed the {len(table)} positions of "
            f"the model, got {longest}"
        )
    begin_id, written = getattr(model, "begin_id", 0), len(model.output.weight)
    for name, size in (
        ("end_id", live.end_id + 1),
        ("begin_id", begin_id + 1),
        ("output", written),
    ):
        limit = min(source, target) if name == "end_id" else target
        if size > limit:
            raise ValueError(
                f"{name} must stay below the {limit} tokens of its embedding, got id {size - 1}"
            )
    _check_heads(model)
    if len(live.tokenizers) not in (0, len(embeddings)):
        raise ValueError(
            f"tokenizers must be {len(embeddings)}, one for each embedding, "
            f"got {len(live.tokenizers)}"
        )
    counts = [_read_tokenizer(live, each)[1] for each in live.tokenizers]
    if counts and (counts[0] > source or counts[-1] < written):
        raise ValueError(
            "tokenizers must have the tokens of the model, "
            f"got {' and '.join(map(str, counts))} tokens for {source} and {written}"
        )


def _check_heads(model: nn.Module) -> None:
    """Raise unless the layers of each stack have equally many heads, of one size.

    Raises:
        ValueError: If they do not.
    """
    for stack in (each for each in model.children() if isinstance(each, Encoder | Decoder)):
        heads = {
            (name, part.num_heads, part.num_key_value_heads, part.d_k)
            for layer in stack.layers
            for name, part in layer.named_children()
            if isinstance(part, MultiHeadAttention)
        }
        if len(heads) > len({name for name, *_ in heads}):
            raise ValueError(f"layers must have the same heads, got {sorted(heads)}")


def _describe_parts(module: nn.Module, tensors: list[Tensor], name: str = "") -> dict[str, Any]:
    """Describe the modules in a module, also those that are there twice."""
    return {
        option: _describe(part, tensors, f"{name}{option}")
        for option, part in module._modules.items()
        if part is not None and type(part) is not Dropout
    }


def _describe(module: Any, tensors: list[Tensor], name: str) -> Any:
    """Describe a module for the page, and collect its weights, each of them once.

    Raises:
        ValueError: If the page has no function for it.
    """
    kind = nn.Linear if type(module) is TiedLinear else type(module)
    parts = _describe_parts(module, tensors, f"{name}.")
    if kind is nn.ModuleList:
        return list(parts.values())
    values = {option: getattr(module, option) for option in BLOCKS.get(kind, ())}
    weights = {option: values.pop(option) for option in ("weight", "bias") if option in values}
    functions = {option: _key(value) for option, value in values.items() if callable(value)}
    if kind not in BLOCKS or not all(value in KNOWN for value in functions.values()):
        raise ValueError(f"model must be made of blocks that the page knows, got {name}: {module}")
    for option, weight in weights.items():
        if weight is not None or option != "bias":
            values[option] = _place_weight(weight, f"{name}.{option}", module, tensors)
    if kind is MultiHeadAttention:
        for heads, *projections in (
            (module.num_heads, module.query_projection),
            (module.num_key_value_heads, module.key_projection, module.value_projection),
        ):
            if {len(each.weight) for each in projections} != {width := heads * module.d_k}:
                raise ValueError(f"{name} must project to {width} features, H * d_k, got {module}")
    if kind is RotaryPositionalEncoding:
        values["frequencies"] = module.frequencies(torch.zeros(0)).tolist()
        values["factor"] = getattr(module.scaling, "attention_factor", 1.0)
    if kind is nn.Embedding and module.max_norm is not None:
        raise ValueError(f"{name} must not change its weights, got max_norm={module.max_norm}")
    if kind is SinusoidalPositionalEncoding:
        table = sinusoidal_table(module.max_length, module.d_model).to(module.table.dtype)
        if not torch.equal(module.table.cpu(), table):
            raise ValueError(f"{name} must have the paper's encodings, got another table")
    values |= {option: KNOWN[value] for option, value in functions.items()}
    if kind is nn.RMSNorm and values["eps"] is None:
        values["eps"] = torch.finfo(torch.float32).eps
    return {"is": kind.__name__, **values, **parts}


def _place_weight(weight: Any, name: str, module: Any, tensors: list[Tensor]) -> int:
    """Return a weight's place among the tensors, which it is added to unless it is there already.

    Raises:
        ValueError: If it is not finite, or has another number of dimensions than the page's.
    """
    has_rows = isinstance(module, nn.Linear | nn.Embedding | TokenEmbedding)
    has_rows |= isinstance(module, LearnedPositionalEncoding)
    if weight is None or weight.dim() != (2 if has_rows and name.endswith(".weight") else 1):
        raise ValueError(f"{name} must have a number for each feature, got {module}")
    if weight.is_meta or not bool(weight.detach().bfloat16().isfinite().all()):
        raise ValueError(f"{name} must be finite numbers, got others")
    places = [place for place, each in enumerate(tensors) if each is weight]
    if not places:
        tensors.append(weight)
    return places[0] if places else len(tensors) - 1


def _key(function: Any) -> Any:
    """Return what stands for a function in ``KNOWN``."""
    if isinstance(function, partial) and [*function.keywords] == ["approximate"]:
        return (function.keywords["approximate"], function.func, *function.args)
    return function
