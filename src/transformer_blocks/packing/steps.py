"""Compiled steps: one call for one word, made of the modules by ``torch.compile``."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.cache import DecoderCache, EncoderCache
from transformer_blocks.decoder import Decoder
from transformer_blocks.encoder import Encoder
from transformer_blocks.packing.linear import FEW_ROWS

MOST_KINDS = 16  # of steps: rows, a mask or none, rows that share a memory, and so on
ROOM = 2  # for the new position, and one more: to the compiler, a full cache is a special case


class CompiledEncoder(Encoder):
    """An encoder whose steps of one position are compiled.

    Prompts, the first step, and whatever else is no plain step, take the usual way. Hooks are
    not called in a step, but :func:`~transformer_blocks.record_attention` sees it.

    Args:
        encoder: The stack to replace, with packed parts.
    """

    def __init__(self, encoder: Encoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = encoder.layers, encoder.norm
        self._usual_way = encoder.forward
        self._step = compile_step(encoder.forward)

    def forward(  # noqa: D102
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: EncoderCache | None = None,
    ) -> Tensor:
        if cache is not None and mask is None and is_step(x, cache, len(self.layers)):
            return self._step(x, causal=causal, cache=cache)
        return self._usual_way(x, mask=mask, causal=causal, cache=cache)


class CompiledDecoder(Decoder):
    """A decoder whose steps of one position are compiled; like :class:`CompiledEncoder`.

    Args:
        decoder: The stack to replace, with packed parts.
    """

    def __init__(self, decoder: Decoder) -> None:
        nn.Module.__init__(self)
        self.layers, self.norm = decoder.layers, decoder.norm
        self._usual_way = decoder.forward
        self._step = compile_step(decoder.forward)

    def forward(  # noqa: D102
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        others = memory, mask, memory_mask
        is_alone = all(other is None for other in others)
        if cache is not None and is_alone and is_step(x, cache, len(self.layers)):
            return self._step(x, causal=causal, cache=cache)
        return self._usual_way(
            x, memory, mask=mask, memory_mask=memory_mask, causal=causal, cache=cache
        )


def is_step(x: Tensor, cache: EncoderCache | DecoderCache, num_layers: int) -> bool:
    """Tell whether a call is a step that was compiled, and right; what is wrong is refused later.

    Args:
        x: The new positions.
        cache: What the step adds to.
        num_layers: Of the stack.
    """
    return (
        x.dim() == 3
        and x.shape[1] == 1
        and x.device.type == "cpu"
        and 0 < x.shape[0] == cache.rows
        and cache.length > 0
        and len(cache.past) == num_layers
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def compile_step(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the step of a stack: once for all lengths, and for one row, a few, and many.

    Args:
        forward: Called with one new position, and the cache that it is added to.

    Returns:
        A function that does the same.

    Raises:
        RuntimeError: If this torch cannot keep the compiled steps of several models apart.
    """
    if "isolate_recompiles" not in inspect.signature(torch.compile).parameters:
        raise RuntimeError(f"compiled steps need torch 2.13 or newer, got {torch.__version__}")
    options: dict[str, Any] = {"cpp_wrapper": True, "guard_filter_fn": _what_may_change}
    settings: Any = {  # weights become part of the code, so each model needs its own
        "fullgraph": True,
        "dynamic": True,
        "isolate_recompiles": True,
        "recompile_limit": MOST_KINDS,
    }
    many = torch.compile(forward, **settings, options=dict(options))
    options |= {  # for few rows, it tries products of its own, and keeps those that are faster
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "CPP,ATEN",
        "autotune_num_choices_displayed": 0,
        "max_autotune_report_choices_stats": False,
    }
    few = torch.compile(forward, **settings, options=options)

    def step(x: Tensor, *, causal: bool, cache: EncoderCache | DecoderCache) -> Any:
        cache.reserve(ROOM)
        with _made_to_last():
            return (few if len(x) <= FEW_ROWS else many)(x, causal=causal, cache=cache)

    return step


@contextmanager
def _made_to_last() -> Iterator[None]:
    """Set what no option of ``torch.compile`` reaches in time.

    Weights become part of the code. Sizes that happen to be equal the first time, like those of
    text and memory, may differ later.
    """
    # Here, since they take a second, once.
    from torch._inductor import config as code_config
    from torch.fx.experimental import _config as shape_config

    before = code_config.freezing, shape_config.use_duck_shape
    code_config.freezing, shape_config.use_duck_shape = True, False
    try:
        yield
    finally:
        code_config.freezing, shape_config.use_duck_shape = before


def _what_may_change(guards: Sequence[Any]) -> list[bool]:
    """Choose what a step checks again each time: what it is given. Modules and globals stay."""
    of_modules = torch.compiler.skip_guard_on_all_nn_modules_unsafe(guards)
    return [kept and not guard.is_global for kept, guard in zip(of_modules, guards, strict=True)]
