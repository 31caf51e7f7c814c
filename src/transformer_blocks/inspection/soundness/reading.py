"""Reading inputs: which arguments are sequences, and which of their positions are padded.

Names help, as ``attention_mask``, ``src_key_padding_mask`` and ``decoder_input_ids`` are common
ones. What a mask means is read from its values instead, since conventions differ: the value that
fills the row of the longest sequence marks real tokens.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.inspection.soundness.inputs import Argument, Group, Inputs, is_toeplitz

SOURCE = {"context", "enc", "encoder", "memory", "source", "src"}
TARGET = {"dec", "decoder", "target", "tgt", "trg"}
LABELS = {"label", "labels", "target", "targets"}
INDICES = {"document", "documents", "position", "positions", "segment", "segments", "type"}


def read_inputs(
    model: Callable[..., Any], inputs: Any, padding_id: int | None, labels: Collection[str] = ()
) -> Inputs:
    """Find out what the arguments of a model mean.

    Args:
        model: The module or function.
        inputs: A tensor, a tuple of arguments or a mapping of keyword arguments.
        padding_id: Id of the padding token, if the model finds padding by it.
        labels: Names of arguments that are labels: one belongs to each position, and no output
            depends on them.

    Raises:
        TypeError: If the inputs are not a tensor, a tuple or list, or a mapping.
        ValueError: If they hold no batch.
    """
    named, is_mapping = _name_arguments(model, inputs)
    batch_size = _find_batch_size([value for _, value in named])
    arguments = [
        Argument(name, value, "indices" if name in labels else _classify(name, value, batch_size))
        for name, value in named
    ]
    groups: list[Group] = []
    for place, argument in enumerate(arguments):
        if argument.kind == "content":
            number = _find_group_of_content(argument, arguments[:place], groups)
            if number == len(groups):
                real = torch.ones(argument.value.shape[:2], dtype=torch.bool)
                groups.append(Group(argument.name, find_role(argument.name), real))
            arguments[place] = replace(argument, groups=(number,))
    for place, argument in enumerate(arguments):
        arguments[place] = _assign_groups(argument, arguments[:place], groups, batch_size)
    groups = [_find_padding(n, group, arguments, padding_id) for n, group in enumerate(groups)]
    arguments = [_add_filler(argument, groups, padding_id, model) for argument in arguments]
    return Inputs(tuple(arguments), tuple(groups), batch_size, is_mapping)


def find_parameters(model: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters in the signature of a model; none if it has no signature."""
    try:
        return inspect.signature(
            model.forward if isinstance(model, nn.Module) else model
        ).parameters
    except (TypeError, ValueError):
        return {}


def split_name(name: str) -> set[str]:
    """Split the name of an argument into words and numbers."""
    return set(re.findall(r"[^\W\d_]+|\d+", name.lower()))


def find_role(name: str) -> str:
    """Return the role of the sequence to which a name belongs: source, target, or none."""
    words = split_name(name)
    for source, target in ((SOURCE, TARGET), ({"key", "value"}, {"query"})):
        if bool(words & source) != bool(words & target):
            return "source" if words & source else "target"
    return ""


def _name_arguments(model: Callable[..., Any], inputs: Any) -> tuple[list[tuple[str, Any]], bool]:
    """List names and values of the arguments."""
    if isinstance(inputs, Mapping):
        return [(str(name), value) for name, value in inputs.items()], True
    values = [inputs] if isinstance(inputs, Tensor) else inputs
    if not isinstance(values, tuple | list):
        raise TypeError(
            "inputs must be a tensor, a tuple of arguments or a mapping of keyword arguments, "
            f"got {type(inputs).__name__}"
        )
    known = [
        name
        for name, parameter in find_parameters(model).items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    known += [f"argument {number}" for number in range(len(known), len(values))]
    return list(zip(known, values, strict=False)), False


def _find_batch_size(values: list[Any]) -> int:
    for value in values:
        if isinstance(value, Tensor) and value.dim() >= 2:
            if not value.numel():
                raise ValueError(f"inputs must not be empty, got shape {tuple(value.shape)}")
            return value.shape[0]
    raise ValueError("inputs must hold a tensor of shape (B, L) or (B, L, ...), there is none")


def _classify(name: str, value: Any, batch_size: int) -> str:
    """Classify an argument by its shape and dtype, and by its name where these are ambiguous."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return "fixed"
    if value.dtype == torch.bool or "mask" in name.lower():
        return "mask or pairs"
    if split_name(name) & INDICES and value.dim() == 2 and value.shape[0] in (1, batch_size):
        return "indices"
    if value.shape[0] != batch_size:
        return "fixed"
    if value.dim() == 1:
        is_number = value.is_floating_point() or split_name(name) & LABELS
        return "rows" if is_number else "lengths"
    if value.dim() == 2 or (value.dim() == 3 and value.is_floating_point()):
        return "content"
    return "rows"


def _find_group_of_content(argument: Argument, others: list[Argument], groups: list[Group]) -> int:
    """Find the group of ids or vectors: of the same tensor, or of the same role; or a new one."""
    for other in others:
        if other.kind == "content" and other.value is argument.value:
            return other.groups[0]
    role = find_role(argument.name)
    for number, group in enumerate(groups):
        if role and role == group.role and argument.value.shape[1] == group.length:
            return number
    return len(groups)


def _assign_groups(
    argument: Argument, others: list[Argument], groups: list[Group], batch_size: int
) -> Argument:
    """Find the groups to which a mask, positions or lengths belong."""
    name, value, kind = argument.name, argument.value, argument.kind
    taken = {each.groups for each in others if each.kind == kind.split()[0]}
    find = partial(_find_group, name, groups, taken)
    fixed = replace(argument, kind="fixed")
    if kind == "lengths":
        number = find(None)
        if number is None or value.min() <= 0 or value.max() > groups[number].length:
            return replace(argument, kind="rows")
        return replace(argument, groups=(number,))
    if kind == "indices":
        number = find(value.shape[1])
        if number is None:
            return fixed
        value = value.expand(batch_size, *value.shape[1:])
        return replace(argument, value=value, groups=(number,))
    if kind != "mask or pairs":
        return argument
    key = find(value.shape[-1])
    is_padding = value.dim() >= 2 and all(size == 1 for size in value.shape[1:-1])
    is_padding = is_padding and value.shape[0] == batch_size and not _is_mask_of_pairs(name, value)
    if is_padding and key is not None:
        return replace(argument, kind="mask", groups=(key,))
    queries = [n for n, group in enumerate(groups) if group.length == value.shape[-2]]
    if value.dim() < 2:
        return fixed
    if key is None or not queries or value.dim() > 4:
        return replace(argument, kind="unread")
    query = key if key in queries else queries[0]
    if "memory" in name.lower() or "cross" in name.lower():
        query = next((each for each in queries if each != key), query)
    has_rows = value.dim() > 2 and value.shape[0] % batch_size == 0
    argument = replace(argument, kind="pairs", groups=(query, key), has_rows=has_rows)
    values = value.unique()
    if has_rows and query == key and len(values) == 2:
        mark = value.diagonal(dim1=-2, dim2=-1).flatten().double().mode().values.to(value.dtype)
        hidden = values[values != mark][0]
        return replace(argument, filler=hidden.item(), real=mark.item())
    return argument


def _is_mask_of_pairs(name: str, mask: Tensor) -> bool:
    """Return whether a mask, if it has the shape (B, B), is one of queries and keys."""
    is_square = mask.dim() == 2 and mask.shape[0] == mask.shape[1]
    return is_square and is_toeplitz(mask) and not re.search("padding|attention_mask", name.lower())


def _find_group(
    name: str, groups: list[Group], taken: set[tuple[int, ...]], length: int | None
) -> int | None:
    """Find the group of a length to which a name belongs.

    It is one of its role, or else of no role; of these, the one with which the name has most words
    in common; of these, one that no argument of its kind has.
    """
    own, words = find_role(name), split_name(name)

    def rank(number: int) -> tuple[int, int, bool]:
        role = groups[number].role
        rank = 2 if role and role != own else int(not role)
        return rank, -len(words & split_name(groups[number].name)), (number,) in taken

    fitting = [n for n, each in enumerate(groups) if length in (None, each.length)]
    return min(fitting, key=rank, default=None)


def _find_padding(
    number: int, group: Group, arguments: list[Argument], padding_id: int | None
) -> Group:
    """Find which positions hold real tokens, and whether masks or ids show them to the model."""
    own = [each for each in arguments if each.groups and set(each.groups) == {number}]
    content = next(each.value for each in own if each.kind == "content")
    real = group.real
    masks = [each.value.reshape(real.shape) for each in own if each.kind == "mask"]
    lengths = [each.value for each in own if each.kind == "lengths"]
    pairs = [each for each in own if each.kind == "pairs" and each.real is not None]
    has_ids = padding_id is not None and not content.is_floating_point() and content.dim() == 2
    if has_ids:
        real = (content != padding_id).cpu()
    if bool(real.all()) and lengths:
        real = torch.arange(group.length) < lengths[0].cpu()[:, None]
    if bool(real.all()) and masks:
        real = find_real(masks[0].cpu(), content.cpu())
    if bool(real.all()) and pairs:  # a real token is visible to a query, at least to itself
        visible = (pairs[0].value == pairs[0].real).any(-2).cpu()
        real = visible.reshape(len(real), -1, group.length).any(1)
    if not bool(real.any(dim=1).all()):
        raise ValueError("each sequence of inputs must hold a real token, one is all padding")
    has_mask = bool(masks or lengths or pairs)
    return replace(group, real=real, has_mask=has_mask, has_padding_id=has_ids)


def find_real(mask: Tensor, content: Tensor) -> Tensor:
    """Find which positions a padding mask marks as real tokens, by its values and the content.

    Raises:
        ValueError: If neither shows it.
    """
    values = mask.unique()
    if len(values) != 2:
        return torch.ones(mask.shape, dtype=torch.bool)
    marks = [mask == value for value in values]
    full = [bool(each.all(dim=1).any()) for each in marks]
    if full[0] != full[1]:
        return marks[full.index(True)]
    # The content of padded positions is usually the same.
    differ = [len(content[each].unique(dim=0)) > 1 for each in marks]
    if differ[0] != differ[1]:
        return marks[differ.index(True)]
    raise ValueError(
        "a padding mask of inputs must have one row without padding, the longest, by which the "
        f"value of real tokens is known, got a mask of shape {tuple(mask.shape)} with none"
    )


def _add_filler(
    argument: Argument, groups: list[Group], padding_id: int | None, model: Callable[..., Any]
) -> Argument:
    """Find out what an argument holds at padded positions."""
    name, value, kind = argument.name, argument.value, argument.kind
    if kind not in ("content", "mask"):
        return argument
    real = groups[argument.groups[0]].real.to(value.device)
    if kind == "mask":
        flat = value.reshape(real.shape)
        mark = flat[real].double().mode().values.to(value.dtype)
        others = flat[flat != mark]
        if len(others):
            hidden = others[0]
        elif value.is_floating_point() and float(mark) == 0.0 and "attention" not in name:
            hidden = torch.full_like(mark, -torch.inf)
        else:
            hidden = (mark == 0).to(value.dtype)
        return replace(argument, filler=hidden.item(), real=mark.item())
    padded = value[~real]
    if len(padded):
        filler: Any = padded[0]
    elif value.is_floating_point():
        filler = 0.0
    else:
        known = getattr(getattr(model, "config", None), "pad_token_id", None)
        known = padding_id if padding_id is not None else known
        filler = int(value.min()) if known is None or known < 0 else known
    return replace(argument, filler=filler)
