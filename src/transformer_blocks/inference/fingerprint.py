"""Fingerprints: a hash of everything that determines a compiled program.

Tracing a step takes seconds, so a kept program must be found without it. The fingerprint therefore
hashes what the trace would read: weights, attributes and code, and the versions of everything whose
code is not hashed. What cannot be hashed completely raises an error, and is not kept.
"""

import builtins
import dis
import functools
import hashlib
import logging
import os
import platform
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

PLAIN_VALUES = (
    *(type(None), bool, int, float, complex, str, bytes, type(...), slice, range),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
"""Types whose ``repr`` is the whole value."""

NAMES = (
    *(type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor), logging.Logger),
    *(types.MethodDescriptorType, types.MemberDescriptorType, types.GetSetDescriptorType),
    *(types.GenericAlias, types.UnionType, TypeVar, type(Callable[..., int])),
)
"""Types of constants whose ``str`` is a complete name."""

PACKAGE = __name__.partition(".")[0]
COMPILED_STEPS = f"{PACKAGE}.inference.compiled", "CompiledSteps"


def _hash_package() -> str:
    """Hash the source of this package."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# At import: a program is traced from the source as it was then, not as it is when it is hashed.
_PACKAGE_HASH = _hash_package()


def fingerprint(*objects: object) -> str:
    """Hash objects, with all weights, attributes and functions that they refer to.

    Torch and the standard library are represented by their versions, this package by its source.
    All other code is represented by its instructions, its constants and the objects that it refers
    to, so that a changed activation function or class has another fingerprint. The machine, the
    number of threads and the settings of torch that change a compiled program are hashed too.

    Args:
        *objects: Modules, functions, tensors, numbers, and lists, tuples and dictionaries of them.

    Returns:
        The fingerprint, of 64 hexadecimal digits.

    Raises:
        TypeError: If an object cannot be hashed completely, for example a file or an instance of a
            class that is not a module.

    Example:
        >>> from torch import nn
        >>> from transformer_blocks.inference.fingerprint import fingerprint
        >>> layer = nn.Linear(2, 2)
        >>> before = fingerprint(layer)
        >>> before == fingerprint(layer)
        True
        >>> _ = nn.init.zeros_(layer.bias)
        >>> before == fingerprint(layer)
        False
    """
    hasher = _Hasher()
    hasher.add(_environment())
    for each in objects:
        hasher.add(each)
    return hasher.digest.hexdigest()


def _environment() -> dict[str, str | int]:
    """Describe what else determines a compiled program: versions, processor and settings."""
    mkldnn: Any = torch.backends.mkldnn
    names = [name for name in sorted(os.environ) if name == "CXX" or "INDUCTOR" in name]
    try:
        wanted = "vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU "
        lines = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0].splitlines()
        processor = "\n".join(line for line in lines if line.startswith(wanted))
    except OSError:  # not on Linux
        processor = str(platform.uname())
    return {
        "package": _PACKAGE_HASH,
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "python": sys.version,
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {processor}",
        "threads": torch.get_num_threads(),
        "compiler": repr([(name, os.environ[name]) for name in names]),
        "default dtype": str(torch.get_default_dtype()),
        "precision": mkldnn.matmul.fp32_precision,  # set by old and new functions
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": mkldnn.is_available(),
    }


class _Hasher:
    """Hash objects and what they refer to; an object that occurs again is hashed as its number."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=32)  # twice as fast as SHA-256
        self._numbers: dict[int, int] = {}
        self._objects: list[object] = []  # kept alive, so that no id occurs twice

    def add(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN_VALUES:
            self._text(kind.__name__, repr(value))
            return
        if id(value) in self._numbers:
            self._text("again", self._numbers[id(value)])
            return
        self._numbers[id(value)] = len(self._objects)
        self._objects.append(value)
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, nn.Module):
            self._all("module", kind, vars(value))
        elif isinstance(value, dict):
            self._all("dict", kind, len(value), *(each for item in value.items() for each in item))
        elif isinstance(value, list | tuple):
            self._all("sequence", kind, len(value), *value)
        elif kind in (set, frozenset):
            self._all("set", len(value), *sorted(value, key=repr))
        elif isinstance(value, type):
            self._class(value)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self._all("method", value.__func__, value.__self__)
        elif kind is types.CodeType:
            self._code(value)
        elif kind in (staticmethod, classmethod):
            self._all(kind.__name__, value.__func__)
        elif kind is property:
            self._all("property", value.fget, value.fset, value.fdel)
        elif kind is functools.partial:
            self._all("partial", value.func, value.args, value.keywords)
        elif kind is types.ModuleType and _is_versioned(value.__name__):
            self._text("package", value.__name__)
        elif kind.__module__ == COMPILED_STEPS[0] and kind.__qualname__ == COMPILED_STEPS[1]:
            self._text("programs")  # the result, not a cause
        elif _is_name(value):
            self._text("name", kind, getattr(value, "__qualname__", value))
        else:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be hashed completely")

    def _text(self, *values: object) -> None:
        """Hash values whose ``str`` is complete; the lengths separate them."""
        for value in values:
            data = str(value).encode("utf-8", "surrogatepass")
            self.digest.update(b"%d:" % len(data) + data)

    def _all(self, kind: str, *values: object) -> None:
        self._text(kind)
        for value in values:
            self.add(value)

    def _tensor(self, x: Tensor) -> None:
        self._text("tensor", type(x), x.dtype, tuple(x.shape), x.layout, x.device, x.requires_grad)
        if type(x) not in (Tensor, nn.Parameter) or x.is_quantized or x.device.type != "cpu":
            raise TypeError(f"a tensor of type {x.type()} cannot be hashed completely")
        x = x.detach()
        if x.layout is torch.strided:
            self._text(x.stride())
        elif x.is_mkldnn:
            x = x.to_dense()
        else:
            raise TypeError(f"a tensor of layout {x.layout} cannot be hashed completely")
        if x.is_conj() or x.is_neg():
            x = x.resolve_conj().resolve_neg()
        self.digest.update(x.contiguous().reshape(-1).view(torch.uint8).numpy().data)

    def _class(self, kind: type) -> None:
        self._text("class", kind.__module__, kind.__qualname__)
        is_versioned = _is_versioned(kind.__module__) and _named_by(kind) is kind
        if is_versioned and kind.__module__.partition(".")[0] != PACKAGE:
            return
        self._all("bases", *kind.__bases__)
        for name, value in vars(kind).items():
            # Of this package, only methods can have been replaced; the source is hashed already.
            is_method = isinstance(value, types.FunctionType)
            is_private = name.startswith(("__", "_abc_")) and not is_method
            if is_method if is_versioned else not is_private:
                self._all(name, value)

    def _function(self, function: types.FunctionType) -> None:
        name = function.__globals__.get("__name__", "")
        self._text("function", name, function.__qualname__)
        is_versioned = _is_versioned(name)
        if is_versioned and _named_by(function) is function:
            return
        self._all("code", function.__code__, function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        for global_name in () if is_versioned else _global_names(function.__code__):
            if global_name in function.__globals__:
                self._all(global_name, function.__globals__[global_name])
            elif not hasattr(builtins, global_name):
                raise TypeError(f"the name {global_name} of {function.__qualname__} is undefined")

    def _code(self, code: types.CodeType) -> None:
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and not _is_versioned(str(instruction.argval)):
                raise TypeError(f"{code.co_name} imports {instruction.argval}")
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        table = getattr(code, "co_exceptiontable", b"")
        self._all("instructions", code.co_code, code.co_flags, table, *names, code.co_consts)


def _is_versioned(module: str) -> bool:
    """Return whether the code of a module is represented by the versions in the environment."""
    root = module.partition(".")[0]
    if root in ("torch", PACKAGE) or root in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    in_library = file.startswith(sysconfig.get_path("stdlib")) and "-packages" not in file
    return root in sys.stdlib_module_names and in_library


def _named_by(value: Any) -> object:
    """Return what the qualified name of a class or function refers to, or None."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _is_name(value: Any) -> bool:
    """Return whether the name of a constant tells all about it, as for a function in C."""
    if isinstance(value, NAMES) or type(value).__name__ == "_tuplegetter":
        return True
    owner = getattr(value, "__self__", None)
    is_function = owner is None or isinstance(owner, type | types.ModuleType)
    return isinstance(value, types.BuiltinFunctionType) and is_function


def _global_names(code: types.CodeType) -> list[str]:
    """Return the names of the global variables that code reads, also in its inner functions."""
    names = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return sorted(names.union(*map(_global_names, inner)))
