"""The fingerprint of a model: two models that have the same one compute the same.

A program is used with the model that it was made of. Names and weights do not determine what a
model computes: attributes such as an attention function, an activation or an id do so, too.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Mapping, Set
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._alteration import check_unaltered

KNOWN = {"torch", "transformer_blocks", "builtins", "copyreg", "functools", "math", "operator"}
"""Packages whose functions and classes are known by their names; of others, the code is read."""

OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # its parts, its hooks, whether it is in training


def fingerprint(model: nn.Module) -> str:
    """Return a hash of the classes, attributes, weights and buffers of a model and its parts.

    Raises:
        ValueError: If a module has hooks or replaced methods.
    """
    digest = hashlib.sha256()
    for name, module in model.named_modules(remove_duplicate=False):
        check_unaltered(module, name or "the model")
        own = {key: each for key, each in vars(module).items() if key not in OF_EVERY_MODULE}
        digest.update(f"{name} {_describe([type(module), own])}".encode())
    weights = model.named_parameters(remove_duplicate=False)
    for name, tensor in chain(weights, model.named_buffers(remove_duplicate=False)):
        digest.update(f"{name} {_describe(tensor)}".encode())
    return digest.hexdigest()


def _describe(value: Any, outer: tuple[int, ...] = ()) -> str:
    """Describe what a value computes, alike in every process.

    Args:
        value: Any object.
        outer: The identities of the objects that it is a part of.
    """
    if id(value) in outer:
        return "itself"

    def all_of(*parts: Any) -> str:
        return f"({', '.join(_describe(part, (*outer, id(value))) for part in parts)})"

    kind = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    match value:
        case Tensor():
            data = value.detach().contiguous().flatten().view(torch.uint8).numpy().data
            return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()}"
        case Mapping():
            return str(sorted(all_of(*item) for item in value.items()))
        case Set():
            return str(sorted(map(all_of, value)))
        case tuple() | list():
            return all_of(*value)
        case CodeType():
            return all_of(value.co_code, value.co_consts, value.co_names)
        case FunctionType() if not _is_known(value):
            used = inspect.getclosurevars(value)
            given = value.__defaults__, value.__kwdefaults__
            return all_of(value.__code__, used.globals, used.nonlocals, *given)
        case type():
            owners = [each for each in value.__mro__ if not _is_known(each)]
            members = chain.from_iterable(vars(each).items() for each in owners)
            own = [item for item in members if item[0] == "__call__" or item[0][:2] != "__"]
            return kind + all_of(
                *(getattr(each, "__func__", each) for item in own for each in item)
            )
        case ModuleType() | FunctionType() | BuiltinFunctionType():
            return f"{kind}{value.__name__}"
    if callable(value):
        with suppress(Exception):  # what cannot be copied, such as a lock
            return all_of(type(value), value.__reduce_ex__(2))
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _is_known(value: Any) -> bool:
    """Return whether a function or class is that of a known package under its name."""
    module = getattr(value, "__module__", None) or ""
    if module.partition(".")[0] not in KNOWN:
        return False
    with suppress(AttributeError, KeyError):
        return attrgetter(value.__qualname__)(sys.modules[module]) is value
    return False
